"""Weight and spectral normalisation by a hook that computes the weight before each call, as in older programs. Use
:mod:`neurenix.nn.utils.parametrizations` in new ones.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ..._engine import Tensor
from .. import conv
from ..module import Module
from ..parameter import Parameter
from ._norms import as_matrix, first_vectors, iterate, norm_except

M = TypeVar("M", bound=Module)


class _Norm:
    """A hook that computes a tensor of a module before each call."""

    def __init__(self, name: str) -> None:
        self.name = name

    def compute_weight(self, module: Module) -> Tensor:
        """The tensor."""
        raise NotImplementedError

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def _add(module: Module, norm: _Norm) -> None:
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, type(norm)) and hook.name == norm.name:
            raise RuntimeError(f"Cannot register two hooks of {type(norm).__name__} on the same parameter {norm.name}")
    module.register_forward_pre_hook(norm)


def _take(module: Module, kind: type[_Norm], name: str, what: str) -> Any:
    """Removes a hook."""
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and hook.name == name:
            del module._forward_pre_hooks[number]
            return hook
    raise ValueError(f"{what} of '{name}' not found in {module}")


class WeightNorm(_Norm):
    """``g * v / ||v||``."""

    def __init__(self, name: str, dim: int | None) -> None:
        super().__init__(name)
        self.dim = dim

    def compute_weight(self, module: Module) -> Tensor:
        v: Tensor = getattr(module, f"{self.name}_v")
        return v * (getattr(module, f"{self.name}_g") / norm_except(v, self.dim))


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Replaces a weight by its length ``<name>_g`` and direction ``<name>_v``, from which a hook computes it before
    each call: see :func:`neurenix.nn.utils.parametrizations.weight_norm`, which new programs use. Returns the module.

    >>> import neurenix as nx
    >>> layer = nx.nn.utils.weight_norm(nx.nn.Linear(4, 2))
    >>> sorted(name for name, _ in layer.named_parameters())
    ['bias', 'weight_g', 'weight_v']
    """
    norm = WeightNorm(name, dim)
    _add(module, norm)
    weight = getattr(module, name)
    delattr(module, name)
    module.register_parameter(f"{name}_g", Parameter(norm_except(weight.detach(), dim)))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    norm(module, ())
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Makes the weight a parameter again, with its current value. Returns the module."""
    norm = _take(module, WeightNorm, name, "weight_norm")
    weight = norm.compute_weight(module).detach()
    for each in (name, f"{name}_g", f"{name}_v"):
        delattr(module, each)
    module.register_parameter(name, Parameter(weight))
    return module


class SpectralNorm(_Norm):
    """A weight divided by its greatest singular value."""

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        super().__init__(name)
        self.n_power_iterations, self.dim, self.eps = n_power_iterations, dim, eps

    def compute_weight(self, module: Module, iterates: bool | None = None) -> Tensor:
        weight: Tensor = getattr(module, f"{self.name}_orig")
        u, v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        matrix = as_matrix(weight, self.dim)
        if module.training if iterates is None else iterates:
            iterate(matrix.detach(), u, v, self.n_power_iterations, self.eps, u_first=False)
            # Later calls change the buffers, but not these values.
            u, v = u.clone(), v.clone()
        return weight / (u * (matrix @ v)).sum()


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Replaces a weight by ``<name>_orig``, which a hook divides by its greatest singular value before each call: see
    :func:`neurenix.nn.utils.parametrizations.spectral_norm`, which new programs use. Returns the module.
    """
    if dim is None:
        transposed = (conv.ConvTranspose1d, conv.ConvTranspose2d, conv.ConvTranspose3d)
        dim = 1 if isinstance(module, transposed) else 0
    norm = SpectralNorm(name, n_power_iterations, dim, eps)
    _add(module, norm)
    weight = getattr(module, name)
    u, v = first_vectors(as_matrix(weight.detach(), dim), eps)
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    setattr(module, name, weight.detach())
    module.register_buffer(f"{name}_u", u)
    module.register_buffer(f"{name}_v", v)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Makes the weight a parameter again, with its current value. Returns the module."""
    norm = _take(module, SpectralNorm, name, "spectral_norm")
    weight = norm.compute_weight(module, iterates=False).detach()
    for each in (name, f"{name}_u", f"{name}_v", f"{name}_orig"):
        delattr(module, each)
    module.register_parameter(name, Parameter(weight))
    return module
