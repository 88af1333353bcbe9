"""The short-time Fourier transform and its inverse."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from . import _engine
from ._complex import ComplexTensor, combined
from ._engine import Tensor

__all__ = ["istft", "stft"]


def _by_parts(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A linear function with real coefficients."""
    return combined(function(x.real), function(x.imag)) if isinstance(x, ComplexTensor) else function(x)


def _lengths(name: str, n_fft: int, hop_length: int | None, win_length: int | None) -> tuple[int, int]:
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    if not 0 < width <= n_fft:
        raise ValueError(f"{name}: win_length is {width}, it must be between 1 and n_fft, which is {n_fft}")
    if hop <= 0:
        raise ValueError(f"{name}: hop_length is {hop}, it must be greater than 0")
    return hop, width


def _window(name: str, window: Tensor | None, width: int, n_fft: int, like: Tensor) -> Tensor:
    """The window in the middle of ``n_fft`` elements."""
    if window is None:
        dtype = like.dtype.to_real() if like.dtype.is_complex else like.dtype
        window = _engine.ones(width, dtype=dtype, device=like.device)
    elif tuple(window.shape) != (width,):
        raise ValueError(f"{name}: the window has shape {tuple(window.shape)}, it must be a vector of win_length = {width} elements")
    left = (n_fft - width) // 2
    return window if width == n_fft else _by_parts(lambda part: part.pad((left, n_fft - width - left)), window)


def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The short-time Fourier transform: that of windows of ``n_fft`` elements of a signal.

    Args:
        input: a signal of shape (L,), or a batch of them: (B, L).
        n_fft: the length of a transform.
        hop_length: the distance of neighbouring windows; by default ``n_fft // 4``.
        win_length: the length of ``window``, which is padded to ``n_fft`` with zeros; by default ``n_fft``.
        window: what the elements are multiplied by; ones by default.
        center: whether ``input`` is padded by ``n_fft // 2`` on both sides, in the way of ``pad_mode``.
        normalized: whether the results are divided by the square root of ``n_fft``.
        onesided: whether only the first ``n_fft // 2 + 1`` frequencies are returned; by default for real signals and
            windows, for which the others are their conjugates.
        return_complex: must be given for real signals; without it, the parts are a last dimension.
        align_to_window: not supported.

    Returns:
        A tensor of shape (N, T) or (B, N, T): N frequencies of T windows.

    >>> import neurenix as nx
    >>> nx.stft(nx.ones(16), 4, window=nx.ones(4), return_complex=True).abs()[:, 0].tolist()
    [4.0, 0.0, 0.0]
    """
    if align_to_window is not None:
        raise NotImplementedError("stft: align_to_window is not supported")
    hop, width = _lengths("stft", n_fft, hop_length, win_length)
    if not (input.is_floating_point() or input.is_complex()) or input.ndim not in (1, 2):
        raise ValueError(f"stft: expected floats in one or two dimensions, got {input.dtype.name} of shape {tuple(input.shape)}")
    has_complex = input.is_complex() or window is not None and window.is_complex()
    if return_complex is None and not has_complex:
        raise RuntimeError("stft: return_complex must be given for real signals: return_complex=True returns complex numbers")
    if onesided is None:
        onesided = not has_complex
    elif onesided and has_complex:
        raise RuntimeError("stft: onesided results need a real signal and a real window")
    signal = input if input.ndim == 2 else input.unsqueeze(0)
    if center:
        from .nn.functional import pad

        sides = (n_fft // 2, n_fft // 2)
        signal = _by_parts(lambda part: pad(part.unsqueeze(1), sides, mode=pad_mode).squeeze(1), signal)
    if not 0 < n_fft <= signal.shape[1]:
        raise ValueError(f"stft: n_fft is {n_fft}, it must be between 1 and the length of the signal, which is {signal.shape[1]}")
    frames = _by_parts(lambda part: part.unfold(1, n_fft, hop), signal)
    frames = frames * _window("stft", window, width, n_fft, input)
    from .fft import fft, rfft

    found = (rfft if onesided else fft)(frames, norm="ortho" if normalized else None).transpose(1, 2)
    found = found if input.ndim == 2 else found.squeeze(0)
    return found if return_complex or return_complex is None else _as_parts(found)


def _as_parts(x: Tensor) -> Tensor:
    from ._complex_parts import view_as_real

    return view_as_real(x)


def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The inverse of ``stft``: the signal whose transform is closest to ``input`` (least squares; Griffin and Lim,
    "Signal estimation from modified short-time Fourier transform", 1984).

    Args:
        input: complex numbers of shape (N, T) or (B, N, T).
        length: the length of the signal; by default as much as the windows cover, without the padding of ``center``.
        return_complex: whether the signal is complex.

    The other arguments are those of ``stft``. The squares of the windows must not add up to 0 anywhere.

    >>> import neurenix as nx
    >>> x, window = nx.arange(16.0), nx.signal.windows.hann(4, sym=False)
    >>> back = nx.istft(nx.stft(x, 4, window=window, return_complex=True), 4, window=window)
    >>> nx.allclose(back, x, atol=1e-5)
    True
    """
    if not input.is_complex() or input.ndim not in (2, 3) or input.numel() == 0:
        raise ValueError(f"istft: expected complex numbers in two or three dimensions, got {input.dtype.name} of shape {tuple(input.shape)}")
    hop, width = _lengths("istft", n_fft, hop_length, win_length)
    if hop > width:
        raise ValueError(f"istft: hop_length is {hop}, it must not be greater than win_length, which is {width}")
    spectra = input if input.ndim == 3 else input.unsqueeze(0)
    onesided = spectra.shape[1] != n_fft if onesided is None else onesided
    frequencies = n_fft // 2 + 1 if onesided else n_fft
    if spectra.shape[1] != frequencies:
        raise ValueError(f"istft: expected {frequencies} frequencies for n_fft = {n_fft} and onesided={onesided}, got {spectra.shape[1]}")
    if return_complex and onesided:
        raise RuntimeError("istft: onesided frequencies give real signals: return_complex must be False")
    if not return_complex and window is not None and window.is_complex():
        raise RuntimeError("istft: a complex window gives complex signals: return_complex must be True")
    from .fft import ifft, irfft
    from .nn.functional import fold

    norm = "ortho" if normalized else None
    spectra = spectra.transpose(1, 2)
    # For a real signal, the other frequencies are taken for conjugates.
    frames = ifft(spectra, norm=norm) if return_complex else irfft(spectra[..., : n_fft // 2 + 1], n_fft, norm=norm)
    count = frames.shape[1]
    total = n_fft + hop * (count - 1)

    def added(parts: Tensor) -> Tensor:
        """The sums of windows that overlap."""
        return fold(parts.transpose(1, 2), (1, total), (1, n_fft), stride=(1, hop)).reshape(parts.shape[0], total)

    taper = _window("istft", window, width, n_fft, input)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - start
    kept = slice(start, min(end, total))
    weights = _by_parts(added, (taper * taper).expand(1, count, n_fft))[:, kept]
    if not bool((weights.abs() > 1e-11).all()):
        raise RuntimeError("istft: the squares of the windows add up to 0 somewhere: choose another window, or a smaller hop_length")
    signal = _by_parts(added, frames * taper)[:, kept] / weights
    if end > total:
        warnings.warn("istft: the windows do not cover the length, so the signal is padded with zeros", UserWarning, stacklevel=2)
        signal = _by_parts(lambda part: part.pad((0, end - total)), signal)
    return signal if input.ndim == 3 else signal.squeeze(0)
