"""Discrete Fourier transforms, with the arguments of the Python array API standard and of PyTorch.

``axis`` and ``axes`` are PyTorch's ``dim``. ``norm`` says which transform divides by the number of elements:
``"backward"`` (the default) the inverse one, ``"forward"`` the other. With ``"ortho"`` both divide by its square root.
``n`` and ``s`` are lengths to which the input is cut or padded with zeros.

>>> import neurenix as nx
>>> nx.fft.fft(nx.tensor([1.0, 2.0, 3.0, 4.0])).real.tolist()
[10.0, -2.0, -2.0, -2.0]
>>> nx.fft.irfft(nx.fft.rfft(nx.tensor([1.0, 2.0, 3.0])), n=3).round().tolist()
[1.0, 2.0, 3.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _engine
from ._arguments import guard as _guard
from ._complex import ComplexTensor, as_complex, unwrap, wrap
from ._engine import Tensor

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft",
    "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

_Axes = int | Sequence[int] | None


def _several(numbers: Any) -> list[Any]:
    if numbers is None:
        return []
    return [numbers] if hasattr(numbers, "__index__") else list(numbers)


def _computed(name: str, x: Tensor, lengths: Any, axes: Any, norm: str | None) -> Tensor:
    """A transform by its name without dimensions."""
    lengths, axes = _several(lengths), _several(axes)
    if -1 in lengths:
        # PyTorch's length of the input.
        axes = axes or list(range(x.ndim - len(lengths), x.ndim))
        lengths = [x.shape[axis] if length == -1 else length for length, axis in zip(lengths, axes)]
    if name in ("rfft", "ihfft"):
        if isinstance(x, ComplexTensor):
            raise TypeError(f"{name}: expected real numbers, got {x.dtype.name}: use fft or ifft")
        return wrap(_engine.fourier(name, x, lengths, axes, norm))
    found = _engine.fourier(name, unwrap(as_complex(x, x)), lengths, axes, norm)
    return found if name in ("irfft", "hfft") else wrap(found)


def fft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = None, *, dim: int | None = None) -> Tensor:
    """The transform along an axis."""
    return _computed("fft", x, n, axis if dim is None else dim, norm)


def ifft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = None, *, dim: int | None = None) -> Tensor:
    """The inverse of ``fft``."""
    return _computed("ifft", x, n, axis if dim is None else dim, norm)


def rfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = None, *, dim: int | None = None) -> Tensor:
    """The first ``n // 2 + 1`` elements of the transform of real numbers; their conjugates are the others."""
    return _computed("rfft", x, n, axis if dim is None else dim, norm)


def irfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = None, *, dim: int | None = None) -> Tensor:
    """The inverse of ``rfft``. ``n`` is the length of the result, by default an even number."""
    return _computed("irfft", x, n, axis if dim is None else dim, norm)


def hfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = None, *, dim: int | None = None) -> Tensor:
    """The real transform of numbers with Hermitian symmetry, of which the first half is given."""
    return _computed("hfft", x, n, axis if dim is None else dim, norm)


def ihfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: str | None = None, *, dim: int | None = None) -> Tensor:
    """The inverse of ``hfft``."""
    return _computed("ihfft", x, n, axis if dim is None else dim, norm)


def fftn(x: Tensor, /, s: _Axes = None, axes: _Axes = None, norm: str | None = None, *, dim: _Axes = None) -> Tensor:
    """The transform over several axes, by default over all, or over the last ones if ``s`` is given."""
    return _computed("fft", x, s, axes if dim is None else dim, norm)


def ifftn(x: Tensor, /, s: _Axes = None, axes: _Axes = None, norm: str | None = None, *, dim: _Axes = None) -> Tensor:
    """The inverse of ``fftn``."""
    return _computed("ifft", x, s, axes if dim is None else dim, norm)


def rfftn(x: Tensor, /, s: _Axes = None, axes: _Axes = None, norm: str | None = None, *, dim: _Axes = None) -> Tensor:
    """The transform of real numbers over several axes; along the last of them, the first half of the elements."""
    return _computed("rfft", x, s, axes if dim is None else dim, norm)


def irfftn(x: Tensor, /, s: _Axes = None, axes: _Axes = None, norm: str | None = None, *, dim: _Axes = None) -> Tensor:
    """The inverse of ``rfftn``. ``s`` has the sizes of the result."""
    return _computed("irfft", x, s, axes if dim is None else dim, norm)


