"""Gradients as functions, and gradient modes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from . import _engine
from ._complex import ComplexTensor, as_pair, unwrap, wrapped_like
from ._creation import zeros_like
from ._engine import Tensor


class _Mode:
    """A gradient mode: a context manager and a decorator."""

    def __init__(self, enabled: bool | None) -> None:
        # None: unchanged.
        self._enabled = enabled
        self._entered: list[Any] = []

    def __enter__(self) -> None:
        mode = _engine.GradientMode(_engine.is_grad_enabled() if self._enabled is None else self._enabled)
        mode.__enter__()
        self._entered.append(mode)

    def __exit__(self, *error: object) -> None:
        self._entered.pop().__exit__(*error)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with _Mode(self._enabled):
                return function(*args, **kwargs)

        return wrapped


class _PlainMode(_Mode):
    """A mode without settings: a decorator with or without parentheses."""

    _always: bool

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        return super().__new__(cls) if function is None else _Mode(cls._always)(function)

    def __init__(self) -> None:
        super().__init__(self._always)


class no_grad(_PlainMode):
    """Disables gradient recording: ``with nx.no_grad():``, ``@nx.no_grad()`` or ``@nx.no_grad``."""

    _always = False


class enable_grad(_PlainMode):
    """Enables gradient recording again."""

    _always = True


class inference_mode(_Mode):
    """Same as ``no_grad``; ``inference_mode(False)`` has no effect."""

    def __new__(cls, mode: Any = True) -> Any:
        return _Mode(False)(mode) if callable(mode) else super().__new__(cls)

    def __init__(self, mode: bool = True) -> None:
        super().__init__(False if mode else None)


class set_grad_enabled(_Mode):
    """Enables gradient recording if ``mode`` is true, else disables it. A plain call changes the mode of this thread until the next change."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)
        # As in PyTorch, the call itself sets the mode, and leaving a block restores the previous one.
        self._former = _engine.is_grad_enabled()
        _engine.switch_gradients(mode)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        _engine.switch_gradients(self._former)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        _engine.switch_gradients(self._former)
        return super().__call__(function)


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Returns a function that computes the value of ``function`` and its gradient with respect to the arguments
    ``argnums``.

    With ``has_aux``, the function returns a pair; only its first element is differentiated.

    >>> import neurenix as nx
    >>> value, gradient = nx.value_and_grad(lambda x: (x * x).sum())(nx.Tensor([1.0, 2.0]))
    >>> value.item(), gradient.tolist()
    (5.0, [2.0, 4.0])
    """
    numbers = _numbers("grad", function, argnums)

    @functools.wraps(function)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, inputs, attached, aux = _called("grad", function, numbers, args, kwargs, has_aux)
        gradients = _gradients(value, inputs)
        if not attached:
            value, gradients = value.detach(), [each.detach() for each in gradients]
        gradient = gradients[0] if isinstance(argnums, int) else tuple(gradients)
        return ((value, aux), gradient) if has_aux else (value, gradient)

    return differentiated


def _numbers(name: str, function: Any, argnums: int | Sequence[int]) -> list[int]:
    """The indices of the arguments to differentiate with respect to."""
    if not callable(function):
        raise TypeError(f"{name}: expected a function, got {type(function).__name__}")
    return [argnums] if isinstance(argnums, int) else list(argnums)


def _called(
    name: str,
    function: Callable[..., Any],
    numbers: Sequence[int],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    has_aux: bool = False,
) -> tuple[Tensor, list[Tensor], bool, Any]:
    """The value of a function, the variables that replaced these arguments, whether gradients are also collected
    elsewhere (the results must then be differentiable), and the auxiliary output."""
    for number in numbers:
        if not -len(args) <= number < len(args):
            raise ValueError(f"{name}: no argument {number}: the call has {len(args)} positional arguments")
        if not isinstance(args[number], Tensor):
            kind = type(args[number]).__name__
            raise TypeError(
                f"{name}: argument {number}: expected a tensor, got {kind}: convert it with nx.asarray(x) or nx.Tensor(x)"
            )
    variables = list(args)
    with enable_grad():
        for number in numbers:
            variables[number] = wrapped_like(args[number], _engine.as_variable(unwrap(args[number])))
        result = function(*variables, **kwargs)
    value, aux = result if has_aux else (result, None)
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: the function must return a tensor, got {type(value).__name__}")
    fresh = [variables[number] for number in numbers if not _requires_grad(args[number])]
    attached = _engine.depends_on_others(unwrap(value), [unwrap(each) for each in fresh])
    return value, [variables[number] for number in numbers], attached, aux


def _requires_grad(argument: Any) -> bool:
    return isinstance(argument, Tensor) and argument.requires_grad


def _gradients(value: Tensor, variables: list[Tensor], grad_output: Tensor | None = None) -> list[Tensor]:
    """Differentiable gradients; zeros where the value does not depend on a variable."""
    if not value.requires_grad:
        return [zeros_like(variable.detach()) for variable in variables]
    return _found(value, variables, grad_output, True)


def _found(value: Tensor, variables: list[Tensor], grad_output: Tensor | None, create_graph: bool) -> list[Tensor]:
    """Gradients, of complex tensors with respect to their pairs."""
    if isinstance(value, ComplexTensor):
        if grad_output is None:
            raise RuntimeError("grad: the value is complex, so the gradient of a loss must be given: grad_outputs=")
        grad_output = as_pair(grad_output, value)
    found = _engine.gradients(unwrap(value), [unwrap(each) for each in variables], grad_output, create_graph)
    return [wrapped_like(variable, each) for variable, each in zip(variables, found)]


def grad(
    function: Any,
    argnums: Any = 0,
    grad_outputs: Any = None,
    *,
    has_aux: bool = False,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
) -> Any:
    """Returns the gradient function of ``function``; or, given tensors as in PyTorch, the gradients themselves.

    ``nx.grad(f)(x)`` is the gradient of the scalar ``f(x)``. ``nx.grad(loss, [w, b])`` returns the gradients of a
    tensor; unused inputs get zeros, even with ``allow_unused``. The graph is always kept: ``retain_graph`` has no
    effect.

    >>> import neurenix as nx
    >>> nx.grad(lambda x: x ** 3)(nx.Tensor(2.0)).item()
    12.0
    >>> nx.grad(nx.grad(lambda x: x ** 3))(nx.Tensor(2.0)).item()
    12.0
    """
    if isinstance(function, Tensor):
        inputs = [argnums] if isinstance(argnums, Tensor) else list(argnums)
        return tuple(_found(function, inputs, grad_outputs, create_graph))
    both = value_and_grad(function, argnums, has_aux)

    @functools.wraps(function)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return gradient


def jacobian(function: Callable[..., Tensor], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """Returns a function that computes the Jacobian, of shape (output..., input...), or a tuple of Jacobians for
    several arguments.

    >>> import neurenix as nx
    >>> nx.jacobian(lambda x: x * x)(nx.Tensor([1.0, 3.0])).tolist()
    [[2.0, 0.0], [0.0, 6.0]]
    """
    numbers = _numbers("jacobian", function, argnums)

    @functools.wraps(function)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        value, inputs, attached, _ = _called("jacobian", function, numbers, args, kwargs)
        if any(isinstance(each, ComplexTensor) for each in (value, *inputs)):
            raise TypeError("jacobian: complex numbers are not supported: differentiate their parts")
        size = value.numel()
        basis = _engine.eye(size, dtype=value.dtype, device=value.device)
        rows = [_gradients(value, inputs, basis[i].reshape(value.shape)) for i in range(size)]
        tables = []
        for place, variable in enumerate(inputs):
            shape = tuple(value.shape) + tuple(variable.shape)
            if rows:
                table = _engine.stack([row[place] for row in rows]).reshape(shape)
            else:
                table = _engine.zeros(shape, dtype=value.dtype, device=value.device)
            tables.append(table if attached else table.detach())
        return tables[0] if isinstance(argnums, int) else tuple(tables)

    return differentiated


def hessian(function: Callable[..., Tensor], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """Returns a function that computes the second derivatives of a scalar function, of shape (input..., input...). For
    several arguments, it returns a tuple of tuples; the outer index is the argument of the first derivative.

    >>> import neurenix as nx
    >>> nx.hessian(lambda x: (x ** 3).sum())(nx.Tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    if isinstance(argnums, int):
        return jacobian(grad(function, argnums), argnums)
    rows = [jacobian(grad(function, number), argnums) for number in argnums]

    @functools.wraps(function)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        return tuple(row(*args, **kwargs) for row in rows)

    return differentiated
