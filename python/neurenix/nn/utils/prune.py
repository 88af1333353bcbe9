"""Pruning: masks that set elements of parameters to zero, until :func:`remove` makes that permanent.

>>> import neurenix as nx
>>> from neurenix.nn.utils import prune
>>> layer = nx.nn.Linear(4, 1)
>>> layer.weight.data = nx.tensor([[1.0, -4.0, 3.0, -2.0]])
>>> _ = prune.l1_unstructured(layer, "weight", amount=0.5)
>>> (layer.weight != 0).tolist(), sorted(layer.state_dict())
([[False, True, True, False]], ['bias', 'weight_mask', 'weight_orig'])
>>> _ = prune.remove(layer, "weight")
>>> sorted(layer.state_dict())
['bias', 'weight']
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from ... import _engine
from ..._autograd import no_grad
from ..._engine import Tensor
from ..module import Module

M = TypeVar("M", bound=Module)


class BasePruningMethod(ABC):
    """A method of pruning: a subclass defines :meth:`compute_mask`, and ``PRUNING_TYPE``: ``"unstructured"``,
    ``"structured"`` or ``"global"``.
    """

    PRUNING_TYPE = "unstructured"
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of a tensor of importance scores: ``default_mask`` with more zeros."""

    def apply_mask(self, module: Module) -> Tensor:
        """The pruned tensor of a module."""
        mask: Tensor = getattr(module, f"{self._tensor_name}_mask")
        original: Tensor = getattr(module, f"{self._tensor_name}_orig")
        return mask.to(original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prunes a parameter: ``<name>_orig`` is the parameter, ``<name>_mask`` a buffer, and a hook computes
        ``<name>`` before each call. A parameter that is pruned already gets both masks.
        """
        old = [
            (number, hook)
            for number, hook in module._forward_pre_hooks.items()
            if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
        ]
        method = cls(*args, **kwargs)
        method._tensor_name = name
        used: BasePruningMethod = method
        if old:
            number, before = old[0]
            del module._forward_pre_hooks[number]
            used = before if isinstance(before, PruningContainer) else PruningContainer(before)
            used.add_pruning_method(method)
        original = getattr(module, name)
        if importance_scores is not None and importance_scores.shape != original.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got "
                f"{tuple(importance_scores.shape)} and {tuple(original.shape)}"
            )
        scores = original if importance_scores is None else importance_scores
        default = getattr(module, f"{name}_mask") if old else _engine.full_like(original.detach(), 1)
        with no_grad():
            mask = used.compute_mask(scores.detach(), default)
        if not old:
            delattr(module, name)
            module.register_parameter(f"{name}_orig", original)
        module.register_buffer(f"{name}_mask", mask)
        used(module, ())
        module.register_forward_pre_hook(used)
        return used

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None
    ) -> Tensor:
        """A pruned copy of a tensor."""
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        scores = t if importance_scores is None else importance_scores
        default = _engine.full_like(t.detach(), 1) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default).to(t.dtype)

    def remove(self, module: Module) -> None:
        """Makes the pruned tensor the parameter."""
        name = self._tensor_name
        if not any(hook is self for hook in module._forward_pre_hooks.values()):
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        value = self.apply_mask(module).detach()
        original: Any = getattr(module, f"{name}_orig")
        for each in (name, f"{name}_orig", f"{name}_mask"):
            if hasattr(module, each):
                delattr(module, each)
        original.data = value
        module.register_parameter(name, original)


class PruningContainer(BasePruningMethod):
    """Several methods of pruning one tensor, which follow one another."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        for method in args[0] if len(args) == 1 and isinstance(args[0], Iterable) else args:
            self._tensor_name = getattr(self, "_tensor_name", method._tensor_name)
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        """Adds a method for the same tensor."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method._tensor_name != self._tensor_name:
            raise ValueError(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to PruningContainer "
                f"{self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, index: int) -> BasePruningMethod:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of the last method, of what the earlier ones left, combined with theirs."""
        method, mask = self._pruning_methods[-1], default_mask.to(t.dtype)
        kind = method.PRUNING_TYPE
        if kind == "unstructured":
            kept = (mask == 1).reshape(-1).nonzero().reshape(-1)
            some = method.compute_mask(t.reshape(-1)[kept], mask.reshape(-1)[kept])
            flat = mask.reshape(-1).clone()
            flat[kept] = some.to(flat.dtype)
            return flat.reshape(mask.shape)
        if kind == "global":
            return method.compute_mask(t, mask)
        if kind != "structured":
            raise ValueError(f"Unrecognized PRUNING_TYPE {kind}")
        dim = int(method.dim)  # type: ignore[attr-defined]
        dim = dim if dim >= 0 else dim + t.ndim
        others = [each for each in range(t.ndim) if each != dim]
        kept = (mask.sum(others) != 0).nonzero().reshape(-1)
        part = method.compute_mask(t.index_select(dim, kept), mask.index_select(dim, kept))
        new = mask.clone()
        new[(slice(None),) * dim + (kept,)] = part.to(new.dtype)
        return new


class Identity(BasePruningMethod):
    """Prunes nothing: for the names of :func:`remove` and of masks."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _Amount(BasePruningMethod):
    def __init__(self, amount: float) -> None:
        if not isinstance(amount, numbers.Real):
            raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
        value = float(amount)
        if value < 0 or (not isinstance(amount, numbers.Integral) and value > 1.0):
            raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")
        self.amount: Any = amount

    def _count(self, size: int) -> int:
        """How many of so many are pruned."""
        if not isinstance(self.amount, numbers.Integral):
            return round(self.amount * size)
        count = int(self.amount)
        if count > size:
            raise ValueError(f"amount={count} should be smaller than the number of parameters to prune={size}")
        return count


class RandomUnstructured(_Amount):
    """Prunes a number, or a share, of elements at random."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return _without(default_mask, _engine.rand(*t.shape, device=t.device), self._count(t.numel()))


class L1Unstructured(_Amount):
    """Prunes a number, or a share, of elements: those of the least magnitude."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return _without(default_mask, t.abs(), self._count(t.numel()))


def _without(mask: Tensor, scores: Tensor, count: int) -> Tensor:
    """A mask with zeros where the scores are least."""
    if count == 0:
        return mask.clone()
    places = scores.reshape(-1).topk(count, largest=False)[1]
    flat = mask.reshape(-1).clone()
    flat[places] = 0
    return flat.reshape(mask.shape)


class _Structured(_Amount):
    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _scores(self, t: Tensor) -> Tensor:
        """One for each slice along the dimension."""
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim <= 1:
            raise ValueError(
                f"Structured pruning can only be applied to a multidimensional tensor, got {t.ndim} dimension(s)"
            )
        if not -t.ndim <= self.dim < t.ndim:
            raise IndexError(f"Invalid index {self.dim} for tensor of size {tuple(t.shape)}")
        size = t.shape[self.dim]
        kept = _without(_engine.full((size,), 1.0, dtype=t.dtype, device=t.device), self._scores(t), self._count(size))
        shape = [1] * t.ndim
        shape[self.dim] = size
        return default_mask * kept.reshape(shape).to(default_mask.dtype)


class RandomStructured(_Structured):
    """Prunes a number, or a share, of slices along a dimension, at random."""

    def _scores(self, t: Tensor) -> Tensor:
        return _engine.rand(t.shape[self.dim], device=t.device)


class LnStructured(_Structured):
    """Prunes a number, or a share, of slices along a dimension: those of the least norm of order ``n``."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        if n == "nuc":
            raise ValueError("LnStructured: the nuclear norm is not supported")
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor) -> Tensor:
        dim = self.dim if self.dim >= 0 else self.dim + t.ndim
        rows = t.permute(dim, *(each for each in range(t.ndim) if each != dim)).reshape(t.shape[dim], -1)
        return rows.norm(2.0 if self.n == "fro" else float(self.n), dim=1)


