"""Linear layers with weights of which two of each four are kept."""

from __future__ import annotations

from operator import index
from typing import Any

from .. import _engine
from .._engine import Tensor
from .linear import Linear
from .module import Module

__all__ = ["SparseLinear"]

#: Places 0 and 1 of both fours of a byte.
_FIRST_PLACES = 0b0100_0100


class SparseLinear(Module):
    """A :class:`Linear` layer for inference whose weight has 2:4 sparsity: of each four neighbouring weights of an
    output two are kept, the others are zeros. (..., in_features) to (..., out_features); ``in_features`` is a multiple
    of 8.

    ``values`` (out_features, in_features / 2) has the kept weights in order, ``places`` (out_features, in_features / 8)
    of ``uint8`` two bits for each: its index among the four, the first weight's in the lowest bits. They and ``bias``
    (out_features) are buffers. :func:`neurenix.nn.utils.compress_two_of_four` makes such layers of a model.

    >>> import neurenix as nx
    >>> layer = nx.nn.Linear(8, 4)
    >>> nx.nn.utils.prune_two_of_four(layer)
    ['weight']
    >>> sparse = nx.nn.SparseLinear.from_linear(layer)
    >>> sparse.values.shape, sparse.places.shape, sparse(nx.zeros(5, 8)).shape
    (torch.Size([4, 4]), torch.Size([4, 1]), torch.Size([5, 4]))
    """

    values: Tensor
    places: Tensor
    bias: Tensor | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        in_features, out_features = index(in_features), index(out_features)
        if in_features % 8:
            raise ValueError(f"SparseLinear: in_features must be a multiple of 8, got {in_features}")
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("values", _engine.zeros(out_features, in_features // 2, dtype=dtype, device=device))
        places = _engine.full((out_features, in_features // 8), _FIRST_PLACES, dtype="uint8", device=device)
        self.register_buffer("places", places)
        self.register_buffer("bias", _engine.zeros(out_features, dtype=dtype, device=device) if bias else None)

    @classmethod
    def from_linear(cls, layer: Linear) -> SparseLinear:
        """The layer with the weight and the hooks of ``layer``, whose weight must have at most two numbers other than 0
        in each four."""
        weight = layer.weight.detach()
        values, places = _engine.compress_two_of_four(weight)
        bias = None if layer.bias is None else layer.bias.detach().clone()
        # Without what computes them, which would hold the whole weight.
        _engine.evaluate([values, places] if bias is None else [values, places, bias])
        options: dict[str, Any] = {"device": weight.device, "dtype": weight.dtype}
        sparse = cls(layer.in_features, layer.out_features, layer.bias is not None, **options)
        sparse.values, sparse.places = values, places
        if bias is not None:
            sparse.bias = bias
        for name in layer._HOOKS:
            setattr(sparse, name, getattr(layer, name).copy())
        return sparse.train(layer.training)

    def to_dense(self) -> Tensor:
        """The weight (out_features, in_features), with its zeros."""
        return _engine.decompress_two_of_four(self.values, self.places)

    def forward(self, input: Tensor) -> Tensor:
        product = _engine.matmul_sparse(_engine.with_features(input, self.in_features), self.values, self.places)
        # In the product's dtype, which autocast may have chosen.
        return product if self.bias is None else product + self.bias.to(product.dtype)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
