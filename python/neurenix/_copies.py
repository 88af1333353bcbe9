"""Rarer functions of PyTorch's top namespace, composed of others; ``neurenix.torch`` has them."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from . import _engine, _linear_algebra
from ._engine import Tensor
from ._engine_methods import type as _type
from ._floating import with_weak
from ._parts import _positions, _with, as_strided

_COPIED = """
as_strided detach diagonal expand permute select split split_with_sizes squeeze t transpose unbind unsqueeze view
""".split()


def _copy(name: str) -> Callable[..., Any]:
    method = getattr(Tensor, name)

    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        found = method(input, *args, **kwargs)
        return found.clone() if isinstance(found, Tensor) else tuple(part.clone() for part in found)

    function.__name__ = function.__qualname__ = f"{name}_copy"
    function.__doc__ = f"A copy of what ``{name}`` returns."
    return function


FUNCTIONS: dict[str, Callable[..., Any]] = {f"{name}_copy": _copy(name) for name in _COPIED}


def _listed(function: Callable[..., Any]) -> Callable[..., Any]:
    FUNCTIONS[function.__name__] = function
    return function


@_listed
def alias_copy(input: Tensor) -> Tensor:
    """A copy."""
    return input.clone()


@_listed
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None
) -> Tensor:
    """A copy with ``src`` at the positions that sizes and strides describe."""
    return _with(input, as_strided(_positions(input), size, stride, storage_offset), src)


@_listed
def constant_pad_nd(input: Tensor, pad: Any, value: float = 0) -> Tensor:
    """``nn.functional.pad`` with one value."""
    return input.pad(pad, value)


@_listed
def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor of the same shape and dtype, filled with ``value``."""
    return input.clone().fill_(value) if not isinstance(value, Tensor) else value.to(input.dtype).broadcast_to(input.shape).clone()


@_listed
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first ``size`` rows of ``nonzero``, or all, followed by rows of ``fill_value``."""
    rows = input.nonzero()
    count = builtins.min(rows.shape[0], size)
    return _engine.cat([rows.narrow(0, 0, count), rows.new_full((size - count, input.ndim), fill_value)], 0)


@_listed
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Numbers from Poisson distributions with these rates."""
    from .distributions._sampling import poisson as drawn

    if generator is not None:
        raise NotImplementedError("poisson: generator= is not supported; use manual_seed")
    return drawn(input.detach())


@_listed
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Numbers of successes among ``count`` trials of probability ``prob``."""
    from .distributions._sampling import binomial as drawn

    if generator is not None:
        raise NotImplementedError("binomial: generator= is not supported; use manual_seed")
    return drawn(count.detach(), prob.detach())


@_listed
def result_type(tensor1: Any, tensor2: Any) -> Any:
    """The dtype of an operation with both, which are tensors or numbers. Numbers, and tensors without dimensions
    beside others, only count if they are of a higher kind: ``bool``, integers, floats, complex numbers.
    """
    def made(x: Any) -> Tensor:
        return x if isinstance(x, Tensor) else _engine.tensor(x, device="cpu")

    def rank(x: Any) -> int:
        return 0 if not isinstance(x, Tensor) else 2 if x.ndim else 1

    first, second = made(tensor1), made(tensor2)
    if rank(tensor1) == rank(tensor2):
        return _engine.promote_types(first.dtype, second.dtype)
    strong, weak = (first, second) if rank(tensor1) > rank(tensor2) else (second, first)
    return with_weak(strong.dtype, weak.dtype)


@_listed
def svd_lowrank(A: Tensor, q: int = 6, niter: int = 2, M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The ``q`` greatest singular values of matrices (less ``M``) with their vectors, U, S and V: from a complete
    decomposition, whatever ``niter``.
    """
    u, s, vh = _linear_algebra.svd(A if M is None else A - M, False)
    count = builtins.min(q, s.shape[-1])
    return u.narrow(-1, 0, count), s.narrow(-1, 0, count), vh.narrow(-2, 0, count).mT


@_listed
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """``svd_lowrank`` of matrices whose rows are observations, less their mean with ``center``."""
    count = builtins.min(6, *A.shape[-2:]) if q is None else q
    return svd_lowrank(A - A.mean(-2, True) if center else A, count)


@_listed
def typename(obj: Any) -> str:
    """The name of an object's type: ``torch.FloatTensor`` and the like for tensors."""
    if isinstance(obj, Tensor):
        return str(_type(obj))
    kind = obj if isinstance(obj, type) else type(obj)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
