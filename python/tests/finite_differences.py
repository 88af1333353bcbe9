"""Gradients of functions of real and complex numbers against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import neurenix as nx
import numpy as np

RNG = np.random.default_rng(0)


def drawn(*shape: int, dtype: str = "complex128") -> Any:
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype)


def assert_gradient(function: Callable[..., Any], *arrays: Any, tolerance: float = 1e-6) -> None:
    """Compares gradients with central differences along the real and the imaginary axis."""
    tensors = [nx.asarray(array).requires_grad_() for array in arrays]
    result = function(*tensors)
    weights = np.random.default_rng(1).standard_normal((*result.shape, 2))
    given = weights[..., 0] + 1j * weights[..., 1] if result.is_complex() else weights[..., 0]

    def loss(*given_arrays: Any) -> float:
        value = np.asarray(function(*map(nx.asarray, given_arrays)))
        return float((given.real * value.real + np.imag(given) * np.imag(value)).sum())

    result.backward(gradient=nx.asarray(given))
    step = 1e-6
    for place, array in enumerate(arrays):
        expected = np.zeros_like(array)
        for index in np.ndindex(*array.shape):
            for direction in (1, 1j) if np.iscomplexobj(array) else (1,):
                ends = []
                for sign in (1, -1):
                    moved = [each.copy() for each in arrays]
                    moved[place][index] += sign * step * direction
                    ends.append(loss(*moved))
                expected[index] += direction * (ends[0] - ends[1]) / (2 * step)
        found = np.asarray(tensors[place].grad)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
