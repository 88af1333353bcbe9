"""Random numbers. The same seed gives the same bits, integers and uniforms on every device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from . import _engine
from ._arguments import guard as _guard, guarded as _guarded
from ._complex import with_complex as _with_complex
from ._engine import (
    Generator,
    Tensor,
    get_rng_state,
    manual_seed,
    randint,
    randperm,
    set_rng_state,
)

seed = manual_seed
bernoulli = _guarded(_engine.bernoulli, "bernoulli", {"input": "Tensor"})

rand = _with_complex("rand", _engine.rand)
randn = _with_complex("randn", _engine.randn)


def permutation(x: int | Tensor, /, *, generator: Generator | None = None, device: Any = None) -> Tensor:
    """The numbers from 0 to ``x - 1`` in random order; for a tensor, its rows in random order."""
    if isinstance(x, Tensor):
        return x.index_select(0, randperm(x.shape[0], generator=generator, device=x.device))
    return randperm(x, generator=generator, device=device)


def uniform(low: float = 0.0, high: float = 1.0, size: Any = (), **options: Any) -> Tensor:
    """Uniform numbers in [low, high)."""
    return rand(size, **options) * (high - low) + low


def normal(mean: float | Tensor = 0.0, std: float | Tensor = 1.0, size: Any = None, **options: Any) -> Tensor:
    """Numbers from a normal distribution; if ``mean`` and ``std`` are tensors, they apply elementwise and set the
    shape.

    >>> import neurenix as nx
    >>> nx.normal(nx.tensor([0.0, 100.0]), nx.zeros(2)).tolist()
    [0.0, 100.0]
    """
    given = [each for each in (mean, std) if isinstance(each, Tensor)]
    if isinstance(std, (int, float)) and std < 0:
        raise ValueError(f"normal: std is {std}, it must not be negative")
    if given:
        if size is not None:
            raise TypeError("normal: size cannot be passed with tensors as mean or std")
        size = _engine.broadcast_shapes(*(tuple(each.shape) for each in given))
        options = {"dtype": given[0].dtype, "device": given[0].device, **options}
    return randn(() if size is None else size, **options) * std + mean


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, *_: Any, **__: Any) -> Iterator[None]:
    """Random numbers drawn within it do not change those that are drawn after it. ``devices`` has no effect: they
    share one state.

    >>> import neurenix as nx
    >>> nx.manual_seed(0)
    >>> with nx.random.fork_rng():
    ...     inside = nx.rand(2)
    >>> nx.rand(2).tolist() == inside.tolist()
    True
    """
    state = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if state is not None:
            set_rng_state(state)


def initial_seed() -> int:
    """The seed of the random numbers."""
    return int(get_rng_state()[0])


def rand_like(
    x: Tensor, /, *, dtype: Any = None, device: Any = None, generator: Generator | None = None, requires_grad: bool = False
) -> Tensor:
    """Uniform numbers in [0, 1), by default with the shape, dtype and device of ``x``."""
    place: dict[str, Any] = {"dtype": dtype or x.dtype, "device": device or x.device}
    return rand(tuple(x.shape), generator=generator, requires_grad=requires_grad, **place)


def randn_like(
    x: Tensor, /, *, dtype: Any = None, device: Any = None, generator: Generator | None = None, requires_grad: bool = False
) -> Tensor:
    """Numbers from the standard normal distribution, by default with the shape, dtype and device of ``x``."""
    place: dict[str, Any] = {"dtype": dtype or x.dtype, "device": device or x.device}
    return randn(tuple(x.shape), generator=generator, requires_grad=requires_grad, **place)


def multinomial(x: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None) -> Tensor:
    """Draws ``num_samples`` indices for each row, with the weights along the last axis.

    The call reads the weights to check that they are finite, non-negative and not all zero.
    """
    if x.ndim not in (1, 2):
        raise ValueError(f"multinomial: expected weights of 1 or 2 dimensions, got shape {tuple(x.shape)}")
    if num_samples < 1:
        raise ValueError(f"multinomial: num_samples is {num_samples}, it must be at least 1")
    if not x.is_floating_point():
        raise TypeError(f"multinomial: expected floating-point weights, got {x.dtype.name}")
    x = x.detach()
    if not _engine.is_recording():
        if not bool((x.isfinite() & (x >= 0)).all()):
            raise ValueError("multinomial: a weight is negative, infinite or NaN")
        if not bool((x > 0).any(-1).all()):
            raise ValueError("multinomial: the weights of a row sum to zero")
    if replacement:
        # Sums of many weights need more than 16 bits.
        sums = (x.float() if x.itemsize < 4 else x).cumsum(-1)
        draws = rand((*x.shape[:-1], num_samples), dtype="float32", device=x.device, generator=generator)
        draws = draws * sums.narrow(-1, x.shape[-1] - 1, 1)
        if x.ndim == 1:
            passed = sums._searchsorted(draws, True)
        else:
            passed = (draws.unsqueeze(-1) >= sums.unsqueeze(-2)).sum(-1)
        return passed.clamp(max=x.shape[-1] - 1)
    if bool(((x > 0).sum(-1) < num_samples).any()):
        raise ValueError(f"multinomial: {num_samples} samples without replacement require as many positive weights")
    # The smallest exponential waiting times win (Efraimidis and Spirakis, 2006).
    uniform = rand(x.shape, dtype="float32", device=x.device, generator=generator)
    # A uniform 0 must not be a waiting time of 0, which would win whatever its weight.
    waits = (-((-uniform).log1p())).clamp(min=2.0**-25)
    return (waits / x).topk(num_samples, -1, largest=False)[1]


__all__ = [
    "Generator",
    "bernoulli",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "multinomial",
    "normal",
    "permutation",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
    "seed",
    "set_rng_state",
    "uniform",
]

_guard(globals())
