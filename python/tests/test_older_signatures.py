"""Orders of arguments that PyTorch still accepts, and its rule for tensors without dimensions; the values are PyTorch 2.15's."""

from __future__ import annotations

from collections.abc import Iterator

import neurenix as nx
import neurenix.torch as torch
import pytest
from neurenix import _engine

float16, float32, float64 = torch.float16, torch.float32, torch.float64


@pytest.fixture(autouse=True)
def pytorch_promotes() -> Iterator[None]:
    _engine.set_promotion("pytorch")
    yield
    _engine.set_promotion("pytorch")


def test_factors_before_tensors() -> None:
    x, y, z = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0]), torch.tensor([3.0, 4.0])
    assert x.clone().add_(0.1, y).tolist() == [2.0, 4.0]
    assert x.clone().add_(0.5, y).sub_(0.25, y).tolist() == [3.5, 7.0]
    assert x.add(2, y).tolist() == torch.add(x, 2, y).tolist() == [21.0, 42.0]
    assert x.sub(2, y).tolist() == torch.sub(x, 2, y).tolist() == [-19.0, -38.0]
    assert x.clone().addcmul_(0.5, y, z).tolist() == torch.addcmul(x, 0.5, y, z).tolist() == [16.0, 42.0]
    assert x.clone().addcdiv_(0.5, y, z).tolist() == pytest.approx([2.6666667, 4.5], abs=1e-6)
    assert x.clone().addcdiv_(y, z, value=3).tolist() == [11.0, 17.0]
    for wrong in (lambda: x.add(y, 2), lambda: x.add(2, y, alpha=3), lambda: torch.addcdiv(x, -1, 0)):
        with pytest.raises(TypeError):
            wrong()


def test_factors_of_products_of_matrices() -> None:
    m, a, b = torch.ones(2, 2), torch.ones(2, 3), torch.ones(3, 2)
    assert torch.addmm(1, m, 2, a, b).tolist() == [[7.0, 7.0], [7.0, 7.0]]
    assert torch.addmm(3, m, a, b).tolist() == m.addmm(3, a, b).tolist() == [[6.0, 6.0], [6.0, 6.0]]
    assert m.clone().addmm_(3, 2, a, b).tolist() == [[9.0, 9.0], [9.0, 9.0]]
    assert torch.addmv(3, torch.ones(2), 2, a, torch.ones(3)).tolist() == [9.0, 9.0]
    assert torch.addr(3, m, 2, torch.ones(2), torch.ones(2)).tolist() == [[5.0, 5.0], [5.0, 5.0]]
    assert torch.baddbmm(3, m[None], 2, a[None], b[None]).tolist() == [[[9.0, 9.0], [9.0, 9.0]]]
    assert torch.addbmm(3, m, 2, a[None], b[None]).tolist() == [[9.0, 9.0], [9.0, 9.0]]
    assert torch.addmm(m, a, b, beta=3, alpha=2).tolist() == [[9.0, 9.0], [9.0, 9.0]]
    with pytest.raises(TypeError):
        torch.addmm(1, m, 2, 3, a, b)


def test_numbers_as_first_operands() -> None:
    x = torch.tensor([1.0, 2.0])
    assert torch.add(2, x).tolist() == [3.0, 4.0] and torch.mul(2.5, x).tolist() == [2.5, 5.0]
    assert torch.sub(2, x).tolist() == [1.0, 0.0] and torch.div(2, x).tolist() == [2.0, 1.0]
    assert torch.add(2, x, alpha=2).tolist() == [4.0, 6.0] and torch.mul(2, torch.tensor([1, 2])).dtype == torch.int64
    out = torch.zeros(2)
    assert torch.mul(3, x, out=out) is out and out.tolist() == [3.0, 6.0]
    with pytest.raises(TypeError):
        torch.eq(2, x)


def test_dimensions_named_by_numbers() -> None:
    x, y = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(3, 4)
    for found in (torch.einsum(x, [0, 1], y, [1, 2], [0, 2]), torch.einsum(x, [0, 1], y, [1, 2])):
        assert found.tolist() == (x @ y).tolist()
    assert torch.einsum(x, [1, 0]).tolist() == x.t().tolist()
    assert torch.einsum(x, [0, 1], []).item() == 15.0
    z = torch.einsum(torch.ones(2, 3, 4), [..., 51], torch.ones(4), [51], [...])
    assert z.tolist() == [[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]]
    with pytest.raises(ValueError, match="from 0 to 51"):
        torch.einsum(x, [0, 52])


