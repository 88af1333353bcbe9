"""Calls of modules: their precision, and the hooks around ``forward``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._arguments import mistake
from .._engine import Tensor
from ._backward_hooks import watched_inputs, watched_outputs
from ._hooks import Handle, checked
from ._precision import precision_of

if TYPE_CHECKING:
    from .module import Module

Hooks = dict[int, Any]
# The hooks of all modules: see ``register_module_forward_hook`` and the like.
_GLOBAL: dict[str, Hooks] = {kind: {} for kind in ("forward_pre", "forward", "backward_pre", "backward")}
_REGISTRATION: dict[str, Hooks] = {kind: {} for kind in ("parameter", "buffer", "module")}
_GLOBAL_ALWAYS: dict[int, bool] = {}
_GLOBAL_ANY: dict[int, bool] = {}


class Calls:
    """What calls a module's ``forward``."""

    _forward_hooks: Hooks
    _forward_pre_hooks: Hooks
    _backward_hooks: Hooks
    _backward_pre_hooks: Hooks
    _forward_hooks_with_kwargs: dict[int, bool]
    _forward_pre_hooks_with_kwargs: dict[int, bool]
    _forward_hooks_always_called: dict[int, bool]

    #: The names of the dictionaries of hooks.
    _HOOKS = (
        *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
        *("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called"),
    )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the module's result; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} does not implement forward()")

    #: The precision in which the module computes, if not its own: set by ``TensorCoresBackend.optimize_model``.
    computation_dtype: tuple[str, str] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.computation_dtype is not None:
            return self._computed(args, kwargs)
        return self._called(*args, **kwargs)

    def _computed(self, args: Any, kwargs: Any) -> Any:
        """Calls the module in another precision: within ``precision_of``, or with converted inputs."""
        assert self.computation_dtype is not None
        way, dtype = self.computation_dtype
        if way != "inputs":
            with precision_of(way, dtype):
                return self._called(*args, **kwargs)

        def converted(each: Any) -> Any:
            return each.to(dtype) if isinstance(each, Tensor) and each.dtype.is_floating_point else each

        return self._called(*map(converted, args), **{name: converted(each) for name, each in kwargs.items()})

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        own = self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks
        if not own and not _GLOBAL_ANY:
            return self._forwarded(args, kwargs)
        run: set[int] = set()
        try:
            return self._with_hooks(args, kwargs, run)
        except BaseException:
            # Hooks that always run have no result to see, and their own errors do not hide the first one.
            for number, hook in (*_GLOBAL["forward"].items(), *self._forward_hooks.items()):
                if number not in run and (number in _GLOBAL_ALWAYS or number in self._forward_hooks_always_called):
                    with_kwargs = number in self._forward_hooks_with_kwargs
                    try:
                        hook(self, args, kwargs, None) if with_kwargs else hook(self, args, None)
                    except Exception:
                        continue
            raise

    def _with_hooks(self, args: Any, kwargs: Any, run: set[int]) -> Any:
        for number, hook in (*_GLOBAL["forward_pre"].items(), *self._forward_pre_hooks.items()):
            if number in self._forward_pre_hooks_with_kwargs:
                changed = hook(self, args, kwargs)
                if changed is not None:
                    if not isinstance(changed, tuple) or len(changed) != 2:
                        raise RuntimeError(
                            f"a forward pre-hook with kwargs must return None or (args, kwargs), got {changed!r}"
                        )
                    args, kwargs = changed
            else:
                changed = hook(self, args)
                if changed is not None:
                    args = changed if isinstance(changed, tuple) else (changed,)
        before = [*_GLOBAL["backward_pre"].values(), *self._backward_pre_hooks.values()]
        after = [*_GLOBAL["backward"].values(), *self._backward_hooks.values()]
        watch = None
        if before or after:
            args, watch = watched_inputs(self, args, before, after)
        result = self._forwarded(args, kwargs)
        for number, hook in (*_GLOBAL["forward"].items(), *self._forward_hooks.items()):
            run.add(number)
            if number in self._forward_hooks_with_kwargs:
                changed = hook(self, args, kwargs, result)
            else:
                changed = hook(self, args, result)
            result = result if changed is None else changed
        return result if watch is None else watched_outputs(watch, result)

    def _forwarded(self, args: Any, kwargs: Any) -> Any:
        """Calls ``forward``. Errors about arguments that are not tensors name the layer; user modules raise their own
        errors.
        """
        try:
            return self.forward(*args, **kwargs)
        except (AttributeError, TypeError):
            ours = type(self).forward.__module__.startswith(f"{__package__}.")
            wrong = mistake(type(self).__name__, self.forward, args, kwargs) if ours else None
            if wrong is None:
                raise
        raise wrong

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> Handle:
        """Calls ``hook(module, args, result)`` after ``forward``, or ``hook(module, args, kwargs, result)`` if
        ``with_kwargs``; its return value replaces the result unless ``None``. With ``always_call`` the hook also runs,
        with the result ``None``, if ``forward`` or another hook raises an error.
        """
        marks = (self._forward_hooks_with_kwargs, with_kwargs), (self._forward_hooks_always_called, always_call)
        return Handle(self._forward_hooks, checked(hook), *marks, prepend=prepend)

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Calls ``hook(module, args)`` before ``forward``, or ``hook(module, args, kwargs)`` if ``with_kwargs``; its
        return value replaces the arguments unless ``None``.
        """
        mark = (self._forward_pre_hooks_with_kwargs, with_kwargs)
        return Handle(self._forward_pre_hooks, checked(hook), mark, prepend=prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Calls ``hook(module, grad_input, grad_output)`` when the gradients of the module's positional arguments have
        been computed: tuples of tensors, with ``None`` for arguments that have no gradient. A tuple that it returns
        replaces the gradients of the arguments.

        >>> import neurenix as nx
        >>> layer = nx.nn.Linear(2, 1, bias=False)
        >>> handle = layer.register_full_backward_hook(lambda module, given, received: print(received[0].tolist()))
        >>> layer(nx.ones(1, 2)).sum().backward()
        [[1.0]]
        """
        return Handle(self._backward_hooks, checked(hook), prepend=prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Calls ``hook(module, grad_output)`` when the gradients of the module's results have been computed. A tuple
        that it returns replaces them.
        """
        return Handle(self._backward_pre_hooks, checked(hook), prepend=prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> Handle:
        """Same as :meth:`register_full_backward_hook`. (PyTorch's hook of this name sees the gradients of the last
        operation only.)
        """
        return self.register_full_backward_hook(hook)


def _global(kind: str, hook: Callable[..., Any], always_call: bool = False) -> Handle:
    return Handle(_GLOBAL[kind], checked(hook), (_GLOBAL_ALWAYS, always_call), (_GLOBAL_ANY, True))


def register_module_forward_pre_hook(hook: Callable[[Module, Any], Any]) -> Handle:
    """Adds a hook of all modules, as ``Module.register_forward_pre_hook`` does for one. It runs before theirs."""
    return _global("forward_pre", hook)


def register_module_forward_hook(hook: Callable[..., Any], *, always_call: bool = False) -> Handle:
    """Adds a hook of all modules, as ``Module.register_forward_hook`` does for one. It runs before theirs."""
    return _global("forward", hook, always_call)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> Handle:
    """Adds a hook of all modules, as ``Module.register_full_backward_hook`` does for one. It runs before theirs."""
    return _global("backward", hook)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> Handle:
    """Adds a hook of all modules, as ``Module.register_full_backward_pre_hook`` does for one. It runs before theirs."""
    return _global("backward_pre", hook)


def registered(kind: str, module: Module, name: str, member: Any) -> Any:
    """The parameter, buffer or submodule that becomes a member: what the hooks make of it."""
    for hook in _REGISTRATION[kind].values():
        replaced = hook(module, name, member)
        member = member if replaced is None else replaced
    return member


def register_module_parameter_registration_hook(hook: Callable[[Module, str, Any], Any]) -> Handle:
    """Calls ``hook(module, name, parameter)`` before a parameter becomes a member of any module; what it returns
    replaces the parameter, unless ``None``.
    """
    return Handle(_REGISTRATION["parameter"], checked(hook))


def register_module_buffer_registration_hook(hook: Callable[[Module, str, Any], Any]) -> Handle:
    """Calls ``hook(module, name, buffer)`` before a buffer becomes a member of any module; what it returns replaces the
    buffer, unless ``None``.
    """
    return Handle(_REGISTRATION["buffer"], checked(hook))


def register_module_module_registration_hook(hook: Callable[[Module, str, Any], Any]) -> Handle:
    """Calls ``hook(module, name, submodule)`` before a submodule becomes a member of any module; what it returns
    replaces the submodule, unless ``None``.
    """
    return Handle(_REGISTRATION["module"], checked(hook))
