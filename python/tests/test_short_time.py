"""The short-time Fourier transform. Expected numbers are PyTorch's (2.15), or follow from the definition."""

from __future__ import annotations

import itertools
import math
from typing import Any

import neurenix as nx
import numpy as np
import pytest

SIGNAL = [1.0, -2.0, 3.0, 0.5, 0.0, 4.0, -1.0, 2.0]
WINDOW = [0.5, 1.0, 0.5]
SPECTRUM = [
    [0, 0, 2, 3.5, 1],
    [1 + 2j, -1 + 2j, 1.5 - 0.5j, 0.5 - 4j, -2j],
    [4, 4, 1, -4.5, -3],
]


def test_the_numbers_of_pytorch() -> None:
    x, window = nx.tensor(SIGNAL, requires_grad=True), nx.tensor(WINDOW)
    found = nx.stft(x, 4, 2, 3, window, return_complex=True)
    np.testing.assert_allclose(found.detach().numpy(), SPECTRUM, atol=1e-5)
    found.abs().square().sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), [6.0, -24.0, 14.5, 3.0, 1.0, 24.0, -5.5, 12.0], atol=1e-5)


def test_the_inverse_has_the_numbers_of_pytorch() -> None:
    z = nx.tensor([[1, 2, 3], [1j, 2 - 1j, 0.5], [2, -1, 1]], requires_grad=True)
    window = nx.tensor(WINDOW)
    y = nx.istft(z, 4, 2, 3, window)
    np.testing.assert_allclose(y.detach().numpy(), [2.0, 1.25, 0.5, 0.5], atol=1e-6)
    (y * nx.arange(1.0, 5.0)).sum().backward()
    expected = [[0.25, 1.5, 1.75], [-0.5, -1 - 1j, 1.5 - 2j], [0.25, 0.5, -0.25]]
    np.testing.assert_allclose(z.grad.numpy(), expected, atol=1e-6)  # type: ignore[union-attr]