def test_probabilities_and_quotients_in_place() -> None:
    assert torch.zeros(2, 3).bernoulli_(torch.tensor([0.0, 1.0, 1.0])).tolist() == [[0.0, 1.0, 1.0]] * 2
    assert torch.zeros(2, dtype=torch.int64).bernoulli_(torch.tensor([0.0, 1.0], dtype=float64)).tolist() == [0, 1]
    with pytest.raises(ValueError):
        torch.zeros(1).bernoulli_(torch.tensor([2.0]))
    assert torch.tensor([7.0, -7.0]).div_(2.0, rounding_mode="trunc").tolist() == [3.0, -3.0]
    assert torch.tensor([7, -7]).div_(2, rounding_mode="floor").tolist() == [3, -4]
    with pytest.raises(TypeError):
        torch.tensor([7]).div_(2.5, rounding_mode="floor")


def test_truncated_quotients_have_the_common_dtype() -> None:
    seven, small = torch.tensor([-7]), torch.tensor([7], dtype=torch.uint8)
    assert torch.div(seven, 2.5, rounding_mode="trunc").dtype == float32
    assert torch.div(small, torch.tensor([300]), rounding_mode="trunc").dtype == torch.int64
    assert torch.div(seven, torch.tensor([2.0], dtype=float16), rounding_mode="trunc").dtype == float16
    assert torch.div(seven, 2, rounding_mode="trunc").tolist() == [-3]


def test_numbers_do_not_promote_in_functions() -> None:
    x, number = torch.tensor([1.0, 2.0]), torch.tensor(1.5, dtype=float64)
    functions = (torch.fmod, torch.hypot, torch.copysign, torch.logaddexp, torch.logaddexp2, torch.xlogy, torch.igamma)
    for function in (*functions, torch.special.xlog1py, torch.special.zeta):
        assert function(x, number).dtype == function(number, x).dtype == float32, function.__name__
        assert function(x, number.reshape(1)).dtype == float64
    assert torch.clamp(x, min=number).tolist() == [1.5, 2.0] and torch.clamp(x, min=number).dtype == float32
    assert torch.clamp(x, max=number.reshape(1)).dtype == float64 and x.clip(min=number).dtype == float32
    assert torch.clamp_min(x, number).dtype == float32 and x.half().clamp(number).dtype == float16
    assert torch.clamp(torch.tensor([1, 2], dtype=torch.int32), max=torch.tensor(1)).dtype == torch.int32
    assert torch.clamp(torch.tensor([1, 2]), min=torch.tensor(1.5)).tolist() == [1.5, 2.0]
    assert torch.xlogy(x.half(), torch.tensor([4, 4])).tolist() == [1.38671875, 2.7734375]
    assert torch.copysign(torch.tensor([3, 3]), -number).dtype == float64
    y = x.clone().requires_grad_()
    torch.hypot(y, number).sum().backward()
    assert y.grad.dtype == float32 and y.grad.tolist() == pytest.approx([0.5547002, 0.8], abs=1e-6)


def test_numbers_do_not_promote_complex_tensors() -> None:
    z, number = torch.tensor([1 + 2j, 2.0]), torch.tensor(2.0, dtype=float64)
    for found in (z * number, z + number, number * z, number - z, z / number, z**number, torch.mul(z, number)):
        assert found.dtype == torch.complex64
    big = torch.tensor(2 + 1j, dtype=torch.complex128)
    assert (z * big).dtype == (torch.tensor([1.0, 2.0]) * big).dtype == torch.complex64
    assert (torch.tensor([1, 2]) * big).dtype == torch.complex128
    assert (torch.tensor([1.0], dtype=float64) * torch.tensor(2 + 1j)).dtype == torch.complex128
    assert torch.result_type(z, number) == torch.complex64 and torch.result_type(torch.ones(2), big) == torch.complex64


def test_the_standard_rule_promotes() -> None:
    x, number = nx.tensor([1.0, 2.0]), nx.tensor(1.5, dtype=nx.float64)
    _engine.set_promotion("standard")
    assert x.clamp(min=number).dtype == nx.hypot(x, number).dtype == nx.fmod(x, number).dtype == nx.float64
    assert (nx.tensor([1j]) * number).dtype == nx.complex128


def test_equal_wants_tensors() -> None:
    x = torch.tensor([1.0])
    for other in (None, 1.0, [1.0]):
        with pytest.raises(TypeError, match="expected a tensor"):
            torch.equal(x, other)
    assert torch.equal(x, torch.tensor([1.0])) is True


def test_results_of_a_higher_kind_are_not_stored_in_place() -> None:
    x, half = torch.tensor([1, 2]), torch.tensor([0.5, 0.5])
    for change in (
        lambda: x.addcmul_(half, half), lambda: x.addcdiv_(x, x), lambda: x.div_(2.5, rounding_mode="trunc"),
        lambda: x.normal_(), lambda: x.exponential_(), lambda: x.erfinv_(), lambda: (x > 1).cumsum_(0),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="cannot store values of"):
            change()
    assert x.tolist() == [1, 2] and half.double().addcmul_(half, half).dtype == float64
    assert x.float().eq_(torch.tensor([1, 3])).tolist() == [1.0, 0.0]
