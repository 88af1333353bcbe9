"""What operations with several results give, by PyTorch's names."""

from __future__ import annotations

from typing import NamedTuple

from ._engine import Tensor


class Size(int):
    """The number of elements; called, the sizes of the dimensions, or of one of them."""

    _shape: tuple[int, ...]

    def __new__(cls, count: int, shape: tuple[int, ...]) -> Size:
        self = super().__new__(cls, count)
        self._shape = shape
        return self

    def __call__(self, dim: int | None = None) -> tuple[int, ...] | int:
        return self._shape if dim is None else self._shape[dim]


class max(NamedTuple):
    values: Tensor
    indices: Tensor


class min(NamedTuple):
    values: Tensor
    indices: Tensor


class sort(NamedTuple):
    values: Tensor
    indices: Tensor


class topk(NamedTuple):
    values: Tensor
    indices: Tensor


class UniqueAll(NamedTuple):
    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    values: Tensor
    inverse_indices: Tensor


class median(NamedTuple):
    values: Tensor
    indices: Tensor


class kthvalue(NamedTuple):
    values: Tensor
    indices: Tensor


class mode(NamedTuple):
    values: Tensor
    indices: Tensor


class cummax(NamedTuple):
    values: Tensor
    indices: Tensor


class cummin(NamedTuple):
    values: Tensor
    indices: Tensor


class aminmax(NamedTuple):
    min: Tensor
    max: Tensor


class SlogdetResult(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class QRResult(NamedTuple):
    Q: Tensor
    R: Tensor


class EighResult(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class SVDResult(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor
