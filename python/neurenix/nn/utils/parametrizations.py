"""Parametrizations that programs often use: weight, spectral and orthogonal normalisation.

>>> import neurenix as nx
>>> from neurenix.nn.utils import parametrizations
>>> layer = parametrizations.orthogonal(nx.nn.Linear(3, 3))
>>> nx.allclose(layer.weight @ layer.weight.mT, nx.eye(3), atol=1e-5)
True
"""

from __future__ import annotations

import math
from typing import Any

from ... import _engine, linalg
from ..._autograd import no_grad
from ..._engine import Tensor
from .. import conv
from ..module import Module
from ._norms import as_matrix, first_vectors, iterate, norm_except, unit
from .parametrize import register_parametrization

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Makes a weight the product of a length and a direction (Salimans and Kingma, 2016): ``g * v / ||v||``, with one
    length for each slice along ``dim``, or one for all if ``dim`` is ``None``. The parameters are
    ``parametrizations.<name>.original0`` (``g``) and ``original1`` (``v``); states with the names ``<name>_g`` and
    ``<name>_v`` can be loaded too. Returns the module.

    >>> import neurenix as nx
    >>> layer = nx.nn.utils.parametrizations.weight_norm(nx.nn.Linear(4, 2))
    >>> layer.parametrizations.weight.original0.shape
    torch.Size([2, 1])
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename(state_dict: Any, prefix: str, *rest: Any) -> None:
        old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in old):
            for number, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{number}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename)
    return module


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(f"spectral_norm: dim {dim} is out of range for a weight of {weight.ndim} dimensions")
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.dim = dim if dim >= 0 else dim + weight.ndim
        self.n_power_iterations, self.eps = n_power_iterations, eps
        if weight.ndim > 1:
            matrix = as_matrix(weight.detach(), self.dim)
            u, v = first_vectors(matrix, eps)
            self.register_buffer("_u", u)
            self.register_buffer("_v", v)
            iterate(matrix, self._u, self._v, 15, eps, u_first=True)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return unit(weight, self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            iterate(matrix.detach(), self._u, self._v, self.n_power_iterations, self.eps, u_first=True)
        # Later calls change the buffers, but not these values.
        u, v = self._u.clone(), self._v.clone()
        return weight / (u * (matrix @ v)).sum()

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divides a weight by its greatest singular value (Miyato et al., 2018), as a matrix of the slices along ``dim``:
    by default 0, and 1 for transposed convolutions. Each call in training mode improves the estimate by
    ``n_power_iterations``. Returns the module.

    >>> import neurenix as nx
    >>> layer = nx.nn.utils.parametrizations.spectral_norm(nx.nn.Linear(4, 4))
    >>> for _ in range(100):
    ...     weight = layer.weight
    >>> round(nx.linalg.svdvals(weight).max().item(), 3)
    1.0
    """
    weight = getattr(module, name)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        transposed = (conv.ConvTranspose1d, conv.ConvTranspose2d, conv.ConvTranspose3d)
        dim = 1 if isinstance(module, transposed) else 0
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


_MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        self.shape, self.orthogonal_map = tuple(weight.shape), orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        is_wide = x.shape[-2] < x.shape[-1]
        x = x.mT if is_wide else x
        rows, columns = x.shape[-2:]
        if self.orthogonal_map == "householder":
            q = _reflected(x.tril(-1)) * x.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
        else:
            x = x.tril()
            if rows != columns:
                empty = _engine.zeros((*x.shape[:-2], rows, rows - columns), dtype=x.dtype, device=x.device)
                x = _engine.cat([x, empty], -1)
            skew = x - x.mT
            if self.orthogonal_map == "matrix_exp":
                q = _exponential(skew)
            else:
                one = _engine.eye(rows, dtype=x.dtype, device=x.device)
                q = linalg.solve(one - skew * 0.5, one + skew * 0.5)
            q = q[..., :columns]
        if self._buffers.get("base") is not None:
            q = self.base @ q
        return q.mT if is_wide else q

    @no_grad()
    def right_inverse(self, q: Tensor) -> Tensor:
        if tuple(q.shape) != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {tuple(q.shape)}.")
        if "base" not in self._buffers:
            raise NotImplementedError("orthogonal: no value can be assigned with use_trivialization=False")
        shape, is_wide = q.shape, q.shape[-2] < q.shape[-1]
        matrix = q.mT if is_wide else q
        rows, columns = matrix.shape[-2:]
        if rows != columns:
            extra = _engine.randn(*matrix.shape[:-2], rows, rows - columns, dtype=q.dtype, device=q.device)
            matrix = _engine.cat([matrix, extra], -1)
        self.base = _orthogonalized(matrix)
        place = _engine.eye(shape[-2], shape[-1], dtype=q.dtype, device=q.device)
        return (-place).expand(shape).clone()


def _orthogonalized(matrix: Tensor) -> Tensor:
    """The orthogonal factor of the QR decomposition whose other factor has a positive diagonal, which leaves an
    orthogonal matrix as it is.
    """
    q, r = linalg.qr(matrix)
    return q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)


def _reflected(below: Tensor) -> Tensor:
    """The first columns of the product of Householder reflections, whose vectors are 1 on the diagonal."""
    rows, columns = below.shape[-2:]
    one = _engine.eye(rows, columns, dtype=below.dtype, device=below.device)
    vectors = below + one
    scales = 2.0 / (vectors * vectors).sum(-2, keepdim=True)
    q = one.expand(below.shape)
    for number in reversed(range(columns)):
        v = vectors[..., number : number + 1]
        q = q - scales[..., number : number + 1] * v * (v.mT @ q)
    return q


def _exponential(matrix: Tensor) -> Tensor:
    """The exponential of matrices, by its Taylor polynomial of degree 18 at a power of two of the matrix, whose norm
    is at most 1 then: what is left out is less than 1/19! of it.
    """
    norm = float(matrix.detach().abs().sum(-1).max().item()) if matrix.numel() else 0.0
    halvings = max(0, math.ceil(math.log2(norm))) if norm > 0.0 and math.isfinite(norm) else 0
    scaled = matrix * 0.5**halvings
    one = _engine.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    result = one
    for number in range(18, 0, -1):
        result = one + scaled @ result * (1.0 / number)
    for _ in range(halvings):
        result = result @ result
    return result


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Makes a matrix (or batch of matrices) orthogonal: its columns, or its rows if they are fewer. The map is
    ``"matrix_exp"`` (the default for square matrices), ``"cayley"`` or ``"householder"``. With ``use_trivialization``
    it starts at the matrix that is next to the current value. Returns the module.
    """
    weight = getattr(module, name)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    return register_parametrization(module, name, _Orthogonal(weight, orthogonal_map, use_trivialization), unsafe=True)
