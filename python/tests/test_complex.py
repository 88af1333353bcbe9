"""Complex numbers: values against NumPy, gradients against finite differences."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import neurenix as nx
import numpy as np
import pytest

from finite_differences import RNG, assert_gradient, drawn

UNARY = (
    "exp expm1 log log1p log10 sqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh square reciprocal sign conj "
    "abs angle"
).split()
# On both sides of every branch cut, on the axes, and near and far from 0.
POINTS = np.array([0.3 + 0.4j, -0.7 + 1.1j, 1.2 - 0.8j, -1.4 - 0.2j, 2.5 + 0.1j, -3 - 0.1j, 0.01 + 0.02j, 2j, 0.5, -4 + 3j])
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize(("dtype", "tolerance"), [("complex64", 2e-6), ("complex128", 4e-15)])
def test_functions_match_numpy(name: str, dtype: str, tolerance: float) -> None:
    for scale in (1e-3, 1.0, 20.0):
        points = (POINTS * scale).astype(dtype)
        expected = np.sign(points) if name == "sign" else getattr(np, NUMPY.get(name, name))(points.astype("complex128"))
        if name == "log1p":
            # NumPy's loses digits near 0; this series does not.
            series = sum((-1) ** (k + 1) * points.astype("complex128") ** k / k for k in range(1, 20))
            expected = np.where(abs(points) < 0.1, series, np.log(1 + points.astype("complex128")))
        found = getattr(nx, name)(nx.asarray(points))
        assert found.dtype.name == (dtype if np.iscomplexobj(expected) else {"complex64": "float32"}.get(dtype, "float64"))
        np.testing.assert_allclose(np.asarray(found), expected, rtol=tolerance, atol=0)


@pytest.mark.parametrize("name", UNARY)
def test_functions_have_gradients(name: str) -> None:
    # Without the points on branch cuts, where there are no central differences.
    assert_gradient(getattr(nx, name), POINTS[:7].copy(), tolerance=1e-5)


def test_large_and_small_numbers() -> None:
    big = np.array([3e300 + 4e300j, 3e-300 - 4e-300j, 1e-310 + 0j, 0j])
    np.testing.assert_allclose(np.asarray(nx.abs(nx.asarray(big))), np.abs(big), rtol=1e-15)
    np.testing.assert_allclose(np.asarray(nx.sqrt(nx.asarray(big))), np.sqrt(big), rtol=1e-14)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(np.asarray(nx.log(nx.asarray(big))), np.log(big), rtol=1e-14)
    np.testing.assert_allclose(np.asarray(nx.asarray(big[:2]) / nx.asarray(big[:2])), [1, 1], rtol=1e-15)
    # Near the unit circle the logarithm's real part is small.
    circle = nx.asarray(np.array([0.6 + 0.8j, 1 + 1e-9j]))
    np.testing.assert_allclose(np.asarray(nx.log(circle).real), [0.0, 0.5e-18], rtol=1e-6, atol=1e-16)


OPERATIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / b,
    lambda a, b: a**b,
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_arithmetic(operation: Callable[[Any, Any], Any]) -> None:
    z, w, x = drawn(3, 4), drawn(4), RNG.standard_normal((3, 1))
    for a, b in ((z, w), (z, x), (x, z), (z, 2.0), (2.0, z), (z, 1 - 2j), (1 - 2j, z), (x, 1j), (1j, x), (z, 3), (z, -2)):
        ours = [nx.asarray(each) if isinstance(each, np.ndarray) else each for each in (a, b)]
        np.testing.assert_allclose(np.asarray(operation(*ours)), operation(a + 0j, b), rtol=1e-12)
    assert_gradient(operation, z, w)
    assert_gradient(operation, z, x)
    assert_gradient(lambda t: operation(t, 3), z)


def test_promotion() -> None:
    z = nx.tensor([1j])
    assert (z.dtype, (z + 1.0).dtype, (z * nx.tensor([1])).dtype) == (nx.complex64,) * 3
    assert (z + nx.ones(1, dtype=nx.float64)).dtype == nx.complex128
    assert nx.result_type(nx.float64, 1j) == nx.complex128 and nx.result_type(nx.int32, nx.complex64) == nx.complex64
    assert nx.isdtype(nx.complex64, "complex floating") and not nx.isdtype(nx.complex64, "real floating")
    assert nx.finfo(nx.complex128).dtype == nx.float64
    assert nx.can_cast(nx.float32, nx.complex64) and not nx.can_cast(nx.complex64, nx.float32)
    assert z.itemsize == 8 and z.nbytes == 8 and z.numel() == 1 and z.shape == (1,) and not z.is_floating_point()
    with pytest.warns(UserWarning, match="imaginary"):
        assert z.to(nx.float32).tolist() == [0.0]
    with pytest.raises(TypeError):
        nx.tensor([1j], dtype=nx.float32)


def test_shapes_and_indices() -> None:
    a = drawn(2, 3, 4)
    z = nx.asarray(a)
    cases: list[tuple[Any, Any]] = [
        (z.reshape(-1, 2), a.reshape(-1, 2)),
        (z.permute(2, 0, -2), a.transpose(2, 0, 1)),
        (z.mT, a.swapaxes(-1, -2)),
        (z.mH, a.swapaxes(-1, -2).conj()),
        (z[..., 1], a[..., 1]),
        (z[1, :, ::2], a[1, :, ::2]),
        (z[:, [0, 2]], a[:, [0, 2]]),
        (z[None, 0], a[None, 0]),
        (z[nx.asarray(a.real > 0)], a[a.real > 0]),
        (z.flip(0, -1), a[::-1, :, ::-1]),
        (z.roll(1), np.roll(a, 1)),
        (z.sum(-1), a.sum(-1)),
        (z.prod(1), a.prod(1)),
        (z.cumsum(1), a.cumsum(1)),
        (z.cumprod(-1), a.cumprod(-1)),
        (z.mean((0, 2), keepdim=True), a.mean((0, 2), keepdims=True)),
        (z.std(), a.std(ddof=1)),
        (nx.concat([z, z], -1), np.concatenate([a, a], -1)),
        (nx.stack([z, z], -1), np.stack([a, a], -1)),
        (nx.where(nx.asarray(a.real > 0), z, 0), np.where(a.real > 0, a, 0)),
        (z.unsqueeze(-1).squeeze(-1), a),
        (z.tile(2, 1), np.tile(a, (2, 1))),
        (nx.take(z, nx.tensor([1, 0]), axis=1), np.take(a, [1, 0], axis=1)),
        (nx.einsum("abc,dbc->ad", z, z), np.einsum("abc,dbc->ad", a, a)),
        (z @ z.mT, a @ a.swapaxes(-1, -2)),
        (nx.tensordot(z, nx.asarray(a.real), axes=([1, 2], [1, 2])), np.tensordot(a, a.real, ([1, 2], [1, 2]))),
        (nx.vecdot(z, z), (a.conj() * a).sum(-1)),
        (nx.vdot(z[0, 0], z[1, 0]), np.vdot(a[0, 0], a[1, 0])),
        (nx.log2(z), np.log2(a)),
        (nx.zeros_like(z), np.zeros_like(a)),
    ]
    for found, expected in cases:
        assert tuple(found.shape) == expected.shape
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12, atol=1e-12)
    values = nx.tensor([1j, 1, 1j, 0, 1 + 1j])
    assert nx.unique_values(values).tolist() == [0, 1j, 1, 1 + 1j]
    assert nx.unique_counts(values).counts.tolist() == [1, 2, 1, 1]
    assert [each.tolist() for each in nx.nonzero(values)] == [[0, 1, 2, 4]]
    with pytest.raises(IndexError):
        z[0, 0, 0, 0]


def test_stored_values_have_no_imaginary_part_unless_they_are_complex() -> None:
    a = drawn(3, 2)
    z, index = nx.asarray(a), nx.tensor([2, 0])
    for source in (drawn(2, 2), RNG.standard_normal((2, 2)), np.array([[1, 2], [3, 4]])):
        added, copied = a.copy(), a.copy()
        added[[2, 0]] += source
        copied[[2, 0]] = source
        given = nx.asarray(source)
        np.testing.assert_allclose(np.asarray(z.index_add(0, index, given)), added)
        np.testing.assert_allclose(np.asarray(z.index_copy(0, index, given)), copied)
        rows = index.reshape(2, 1).broadcast_to((2, 2))
        np.testing.assert_allclose(np.asarray(z.scatter(0, rows, given)), copied)
        np.testing.assert_allclose(np.asarray(z.scatter(0, rows, src=given)), copied)
    filled = a.copy()
    filled[[2, 0]] = 7
    np.testing.assert_allclose(np.asarray(z.scatter(0, rows, value=7.0)), filled)
    np.testing.assert_allclose(np.asarray(z.masked_fill(nx.asarray(a.real > 0), 3.0)), np.where(a.real > 0, 3, a))
    np.testing.assert_allclose(np.asarray(nx.diff(z, axis=0, prepend=nx.ones(1, 2))), np.diff(a, axis=0, prepend=np.ones((1, 2))))
    np.testing.assert_allclose(np.asarray(nx.kron(z, z)), np.kron(a, a))
    np.testing.assert_allclose(np.asarray(nx.kron(nx.ones(2), z)), np.kron(np.ones(2), a))


def test_assignment() -> None:
    a = drawn(3, 2)
    z = nx.asarray(a.copy())
    z[1] = 5 - 1j
    z[0, 1] = 2
    z *= 1j
    a[1], a[0, 1] = 5 - 1j, 2
    np.testing.assert_allclose(np.asarray(z), a * 1j)
    z.zero_()
    assert not z.any()
    with pytest.raises((TypeError, RuntimeError)):
        x = nx.ones(2)
        x += 1j


def test_conversion() -> None:
    z = nx.tensor([[1 + 2j, 1 - 0.5j]])
    assert z.tolist() == [[1 + 2j, 1 - 0.5j]] and z[0, 0].item() == 1 + 2j and complex(z[0, 0]) == 1 + 2j
    assert repr(z) == "tensor([[1.0+2.0j, 1.0-0.5j]], dtype=complex64)"
    for again in (pickle.loads(pickle.dumps(z)), copy.deepcopy(z), nx.from_dlpack(z.numpy()), nx.from_dlpack(z)):
        assert again.dtype == z.dtype and again.tolist() == z.tolist()
    assert np.from_dlpack(z).tolist() == z.tolist()
    assert np.from_dlpack(z.mT).tolist() == z.mT.tolist()
    assert nx.view_as_complex(nx.view_as_real(z)).tolist() == z.tolist()
    assert nx.complex(z.real, z.imag).tolist() == z.tolist()
    np.testing.assert_allclose(np.asarray(nx.polar(z.abs(), z.angle())), z.tolist(), atol=1e-6)
    assert nx.equal(z, nx.tensor([[1 + 2j, 1]])).tolist() == [[True, False]]


def test_refusals_name_the_operation() -> None:
    z = nx.tensor([1j, 2])
    for name, call in {
        "relu": lambda: nx.nn.functional.relu(z),
        "maximum": lambda: nx.maximum(z, z),
        "erf": lambda: nx.erf(z),
        "floor_": lambda: z.floor_(),
        "topk": lambda: z.topk(1),
        # They convert their operands to real numbers.
        "lgamma": lambda: nx.lgamma(z),
        "deg2rad": lambda: nx.deg2rad(z),
    }.items():
        with pytest.raises(TypeError, match=name):
            call()
    with pytest.raises(TypeError, match="complex"):
        z < z  # noqa: B015


@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 5), (1, 1)])
def test_decompositions(shape: tuple[int, ...]) -> None:
    a = drawn(*shape)
    z = nx.asarray(a)
    for mode in ("reduced", "complete"):
        q, r = nx.linalg.qr(z, mode=mode)
        np.testing.assert_allclose(np.asarray(q @ r), a, atol=1e-13)
        np.testing.assert_allclose(np.asarray(q.mH @ q), np.broadcast_to(np.eye(q.shape[-1]), q.mT.shape[:-2] + (q.shape[-1],) * 2), atol=1e-13)
    u, s, vh = nx.linalg.svd(z, full_matrices=False)
    np.testing.assert_allclose(np.asarray(u * s.unsqueeze(-2) @ vh), a, atol=1e-13)
    np.testing.assert_allclose(np.asarray(s), np.linalg.svd(a)[1], rtol=1e-12)
    np.testing.assert_allclose(np.asarray(nx.linalg.pinv(z)), np.linalg.pinv(a), atol=1e-12)
    assert (np.asarray(nx.linalg.matrix_rank(z)) == np.linalg.matrix_rank(a)).all()


def test_square_matrices() -> None:
    a, b = drawn(2, 4, 4), drawn(2, 4, 3)
    z, w = nx.asarray(a), nx.asarray(b)
    np.testing.assert_allclose(np.asarray(nx.linalg.inv(z)), np.linalg.inv(a), rtol=1e-11)
    np.testing.assert_allclose(np.asarray(nx.linalg.solve(z, w)), np.linalg.solve(a, b), rtol=1e-11)
    np.testing.assert_allclose(np.asarray(nx.linalg.det(z)), np.linalg.det(a), rtol=1e-12)
    assert nx.linalg.det(nx.zeros(2, 2, dtype=nx.complex64)).item() == 0
    hermitian = a + a.conj().swapaxes(-1, -2)
    # Equal eigenvalues must give orthonormal vectors, too.
    for each in (hermitian, np.diag([2, 2, 3, 3]) + 0j):
        values, vectors = nx.linalg.eigh(nx.asarray(each))
        np.testing.assert_allclose(np.asarray(values), np.linalg.eigvalsh(each), atol=1e-12)
        np.testing.assert_allclose(np.asarray(nx.asarray(each) @ vectors), np.asarray(vectors * values.unsqueeze(-2)), atol=1e-12)
    positive = a @ a.conj().swapaxes(-1, -2) + np.eye(4)
    np.testing.assert_allclose(np.asarray(nx.linalg.cholesky(nx.asarray(positive))), np.linalg.cholesky(positive), rtol=1e-11)
    for function in (nx.linalg.inv, nx.linalg.det, nx.linalg.svdvals, nx.linalg.pinv):
        assert_gradient(function, a[0], tolerance=1e-4)
    assert_gradient(lambda m: nx.linalg.eigvalsh(m + m.mH), a[0], tolerance=1e-4)


@pytest.mark.parametrize(
    "function",
    [
        lambda z: z.prod(0),
        lambda z: z.cumprod(1),
        lambda z: z @ z.mT,
        lambda z: z[1:, [0, 2]],
        lambda z: z.std(),
        lambda z: nx.view_as_real(z) * 2,
        lambda z: z.real * z.imag,
        lambda z: nx.einsum("ij,kj->ik", z, z.conj()),
    ],
)
def test_gradients(function: Callable[[Any], Any]) -> None:
    assert_gradient(function, drawn(3, 4), tolerance=1e-5)


def test_gradient_functions_and_hooks() -> None:
    z = nx.tensor([3 + 4j], requires_grad=True)
    seen = []
    handle = z.register_hook(lambda gradient: seen.append(gradient.tolist()))
    (z.abs() ** 2).sum().backward()
    # PyTorch's convention: the gradient of |z| ** 2 is 2 z.
    np.testing.assert_allclose(z.grad.tolist(), [6 + 8j], rtol=1e-6)
    np.testing.assert_allclose(seen, [[6 + 8j]], rtol=1e-6)
    handle.remove()
    (gradient,) = nx.grad((z * z.conj()).real.sum(), [z])
    np.testing.assert_allclose(gradient.tolist(), [6 + 8j], rtol=1e-6)
    np.testing.assert_allclose(nx.grad(lambda w: (w * w).imag.sum())(z.detach()).tolist(), [8 + 6j], rtol=1e-6)
    with pytest.raises(RuntimeError, match="complex"):
        z.sum().backward()
    # At 0 the modulus has no direction; PyTorch's gradient there is 0.
    zero = nx.tensor([0j], requires_grad=True)
    zero.abs().sum().backward()
    assert zero.grad.tolist() == [0j]


def test_parameters_are_trained() -> None:
    nx.manual_seed(0)
    weight = nx.nn.Parameter(nx.zeros(3, dtype=nx.complex64))
    assert isinstance(weight, nx.nn.Parameter) and "Parameter containing" in repr(weight)
    target = nx.tensor([1 + 1j, -2j, 0.5])
    optimizer = nx.optim.Adam([weight], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        ((weight - target).abs() ** 2).sum().backward()
        optimizer.step()
    np.testing.assert_allclose(np.asarray(weight.detach()), np.asarray(target), atol=1e-2)
    module = nx.nn.Module()
    module.weight = weight
    other = nx.nn.Module()
    other.weight = nx.nn.Parameter(nx.zeros(3, dtype=nx.complex64))
    other.load_state_dict(module.state_dict())
    assert other.weight.tolist() == weight.tolist()
