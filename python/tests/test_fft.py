"""Fourier transforms against NumPy's, and their gradients."""

from __future__ import annotations

from typing import Any

import neurenix as nx
import numpy as np
import pytest

from finite_differences import assert_gradient, drawn

LENGTHS = (1, 2, 3, 8, 17, 63, 64, 65, 74, 96, 127, 134, 243, 256, 1000, 1009)
"""Products with a matrix, powers of two, mixed factors, and primes."""
EPSILON = {"complex64": 1.2e-7, "complex128": 2.3e-16}


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("n", LENGTHS)
def test_transforms(n: int, dtype: str) -> None:
    z = drawn(2, n, dtype=dtype)
    wide, real = z.astype("complex128"), z.real.copy()
    # Relative to the largest element, because small ones are differences of large ones.
    for name, given, expected in (
        ("fft", z, np.fft.fft(wide)),
        ("ifft", z, np.fft.ifft(wide)),
        ("rfft", real, np.fft.rfft(wide.real)),
        ("ihfft", real, np.fft.ihfft(wide.real)),
    ):
        found = getattr(nx.fft, name)(nx.asarray(given))
        assert found.dtype.name == dtype
        np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=10 * EPSILON[dtype] * abs(expected).max())
    half = wide[:, : n // 2 + 1]
    for name in ("irfft", "hfft"):
        expected = getattr(np.fft, name)(half, n=n)
        found = getattr(nx.fft, name)(nx.asarray(half.astype(dtype)), n=n)
        assert found.dtype.name == {"complex64": "float32", "complex128": "float64"}[dtype]
        bound = 10 * EPSILON[dtype] * abs(np.fft.fft(wide)).max() / (n if name == "irfft" else 1)
        np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=bound)


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
def test_axes_lengths_and_norms(norm: str | None) -> None:
    z = drawn(4, 3, 6)
    t, x = nx.asarray(z), nx.asarray(z.real.copy())
    cases: list[tuple[Any, Any]] = [
        (nx.fft.fft(t, axis=0, norm=norm), np.fft.fft(z, axis=0, norm=norm)),
        (nx.fft.fft(t, n=5, dim=1, norm=norm), np.fft.fft(z, n=5, axis=1, norm=norm)),
        (nx.fft.fft(t, 2, 0, norm), np.fft.fft(z, 2, 0, norm)),
        (nx.fft.fftn(t, norm=norm), np.fft.fftn(z, norm=norm)),
        (nx.fft.ifftn(t, s=(2, 7), axes=(0, 2), norm=norm), np.fft.ifftn(z, s=(2, 7), axes=(0, 2), norm=norm)),
        (nx.fft.fft2(t, norm=norm), np.fft.fft2(z, norm=norm)),
        (nx.fft.ifft2(t, norm=norm), np.fft.ifft2(z, norm=norm)),
        (nx.fft.rfftn(x, norm=norm), np.fft.rfftn(z.real, norm=norm)),
        (nx.fft.rfft2(x, norm=norm), np.fft.rfft2(z.real, norm=norm)),
        (nx.fft.rfftn(x, s=(5, 2), axes=(0, 1), norm=norm), np.fft.rfftn(z.real, s=(5, 2), axes=(0, 1), norm=norm)),
        (nx.fft.irfftn(t, norm=norm), np.fft.irfftn(z, norm=norm)),
        (nx.fft.irfft2(t, s=(4, 5), norm=norm), np.fft.irfft2(z, s=(4, 5), norm=norm)),
        (nx.fft.hfft(t, axis=1, norm=norm), np.fft.hfft(z, axis=1, norm=norm)),
        (nx.fft.ihfft(x, n=9, norm=norm), np.fft.ihfft(z.real, n=9, norm=norm)),
        (nx.fft.fftshift(t, axes=1), np.fft.fftshift(z, axes=1)),
        (nx.fft.ifftshift(x), np.fft.ifftshift(z.real)),
        (nx.fft.fft(x, norm=norm), np.fft.fft(z.real, norm=norm)),
    ]
    for found, expected in cases:
        assert tuple(found.shape) == expected.shape
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-11, atol=1e-12)


def test_frequencies() -> None:
    for n in (1, 2, 5, 8):
        np.testing.assert_allclose(nx.fft.fftfreq(n, d=0.5).tolist(), np.fft.fftfreq(n, 0.5), rtol=1e-6)
        np.testing.assert_allclose(nx.fft.rfftfreq(n, d=2.0).tolist(), np.fft.rfftfreq(n, 2.0), rtol=1e-6)


@pytest.mark.parametrize("n", [5, 6, 66, 74])
def test_gradients(n: int) -> None:
    z = drawn(n)
    assert_gradient(nx.fft.fft, z)
    assert_gradient(lambda t: nx.fft.rfft(t, norm="ortho"), z.real.copy())
    assert_gradient(lambda t: nx.fft.irfft(t, n=n), z[: n // 2 + 1].copy())


def test_mistakes() -> None:
    x = nx.ones(4)
    with pytest.raises(IndexError):
        nx.fft.fft(x, axis=1)
    with pytest.raises(ValueError, match="norm"):
        nx.fft.fft(x, norm="unitary")
    with pytest.raises(ValueError):
        nx.fft.fft(x, n=0)
    with pytest.raises(ValueError):
        nx.fft.fftn(nx.ones(2, 2), axes=(0, 0))
    with pytest.raises(TypeError):
        nx.fft.rfft(nx.tensor([1j]))
    assert nx.fft.fft(nx.zeros(0, 3)).shape == (0, 3)