class CustomFromMask(BasePruningMethod):
    """Prunes by a mask that is given."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if tuple(default_mask.shape) != tuple(self.mask.shape):
            raise AssertionError(f"the mask has shape {tuple(self.mask.shape)}, the tensor {tuple(default_mask.shape)}")
        return default_mask * self.mask.to(default_mask.dtype).to(default_mask.device)


def identity(module: M, name: str) -> M:
    """Gives a parameter a mask of ones. Returns the module, as all functions here do."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: M, name: str, amount: float) -> M:
    """Prunes ``amount`` elements (a share, if it is a float) of a parameter at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: M, name: str, amount: float, importance_scores: Tensor | None = None) -> M:
    """Prunes the ``amount`` elements (a share, if it is a float) of a parameter that have the least magnitude, or the
    least scores.
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: M, name: str, amount: float, dim: int) -> M:
    """Prunes ``amount`` slices (a share, if it is a float) of a parameter along ``dim`` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: M, name: str, amount: float, n: float, dim: int, importance_scores: Tensor | None = None
) -> M:
    """Prunes the ``amount`` slices (a share, if it is a float) of a parameter along ``dim`` that have the least norm of
    order ``n``.
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: M, name: str, mask: Tensor) -> M:
    """Prunes a parameter by a mask of zeros and ones."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prunes several parameters, pairs of a module and a name, as one: the ``amount`` is that of all elements."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    pairs: Sequence[tuple[Module, str]] = list(parameters)
    scores_of = {} if importance_scores is None else importance_scores
    if not isinstance(scores_of, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    tensors = [getattr(module, name) for module, name in pairs]
    scores = [scores_of.get(pair, tensor).detach() for pair, tensor in zip(pairs, tensors, strict=True)]  # pyright: ignore
    masks = [
        getattr(module, f"{name}_mask", _engine.full_like(tensor.detach(), 1))
        for (module, name), tensor in zip(pairs, tensors, strict=True)
    ]
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. '
            f"Found method {pruning_method} of type {method.PRUNING_TYPE}"
        )
    flat = [_engine.cat([each.reshape(-1) for each in many]) for many in (scores, masks)]
    mask = container.compute_mask(flat[0], flat[1])
    start = 0
    for (module, name), tensor in zip(pairs, tensors, strict=True):
        custom_from_mask(module, name, mask.narrow(0, start, tensor.numel()).reshape(tensor.shape))
        start += tensor.numel()


def remove(module: M, name: str) -> M:
    """Makes a pruned tensor the parameter, without a mask."""
    for number, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[number]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Module) -> bool:
    """Whether a module, or one in it, is pruned."""
    hooks = (hook for part in module.modules() for hook in part._forward_pre_hooks.values())
    return any(isinstance(hook, BasePruningMethod) for hook in hooks)
