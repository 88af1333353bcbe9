"""Windows of ``M`` points, symmetric by default; with ``sym=False`` they are one period, for spectra: the first ``M``
of ``M + 1`` points. The formulas are those of ``torch.signal.windows``, and of SciPy without normalisation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

from .. import _engine
from .._bessel import i0
from .._engine import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser",
    "nuttall",
]  # fmt: skip


def _window(formula: Callable[..., Tensor], check: Callable[..., None] | None = None) -> Callable[..., Tensor]:
    """The function of the number of points, from a formula of all points' numbers and their count, and a check of
    ``sym`` and the formula's own arguments."""

    @functools.wraps(formula)
    def window(
        M: int, *args: Any, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
        **kwargs: Any,
    ) -> Tensor:
        kind = _engine.get_default_dtype() if dtype is None else _engine.dtype(dtype)
        if not kind.is_floating_point:
            raise ValueError(f"{formula.__name__}: expected a floating-point dtype, got {kind.name}")
        if M < 0:
            raise ValueError(f"{formula.__name__}: expected at least 0 points, got {M}")
        if check is not None:
            check(sym, *args, **kwargs)
        inner = kind if kind.name == "float64" else "float32"
        count = M if sym else M + 1
        if M <= 1:
            made = _engine.ones(M, dtype=inner, device=device)
        else:
            made = formula(_engine.arange(count, dtype=inner, device=device), count, *args, **kwargs)
        made = made.narrow(0, 0, M).to(kind)
        return made.requires_grad_() if requires_grad else made

    return window


@_window
def general_cosine(n: Tensor, count: int, a: Iterable[float]) -> Tensor:
    """``general_cosine(M, *, a)``: the sum of ``(-1) ** i * a[i] * cos(2 pi i n / (M - 1))``."""
    angle = n * (2 * math.pi / (count - 1))
    total = n * 0
    for place, factor in enumerate(a):
        total = total + (angle * place).cos() * ((-1) ** place * factor)
    return total


def general_hamming(M: int, *, alpha: float = 0.54, **options: Any) -> Tensor:
    """``alpha - (1 - alpha) * cos(2 pi n / (M - 1))``."""
    return general_cosine(M, a=(alpha, 1 - alpha), **options)


def hamming(M: int, **options: Any) -> Tensor:
    """The Hamming window, ``0.54 - 0.46 * cos(2 pi n / (M - 1))``."""
    return general_hamming(M, alpha=0.54, **options)


def hann(M: int, **options: Any) -> Tensor:
    """The Hann window, ``0.5 - 0.5 * cos(2 pi n / (M - 1))``.

    >>> import neurenix as nx
    >>> nx.signal.windows.hann(4, sym=False).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return general_hamming(M, alpha=0.5, **options)


def blackman(M: int, **options: Any) -> Tensor:
    """The Blackman window: a general cosine window of 0.42, 0.5 and 0.08."""
    return general_cosine(M, a=(0.42, 0.5, 0.08), **options)


def nuttall(M: int, **options: Any) -> Tensor:
    """The minimum 4-term Blackman-Harris window of Nuttall: a general cosine window."""
    return general_cosine(M, a=(0.3635819, 0.4891775, 0.1365995, 0.0106411), **options)


@_window
def bartlett(n: Tensor, count: int) -> Tensor:
    """The triangle from 0 to 1 to 0."""
    return 1 - (n * (2 / (count - 1)) - 1).abs()


@_window
def cosine(n: Tensor, count: int) -> Tensor:
    """``sin(pi * (n + 0.5) / M)``."""
    return ((n + 0.5) * (math.pi / count)).sin()


def _check_exponential(sym: bool, center: float | None = None, tau: float = 1.0) -> None:
    if tau <= 0:
        raise ValueError(f"exponential: tau is {tau}, it must be positive")
    if sym and center is not None:
        raise ValueError("exponential: center must be None for symmetric windows")


@functools.partial(_window, check=_check_exponential)
def exponential(n: Tensor, count: int, center: float | None = None, tau: float = 1.0) -> Tensor:
    """``exp(-abs(n - center) / tau)``; the center is that of the window by default, and can be another with
    ``sym=False``.
    """
    return (-(n - ((count - 1) / 2 if center is None else center)).abs() / tau).exp()


def _check_gaussian(sym: bool, std: float = 1.0) -> None:
    if std <= 0:
        raise ValueError(f"gaussian: std is {std}, it must be positive")


@functools.partial(_window, check=_check_gaussian)
def gaussian(n: Tensor, count: int, std: float = 1.0) -> Tensor:
    """``exp(-((n - (M - 1) / 2) / std) ** 2 / 2)``."""
    return (-(((n - (count - 1) / 2) / std).square()) / 2).exp()


def _check_kaiser(sym: bool, beta: float = 12.0) -> None:
    if beta < 0:
        raise ValueError(f"kaiser: beta is {beta}, it must not be negative")


@functools.partial(_window, check=_check_kaiser)
def kaiser(n: Tensor, count: int, beta: float = 12.0) -> Tensor:
    """``i0(beta * sqrt(1 - x * x)) / i0(beta)``, where x goes from -1 to 1."""
    x = n * (2 / (count - 1)) - 1
    return i0((1 - x.square()).clamp(min=0).sqrt() * beta) / i0(_engine.full_like(n, beta))