def defined(x: Any, n_fft: int, hop: int, window: Any, onesided: bool) -> Any:
    """The definition: the sum over m of window[m] x[t hop + m] exp(-2 pi i w m / n_fft), for frequency w and time t."""
    times = range((len(x) - n_fft) // hop + 1)
    angles = np.outer(np.arange(n_fft // 2 + 1 if onesided else n_fft), np.arange(n_fft)) / n_fft
    return np.stack([np.exp(-2j * np.pi * angles) @ (window * x[t * hop : t * hop + n_fft]) for t in times], 1)


@pytest.mark.parametrize(("n_fft", "hop", "is_complex"), list(itertools.product([7, 8], [1, 3], [False, True])))
def test_the_definition(n_fft: int, hop: int, is_complex: bool) -> None:
    numbers = np.random.default_rng(0)
    x = numbers.normal(size=29) + (1j * numbers.normal(size=29) if is_complex else 0)
    window = numbers.uniform(0.5, 1, n_fft)
    for onesided in [False] if is_complex else [False, True]:
        given = nx.asarray(x), n_fft, hop, None, nx.asarray(window)
        found = nx.stft(*given, center=False, onesided=onesided, return_complex=True)
        np.testing.assert_allclose(found.numpy(), defined(x, n_fft, hop, window, onesided), atol=1e-12)
        normalized = nx.stft(*given, center=False, onesided=onesided, return_complex=True, normalized=True)
        np.testing.assert_allclose(normalized.numpy() * n_fft**0.5, found.numpy(), atol=1e-12)
        centered = nx.stft(*given, onesided=onesided, return_complex=True, pad_mode="reflect")
        padded = np.pad(x, n_fft // 2, mode="reflect")
        np.testing.assert_allclose(centered.numpy(), defined(padded, n_fft, hop, window, onesided), atol=1e-12)


@pytest.mark.parametrize(("n_fft", "normalized"), list(itertools.product([6, 7], [True, False])))
def test_the_inverse_returns_signals(n_fft: int, normalized: bool) -> None:
    x = nx.asarray(np.random.default_rng(1).normal(size=(2, 41)))
    window = nx.asarray(np.random.default_rng(2).uniform(0.5, 1, 5))
    spectrum = x.stft(n_fft, 2, 5, window, normalized=normalized, return_complex=True)
    back = spectrum.istft(n_fft, 2, 5, window, normalized=normalized)
    assert back.shape == (2, 40 + n_fft % 2)
    np.testing.assert_allclose(back.numpy(), x.numpy()[:, : back.shape[1]], atol=1e-12)
    shorter = spectrum.istft(n_fft, 2, 5, window, normalized=normalized, length=39)
    np.testing.assert_allclose(shorter.numpy(), x.numpy()[:, :39], atol=1e-12)
    with pytest.raises(RuntimeError, match="add up to 0"):
        # Padded to n_fft + 2 elements, the window does not reach the first.
        nx.istft(nx.ones(5, 9).to(nx.complex64), 8, 2, 5, window, center=False)


def test_complex_signals_come_back() -> None:
    numbers = np.random.default_rng(3)
    x = nx.asarray(numbers.normal(size=30) + 1j * numbers.normal(size=30))
    spectrum = nx.stft(x, 6, 3)
    back = nx.istft(spectrum, 6, 3, return_complex=True)
    np.testing.assert_allclose(back.numpy(), x.numpy(), atol=1e-12)


def test_uncovered_ends_are_zeros_with_a_warning() -> None:
    spectrum = nx.stft(nx.ones(16), 4, return_complex=True)
    with pytest.warns(UserWarning, match="padded with zeros"):
        back = nx.istft(spectrum, 4, length=21)
    np.testing.assert_allclose(back.numpy(), [1.0] * 18 + [0.0] * 3, atol=1e-6)


def test_parts_instead_of_complex_numbers() -> None:
    x, window = nx.tensor(SIGNAL), nx.tensor(WINDOW)
    parts = nx.stft(x, 4, 2, 3, window, return_complex=False)
    assert parts.shape == (3, 5, 2)
    np.testing.assert_allclose(nx.view_as_complex(parts).numpy(), SPECTRUM, atol=1e-5)


def test_refusals() -> None:
    x, z = nx.ones(16), nx.ones(3, 4).to(nx.complex64)
    for error, match, call in [
        (RuntimeError, "return_complex", lambda: nx.stft(x, 4)),
        (ValueError, "win_length", lambda: nx.stft(x, 4, 1, 5, return_complex=True)),
        (ValueError, "hop_length", lambda: nx.stft(x, 4, 0, return_complex=True)),
        (ValueError, "vector of win_length = 4", lambda: nx.stft(x, 4, window=nx.ones(3), return_complex=True)),
        (ValueError, "n_fft is 20", lambda: nx.stft(x, 20, center=False, return_complex=True)),
        (RuntimeError, "onesided", lambda: nx.stft(x.to(nx.complex64), 4, onesided=True)),
        (NotImplementedError, "align_to_window", lambda: nx.stft(x, 4, return_complex=True, align_to_window=True)),
        (ValueError, "expected floats", lambda: nx.stft(x.long(), 4, return_complex=True)),
        (ValueError, "complex", lambda: nx.istft(x, 4)),
        (ValueError, "3 frequencies", lambda: nx.istft(z[:2], 4)),
        (ValueError, "hop_length", lambda: nx.istft(z, 4, 5)),
        (RuntimeError, "onesided", lambda: nx.istft(z, 4, return_complex=True)),
    ]:
        with pytest.raises(error, match=match):
            call()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("exponential", {"tau": 0.0}, "tau"),
        ("exponential", {"tau": -1.0}, "tau"),
        ("exponential", {"center": 1.0}, "symmetric"),
        ("kaiser", {"beta": -1.0}, "beta"),
        ("gaussian", {"std": 0.0}, "std"),
    ],
)
@pytest.mark.parametrize("count", [0, 1, 4])
def test_windows_refuse_arguments(name: str, options: dict[str, float], words: str, count: int) -> None:
    with pytest.raises(ValueError, match=words):
        getattr(nx.signal.windows, name)(count, **options)


def test_a_window_with_another_center() -> None:
    values = nx.signal.windows.exponential(4, center=1.0, sym=False).tolist()
    assert values == pytest.approx([math.exp(-abs(n - 1)) for n in range(4)])
