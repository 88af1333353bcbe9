"""Linear layers, embeddings, and layers that change shapes."""

from __future__ import annotations

import math
from typing import Any

from .._creation import zeros
from .._engine import Tensor
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

__all__ = [
    "Bilinear",
    "CosineSimilarity",
    "Embedding",
    "EmbeddingBag",
    "Flatten",
    "Identity",
    "Linear",
    "PairwiseDistance",
    "PixelShuffle",
    "PixelUnshuffle",
    "Unflatten",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
]


def new(*sizes: int, dtype: Any = None, device: Any = None) -> Parameter:
    """A parameter of zeros, to be filled."""
    return Parameter(zeros(*sizes, dtype=dtype, device=device))


class Identity(Module):
    """Returns its input, of any shape; arguments are accepted and ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """``x @ weight.T + bias``: (..., in_features) to (..., out_features).

    ``weight`` is (out_features, in_features), ``bias`` (out_features). Unlike in PyTorch, trailing dimensions of the
    input whose product is ``in_features`` are flattened, so images need no ``Flatten``.

    >>> import neurenix as nx
    >>> layer = nx.nn.Linear(6, 4)
    >>> layer(nx.zeros(5, 6)).shape, layer(nx.zeros(5, 2, 3)).shape, layer.weight.shape
    (torch.Size([5, 4]), torch.Size([5, 4]), torch.Size([4, 6]))
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = new(out_features, in_features, dtype=dtype, device=device)
        self.register_parameter("bias", new(out_features, dtype=dtype, device=device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new values, uniform in +-1 / sqrt(in_features)."""
        bound = 1.0 / math.sqrt(self.in_features) if self.in_features else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """``x1 @ weight[k] @ x2 + bias[k]`` for each output ``k``: (..., in1_features) and (..., in2_features), equal
    except for the last dimension, to (..., out_features).

    ``weight`` is (out_features, in1_features, in2_features), ``bias`` (out_features).

    >>> import neurenix as nx
    >>> nx.nn.Bilinear(3, 2, 4)(nx.zeros(5, 3), nx.zeros(5, 2)).shape
    torch.Size([5, 4])
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = new(out_features, in1_features, in2_features, dtype=dtype, device=device)
        self.register_parameter("bias", new(out_features, dtype=dtype, device=device) if bias else None)
        for parameter in self.parameters():
            init.uniform_(parameter, -1.0 / math.sqrt(in1_features), 1.0 / math.sqrt(in1_features))

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        sizes = f"in1_features={self.in1_features}, in2_features={self.in2_features}"
        return f"{sizes}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """A table of vectors looked up by index: (...) of integers to (..., embedding_dim).

    ``weight`` is (num_embeddings, embedding_dim). The vector ``padding_idx`` is initially zero and gets no gradient.
    PyTorch's ``max_norm`` and ``scale_grad_by_freq`` are errors. ``sparse`` has no effect: gradients are dense.

    >>> import neurenix as nx
    >>> table = nx.nn.Embedding.from_pretrained(nx.Tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> table(nx.tensor([1, 0, 1])).tolist()
    [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if max_norm is not None or scale_grad_by_freq:
            raise ValueError("Embedding: max_norm and scale_grad_by_freq are not supported")
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"Embedding: padding_idx {padding_idx} is out of range for {num_embeddings} vectors")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        if _weight is None:
            self.weight = new(num_embeddings, embedding_dim, dtype=dtype, device=device)
            init.normal_(self.weight)
            if self.padding_idx is not None:
                self.weight.data[self.padding_idx] = 0.0
        elif tuple(_weight.shape) != (num_embeddings, embedding_dim):
            shapes = f"{(num_embeddings, embedding_dim)}, got {tuple(_weight.shape)}"
            raise ValueError(f"Embedding: expected vectors of shape {shapes}")
        else:
            self.weight = Parameter(_weight)
        self.weight.requires_grad = not _freeze

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """An embedding with these vectors; ``freeze`` excludes them from training."""
        if embeddings.ndim != 2:
            raise ValueError(f"from_pretrained: expected a matrix, got {embeddings.ndim} dimensions")
        count, size = embeddings.shape
        unused = (max_norm, norm_type, scale_grad_by_freq, sparse)
        return cls(count, size, padding_idx, *unused, _weight=embeddings, _freeze=freeze, device=embeddings.device)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class EmbeddingBag(Module):
    """The sum, mean or maximum of embedded indices, for each bag of them: (N, length), or (all lengths) with ``offsets``
    (N), to (N, embedding_dim).

    See :func:`neurenix.functional.embedding_bag`. PyTorch's ``max_norm`` and ``scale_grad_by_freq`` are errors.
    ``sparse`` has no effect: gradients are dense.

    >>> import neurenix as nx
    >>> bags = nx.nn.EmbeddingBag(10, 3, mode="sum")
    >>> bags(nx.tensor([[1, 2], [4, 5]])).shape, bags(nx.tensor([1, 2, 4]), nx.tensor([0, 1])).shape
    (torch.Size([2, 3]), torch.Size([2, 3]))
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if max_norm is not None or scale_grad_by_freq:
            raise ValueError("EmbeddingBag: max_norm and scale_grad_by_freq are not supported")
        if mode not in ("sum", "mean", "max"):
            raise ValueError(f'EmbeddingBag: mode is {mode!r}, it must be "sum", "mean" or "max"')
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        table = Embedding(num_embeddings, embedding_dim, padding_idx, _weight=_weight, **place)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.mode, self.include_last_offset, self.padding_idx = mode, include_last_offset, table.padding_idx
        self.weight = table.weight

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """An ``EmbeddingBag`` with these vectors; ``freeze`` excludes them from training."""
        if embeddings.ndim != 2:
            raise ValueError(f"from_pretrained: expected a matrix, got {embeddings.ndim} dimensions")
        count, size = embeddings.shape
        settings = (max_norm, norm_type, scale_grad_by_freq, mode, sparse, embeddings, include_last_offset, padding_idx)
        bags = cls(count, size, *settings, device=embeddings.device)
        bags.weight.requires_grad_(not freeze)
        return bags

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}{padding}"


class Flatten(Module):
    """Flattens the dimensions from ``start_dim`` to ``end_dim`` into one: (N, C, H, W) to (N, C * H * W).

    >>> import neurenix as nx
    >>> nx.nn.Flatten()(nx.zeros(2, 3, 4)).shape, nx.nn.Flatten(0, 1)(nx.zeros(2, 3, 4)).shape
    (torch.Size([2, 12]), torch.Size([6, 4]))
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits one dimension, given by its number, into several: (..., product of the sizes, ...) to (..., sizes, ...).

    >>> import neurenix as nx
    >>> nx.nn.Unflatten(1, (3, 4))(nx.zeros(2, 12)).shape
    torch.Size([2, 3, 4])
    """

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Upsample(Module):
    """Resizes lines (N, C, L), images (N, C, H, W) or volumes (N, C, D, H, W): ``size``, or ``scale_factor`` times as
    large. See :func:`neurenix.functional.interpolate` for the modes.

    >>> import neurenix as nx
    >>> nx.nn.Upsample(scale_factor=2)(nx.zeros(1, 3, 4, 5)).shape
    torch.Size([1, 3, 8, 10])
    """

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        settings = (self.mode, self.align_corners, self.recompute_scale_factor)
        return F.interpolate(input, self.size, self.scale_factor, *settings)

    def extra_repr(self) -> str:
        size = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{size}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Resizes images (N, C, H, W) with the nearest pixels."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Resizes images (N, C, H, W) by bilinear interpolation; corner pixels are aligned."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class PixelUnshuffle(Module):
    """Pixels (N, C, H * r, W * r) as channels (N, C * r * r, H, W)."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class PixelShuffle(Module):
    """Channels as pixels: (N, C * r * r, H, W) to (N, C, H * r, W * r) for an ``upscale_factor`` of r.

    >>> import neurenix as nx
    >>> nx.nn.PixelShuffle(2)(nx.zeros(1, 8, 3, 4)).shape
    torch.Size([1, 2, 6, 8])
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PairwiseDistance(Module):
    """The p-norm of ``x1 - x2 + eps`` over the last dimension: two tensors (N, D), or (D), to (N), or (). With
    ``keepdim`` (N, 1).

    >>> import neurenix as nx
    >>> round(nx.nn.PairwiseDistance()(nx.Tensor([[0.0, 0.0]]), nx.Tensor([[3.0, 4.0]])).item(), 4)
    5.0
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along ``dim``, ``x1 . x2 / (max(|x1|, eps) * max(|x2|, eps))``: two tensors
    of shapes that broadcast to that shape without ``dim``.

    >>> import neurenix as nx
    >>> round(nx.nn.CosineSimilarity()(nx.Tensor([[2.0, 0.0]]), nx.Tensor([[3.0, 0.0]])).item(), 4)
    1.0
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
