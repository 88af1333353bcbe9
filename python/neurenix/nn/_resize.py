"""Resizing of lines, images and volumes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import _engine
from .._engine import Tensor
from ._windows import Sizes, each, require_dims

_ONE = "interpolate: pass either size or scale_factor"


def interpolate(
    input: Tensor,
    size: Sizes | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resizes lines, images or volumes (N, C, ...); ``mode`` is ``"nearest"``, ``"nearest-exact"``, ``"linear"``,
    ``"bilinear"``, ``"bicubic"``, ``"trilinear"`` or ``"area"``.
    """
    if antialias:
        raise NotImplementedError("interpolate: antialias=True is not supported")
    require_dims("interpolate", input, 3, 5)
    dims = input.ndim - 2
    wanted = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}.get(mode, dims)
    if wanted != dims:
        raise ValueError(f"interpolate: mode {mode!r} requires an input of {wanted + 2} dimensions, got shape {tuple(input.shape)}")
    factors = None if scale_factor is None else _factors(scale_factor, dims)
    if factors is not None and size is None and (recompute_scale_factor or mode == "area"):
        size, factors = tuple(math.floor(was * by) for was, by in zip(input.shape[2:], factors)), None
    if mode == "area":
        if size is None or factors is not None:
            raise ValueError(_ONE)
        sizes = list(each(size, dims, "size"))
        pools = (_engine.adaptive_avg_pool1d, _engine.adaptive_avg_pool2d, _engine.adaptive_avg_pool3d)
        return pools[dims - 1](input, sizes)
    if mode == "nearest-exact":
        return _nearest_exact(input, size, factors)
    if mode == "bicubic":
        return _bicubic(input, size, factors, bool(align_corners))
    if factors is not None and len(set(factors)) > 1:
        if size is not None:
            raise ValueError(_ONE)
        # One dimension after the other, each resized as lines.
        line = "linear" if mode in ("bilinear", "trilinear") else mode
        for dim, by in enumerate(factors, 2):
            moved = input.movedim(dim, -1)
            lines = _engine.interpolate(moved.reshape(-1, 1, moved.shape[-1]), None, by, line, bool(align_corners))
            input = lines.reshape(*moved.shape[:-1], lines.shape[-1]).movedim(-1, dim)
        return input
    return _engine.interpolate(input, size, None if factors is None else factors[0], mode, bool(align_corners))


def _factors(scale_factor: float | Sequence[float], dims: int) -> list[float]:
    """A factor for each dimension."""
    factors = [float(by) for by in scale_factor] if isinstance(scale_factor, Sequence) else [float(scale_factor)] * dims
    if len(factors) != dims:
        raise ValueError(f"interpolate: {len(factors)} factors for {dims} dimensions")
    if any(not (math.isfinite(by) and by > 0) for by in factors):
        raise ValueError(f"interpolate: scale_factor is {scale_factor}, factors must be positive")
    return factors


def _sizes(old: tuple[int, ...], size: Sizes | None, factors: list[float] | None) -> list[int]:
    """The new sizes, given directly or by factors."""
    if factors is not None and size is None:
        new = [math.floor(was * by) for was, by in zip(old, factors)]
    elif factors is None and size is not None:
        new = list(each(size, len(old), "size"))
    else:
        raise ValueError(_ONE)
    if min((*old, *new), default=0) < 1:
        raise ValueError(f"interpolate: cannot resize {tuple(old)} to {tuple(new)}: none of these dimensions may be empty")
    return new


def _nearest_exact(input: Tensor, size: Sizes | None, factors: list[float] | None) -> Tensor:
    """The samples nearest to the centres of the new positions."""
    old = input.shape[2:]
    sizes = _sizes(old, size, factors)
    if factors is None:
        places = [[(2 * place + 1) * was // (2 * new) for place in range(new)] for was, new in zip(old, sizes)]
    else:
        places = [[int((place + 0.5) / by) for place in range(new)] for new, by in zip(sizes, factors)]
    for dim, (was, chosen) in enumerate(zip(old, places), 2):
        index = _engine.tensor([min(place, was - 1) for place in chosen], dtype="int64", device=input.device)
        input = input.index_select(dim, index)
    return input


def _cubic(distance: float) -> float:
    """The weight of a sample by cubic convolution (Keys, 1981), with PyTorch's slope."""
    slope, x = -0.75, abs(distance)
    if x <= 1:
        return ((slope + 2) * x - (slope + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * slope if x < 2 else 0.0


def _bicubic(input: Tensor, size: Sizes | None, factors: list[float] | None, align_corners: bool) -> Tensor:
    """Interpolates between four samples in each direction; beyond the border, border samples are repeated."""
    old = input.shape[2:]
    sizes = _sizes(old, size, factors)
    steps = [was / new for was, new in zip(old, sizes)] if factors is None else [1 / by for by in factors]
    wide = input if input.dtype.name == "float64" else input.float()
    for dim, (was, new, step) in enumerate(zip(old, sizes, steps), 2):
        apart = (was - 1) / (new - 1) if new > 1 else 0.0
        places = [place * apart if align_corners else (place + 0.5) * step - 0.5 for place in range(new)]
        parts = []
        for tap in (-1, 0, 1, 2):
            near = [math.floor(place) + tap for place in places]
            index = _engine.tensor([min(max(at, 0), was - 1) for at in near], dtype="int64", device=wide.device)
            weights = [_cubic(place - at) for place, at in zip(places, near)]
            weight = _engine.tensor(weights, dtype=wide.dtype, device=wide.device)
            parts.append(wide.index_select(dim, index) * weight.reshape(-1, *[1] * (input.ndim - 1 - dim)))
        wide = parts[0] + parts[1] + parts[2] + parts[3]
    return wide.to(input.dtype)
