"""NumPy's functions and scalars with tensors, and NumPy's argument names."""

from __future__ import annotations

import neurenix as nx
import numpy as np
import pytest

A = np.array([[3.0, 1.0, 2.0], [0.5, -5.0, 4.0]])


def test_functions_of_numpy_give_arrays() -> None:
    x = nx.Tensor(A)
    for given, expected in [
        (np.sum(x), A.sum()),
        (np.sum(x, axis=0), A.sum(0)),
        (np.mean(x, axis=1, keepdims=True), A.mean(1, keepdims=True)),
        (np.std(x), A.std()),
        (np.max(x, axis=1), A.max(1)),
        (np.argmax(x, axis=1), A.argmax(1)),
        (np.median(x, axis=0), np.median(A, axis=0)),
        (np.concatenate([x, A]), np.concatenate([A, A])),
        (np.stack((x, x), axis=1), np.stack((A, A), axis=1)),
        (np.where(x > 0, x, 0), np.where(A > 0, A, 0)),
        (np.cumsum(x), A.cumsum()),
        (np.dot(x, A.T), A @ A.T),
        (np.clip(x, 0, 2), A.clip(0, 2)),
    ]:
        assert isinstance(given, (np.ndarray, np.generic))
        np.testing.assert_array_equal(given, expected)
    assert np.allclose(x, A) and np.array_equal(x, A) and np.shape(x) == (2, 3) and np.ndim(x) == 2


def test_universal_functions_give_tensors() -> None:
    x = nx.Tensor(A)
    for given, expected in [
        (np.sin(x), np.sin(A)),
        (np.hypot(x, A), np.hypot(A, A)),
        (np.add(A, x), A + A),
        (np.subtract(x, 1), A - 1),
        (A * x, A * A),
        (A.T @ x, A.T @ A),
        (A < x * 2, A < A * 2),
        (np.float64(2.0) - x, 2.0 - A),
        (np.add.reduce(x, axis=1), A.sum(1)),
        (np.isfinite(x), np.isfinite(A)),
    ]:
        assert isinstance(given, nx.Tensor)
        np.testing.assert_allclose(given.numpy(), expected)
    whole, rest = np.divmod(x, 2.0)
    assert isinstance(whole, nx.Tensor)
    np.testing.assert_array_equal(rest.numpy(), A % 2.0)


def test_operators_with_arrays_keep_gradients() -> None:
    x = nx.Tensor(A, requires_grad=True)
    (A * x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), A)
    with pytest.raises(RuntimeError, match="detach"):
        np.sin(x)
    with pytest.raises(RuntimeError, match="detach"):
        np.sum(x)


def test_arrays_take_tensors_in_place() -> None:
    array = A.copy()
    array += nx.Tensor(A)
    np.testing.assert_array_equal(array, A + A)
    np.copyto(array, nx.Tensor(A))
    np.testing.assert_array_equal(array, A)
    with pytest.raises(ValueError, match="read-only"):
        np.add(A, A, out=nx.Tensor(A))


def test_numpys_names_of_arguments() -> None:
    x = nx.Tensor(A)
    for name in ("sum", "prod", "mean", "var", "std", "amax", "amin", "all", "any", "count_nonzero", "logsumexp", "norm"):
        ours, theirs = getattr(x, name)(dim=1, keepdim=True), getattr(x, name)(axis=1, keepdims=True)
        assert ours.shape == theirs.shape == (2, 1) and ours.tolist() == theirs.tolist(), name
    for name in ("max", "min", "sort"):
        assert getattr(x, name)(axis=0).indices.tolist() == getattr(x, name)(dim=0).indices.tolist()
    for name in ("argmax", "argmin", "argsort", "cumsum", "cumprod", "softmax", "log_softmax", "unsqueeze"):
        assert getattr(x, name)(axis=0).tolist() == getattr(x, name)(dim=0).tolist(), name
    assert x.topk(1, axis=0).values.tolist() == [[3.0, 1.0, 4.0]]
    assert x.unsqueeze(0).squeeze(axis=0).shape == (2, 3)
    for call in (
        lambda: x.sum(0, axis=1),
        lambda: x.argmax(dim=0, axis=0),
        lambda: x.max(0, axis=1),
        lambda: x.cumsum(),
        lambda: x.unsqueeze(),
    ):
        with pytest.raises(TypeError, match="dim"):
            call()
