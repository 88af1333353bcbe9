"""Methods of the engine's tensors, with cases of PyTorch that the engine refuses: each calls the engine's method
first.
"""

from __future__ import annotations

import builtins
from typing import Any

from . import _engine
from ._engine import Tensor
from ._floating import common_dtype, floating, store

METHODS = [
    "add", "add_", "clamp", "clip", "div_", "gather", "index_add", "log10", "masked_fill", "masked_scatter", "nonzero", "norm", "repeat_interleave", "scatter",
    "scatter_add", "scatter_reduce", "sign", "square", "sub", "sub_", "type",
]  # fmt: skip

_add_, _sub_, _div_, _clamp = Tensor.add_, Tensor.sub_, Tensor.div_, Tensor.clamp
_add, _sub, _gather, _index_add = Tensor.add, Tensor.sub, Tensor.gather, Tensor.index_add
_masked_fill, _nonzero, _norm = Tensor.masked_fill, Tensor.nonzero, Tensor.norm
_repeat_interleave, _scatter, _scatter_add, _scatter_reduce = (
    Tensor.repeat_interleave, Tensor.scatter, Tensor.scatter_add, Tensor.scatter_reduce,
)  # fmt: skip
_log10, _sign, _square, _type = Tensor.log10, Tensor.sign, Tensor.square, Tensor.type

KINDS = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool",
}  # fmt: skip
"""The dtypes by PyTorch's names of types of tensors, without ``Tensor``."""


def scaled(x: Any, alpha: float, beside: Any = None) -> Any:
    """``alpha * x``; ``bool`` stays so."""
    if isinstance(x, Tensor) and x.dtype.name == "bool" and isinstance(alpha, bool):
        return x & alpha
    if isinstance(alpha, float) and isinstance(x, Tensor) and not (x.is_floating_point() or getattr(beside, "is_floating_point", bool)()):
        raise TypeError("for integers, alpha must not be a floating-point number")
    return x * alpha


def _arranged(other: Any, old: Any, alpha: Any) -> tuple[Any, Any]:
    """``other`` and ``alpha``, from PyTorch's older order too, in which the factor is first: ``x.add(alpha, other)``."""
    if old is None:
        return other, alpha
    if isinstance(other, Tensor) or alpha != 1:
        raise TypeError("expected a tensor or a number, and alpha by name")
    return old, other


def add(self: Tensor, other: Any, old: Any = None, *, alpha: float = 1) -> Tensor:
    """``self + alpha * other``."""
    other, alpha = _arranged(other, old, alpha)
    return _add(self, other) if alpha == 1 else _add(self, scaled(other, alpha, self))


def add_(self: Tensor, other: Any, old: Any = None, *, alpha: float = 1) -> Tensor:
    """Adds ``alpha * other``, in place."""
    other, alpha = _arranged(other, old, alpha)
    return _add_(self, other) if alpha == 1 else _add_(self, other, alpha)


def sub(self: Tensor, other: Any, old: Any = None, *, alpha: float = 1) -> Tensor:
    """``self - alpha * other``."""
    other, alpha = _arranged(other, old, alpha)
    return _sub(self, other) if alpha == 1 else _sub(self, scaled(other, alpha, self))


def sub_(self: Tensor, other: Any, old: Any = None, *, alpha: float = 1) -> Tensor:
    """Subtracts ``alpha * other``, in place."""
    other, alpha = _arranged(other, old, alpha)
    return _sub_(self, other) if alpha == 1 else _sub_(self, other, alpha)