def hfftn(x: Tensor, /, s: _Axes = None, axes: _Axes = None, norm: str | None = None, *, dim: _Axes = None) -> Tensor:
    """``hfft`` over several axes."""
    return _computed("hfft", x, s, axes if dim is None else dim, norm)


def ihfftn(x: Tensor, /, s: _Axes = None, axes: _Axes = None, norm: str | None = None, *, dim: _Axes = None) -> Tensor:
    """The inverse of ``hfftn``."""
    return _computed("ihfft", x, s, axes if dim is None else dim, norm)


def fft2(x: Tensor, /, s: _Axes = None, axes: _Axes = (-2, -1), norm: str | None = None, *, dim: _Axes = None) -> Tensor:
    """``fftn`` over the last two axes."""
    return _computed("fft", x, s, axes if dim is None else dim, norm)


def ifft2(x: Tensor, /, s: _Axes = None, axes: _Axes = (-2, -1), norm: str | None = None, *, dim: _Axes = None) -> Tensor:
    """``ifftn`` over the last two axes."""
    return _computed("ifft", x, s, axes if dim is None else dim, norm)


def rfft2(x: Tensor, /, s: _Axes = None, axes: _Axes = (-2, -1), norm: str | None = None, *, dim: _Axes = None) -> Tensor:
    """``rfftn`` over the last two axes."""
    return _computed("rfft", x, s, axes if dim is None else dim, norm)


def irfft2(x: Tensor, /, s: _Axes = None, axes: _Axes = (-2, -1), norm: str | None = None, *, dim: _Axes = None) -> Tensor:
    """``irfftn`` over the last two axes."""
    return _computed("irfft", x, s, axes if dim is None else dim, norm)


def hfft2(x: Tensor, /, s: _Axes = None, axes: _Axes = (-2, -1), norm: str | None = None, *, dim: _Axes = None) -> Tensor:
    """``hfftn`` over the last two axes."""
    return _computed("hfft", x, s, axes if dim is None else dim, norm)


def ihfft2(x: Tensor, /, s: _Axes = None, axes: _Axes = (-2, -1), norm: str | None = None, *, dim: _Axes = None) -> Tensor:
    """``ihfftn`` over the last two axes."""
    return _computed("ihfft", x, s, axes if dim is None else dim, norm)


def fftfreq(n: int, /, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """The frequencies of ``fft`` for samples at distances ``d``: 0, 1, ..., then the negative ones, divided by ``n * d``.

    >>> import neurenix as nx
    >>> nx.fft.fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    if n < 1:
        raise ValueError(f"fftfreq: n is {n}, it must be at least 1")
    numbers = _engine.tensor([*range((n + 1) // 2), *range(-(n // 2), 0)], dtype=dtype or _engine.get_default_dtype(), device=device)
    found = numbers / (n * d)
    return found.requires_grad_() if requires_grad else found


def rfftfreq(n: int, /, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """The frequencies of ``rfft``.

    >>> import neurenix as nx
    >>> nx.fft.rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    if n < 1:
        raise ValueError(f"rfftfreq: n is {n}, it must be at least 1")
    found = _engine.tensor(list(range(n // 2 + 1)), dtype=dtype or _engine.get_default_dtype(), device=device) / (n * d)
    return found.requires_grad_() if requires_grad else found


def _rolled(x: Tensor, axes: Any, is_inverse: bool) -> Tensor:
    places = _several(axes) if axes is not None else list(range(x.ndim))
    if not places:
        return x.clone()
    steps = [-(x.shape[axis] // 2) if is_inverse else x.shape[axis] // 2 for axis in places]
    return x.roll(tuple(steps), tuple(places))


def fftshift(x: Tensor, /, axes: _Axes = None, *, dim: _Axes = None) -> Tensor:
    """Moves the frequency 0 to the middle of axes, by default of all."""
    return _rolled(x, axes if dim is None else dim, False)


def ifftshift(x: Tensor, /, axes: _Axes = None, *, dim: _Axes = None) -> Tensor:
    """The inverse of ``fftshift``."""
    return _rolled(x, axes if dim is None else dim, True)


_guard(globals())