def div_(self: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """Divides by ``other``, in place; ``rounding_mode`` is that of ``div``."""
    if rounding_mode is None:
        return _div_(self, other)
    return store(self, self.div(other, rounding_mode))


def clamp(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Elements below ``min`` become ``min``, and elements above ``max`` become ``max``: numbers or tensors."""
    bounds = [bound for bound in (min, max) if isinstance(bound, Tensor)]
    if bounds:
        kind = common_dtype(self, *bounds)
        self = self.to(kind)
        min, max = (bound.to(kind) if isinstance(bound, Tensor) else bound for bound in (min, max))
    return _clamp(self, min, max)


clip = clamp


def log10(self: Tensor) -> Tensor:
    """The logarithm to base 10 of each element."""
    return _log10(floating(self))


def sign(self: Tensor) -> Tensor:
    """The sign of each element: -1, 0 or 1."""
    return self.clone() if self.dtype.name == "bool" else _sign(self)


def square(self: Tensor) -> Tensor:
    """Each element times itself."""
    return _square(self.long() if self.dtype.name == "bool" else self)


# Selection.
def gather(self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """``out[i][j] = self[index[i][j]][j]`` for ``dim`` 0, and so on; ``sparse_grad`` is a hint without effect."""
    if self.ndim == 0:
        return _gather(self.reshape(1), dim, index.reshape(-1)).reshape(index.shape)
    try:
        return _gather(self, dim, index)
    except ValueError:
        if index.numel():
            raise
        # PyTorch does not compare the shape of an empty index.
        return self.flatten().narrow(0, 0, 0).reshape(index.shape)


def _fitting(self: Tensor, mask: Tensor) -> Tensor:
    """The tensor broadcast to the shape that it has with the mask."""
    return self.broadcast_to(_engine.broadcast_shapes(self.shape, mask.shape))


def masked_fill(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """A copy with ``value`` where ``mask`` is true, of the shape of both broadcast together."""
    try:
        return _masked_fill(self, mask, value)
    except ValueError:
        return _masked_fill(_fitting(self, mask), mask, value)


def masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy with the elements of ``source``, in order, where ``mask`` is true, of the shape of both broadcast
    together.
    """
    try:
        return _engine.masked_scatter(self, mask, source)
    except ValueError:
        return _engine.masked_scatter(_fitting(self, mask), mask, source)


def nonzero(self: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not zero: a matrix with one row each, or with ``as_tuple`` one vector per
    dimension.
    """
    return _nonzero(self.reshape(1) if as_tuple and self.ndim == 0 else self, as_tuple=as_tuple)


def index_add(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """A copy with the slices of ``source``, times ``alpha``, added to the positions ``index`` along ``dim``; for
    ``bool``, added means "or".
    """
    source = source if alpha == 1 else scaled(source, alpha, self)
    if self.dtype.name == "bool":
        return _index_add(self.int(), dim, index, source.int()) != 0
    return _index_add(self, dim, index, source)


def scatter(
    self: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """A copy with ``src``, or one ``value``, written to the positions ``index`` along ``dim``; ``reduce`` adds it there
    (``"add"``) or multiplies (``"multiply"``).
    """
    if reduce is None or self.dtype.name != "bool":
        return _scatter(self, dim, index, src, value=value, reduce=reduce)
    source = src.int() if isinstance(src, Tensor) else src
    return _scatter(self.int(), dim, index, source, value=value, reduce=reduce) != 0


def scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with ``src`` added to the positions ``index`` along ``dim``; for ``bool``, added means "or"."""
    if self.dtype.name == "bool":
        return _scatter_add(self.int(), dim, index, src.int()) != 0
    return _scatter_add(self, dim, index, src)


def scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy in which elements of ``src`` are combined at the positions ``index`` along ``dim``: by ``"sum"``,
    ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``. Without ``include_self`` the previous elements at these
    positions are ignored.
    """
    if self.dtype.name == "bool":
        return _scatter_reduce(self.int(), dim, index, src.int(), reduce, include_self=include_self) != 0
    return _scatter_reduce(self, dim, index, src, reduce, include_self=include_self)


def repeat_interleave(
    self: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element repeated, along ``dim`` or of the flattened tensor: equally often, or as often as the element of
    the tensor ``repeats``. Without ``repeats`` the tensor itself holds numbers, and the result the indices of its
    elements, repeated so often. ``output_size`` is a hint without effect.
    """
    from ._manipulation import repeat

    if repeats is None:
        return repeat(_engine.arange(self.numel(), device=self.device), self)
    return repeat(self, repeats, dim) if isinstance(repeats, Tensor) else _repeat_interleave(self, repeats, dim)


def norm(
    self: Tensor, p: Any = "fro", dim: Any = None, keepdim: builtins.bool = False, dtype: Any = None, *, axis: Any = None,
    keepdims: builtins.bool = False,
) -> Tensor:
    """The ``p``-norm over dimensions, by default over all; ``"nuc"`` is the sum of the singular values of matrices."""
    dim, keepdim = axis if dim is None else dim, keepdim or keepdims
    x = self if dtype is None else self.to(dtype)
    if p == "nuc":
        from .linalg import matrix_norm

        return matrix_norm(x, "nuc", (-2, -1) if dim is None else dim, keepdim)
    return _norm(x, p, dim, keepdim)


def type(self: Tensor, dtype: Any = None, non_blocking: builtins.bool = False) -> Any:
    """Converted to a dtype, which may also be given as ``"torch.FloatTensor"`` or that type; without one, the name of
    this type.
    """
    if dtype is None:
        kind = next((kind for kind, name in KINDS.items() if name == self.dtype.name), self.dtype.name)
        return f"torch.{'' if self.device.type == 'cpu' else f'{self.device.type}.'}{kind}Tensor"
    if isinstance(dtype, str) and dtype.endswith("Tensor"):
        dtype = KINDS[dtype.rpartition(".")[2].removesuffix("Tensor")]
    return _type(self, getattr(dtype, "dtype", dtype))
