"""8-bit floats, and products of 8-bit numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware import FallbackWarning, TensorCoresBackend

nn, F = nx.nn, nx.functional

FLOATS = ("float8_e4m3fn", "float8_e5m2")


def test_conversions() -> None:
    # Ties go to the even neighbour; beyond the greatest number there is NaN or infinity.
    given = [0.0, -1.0, 1.0625, 1.1875, 17.0, 19.0, 464.0, 465.0, 2.0**-10, 3 * 2.0**-10, 1e-9]
    e4m3 = nx.tensor(given).to("float8_e4m3fn")
    assert e4m3.dtype == nx.float8_e4m3fn and e4m3.dtype.itemsize == 1 and e4m3.dtype.is_floating_point
    expected = [0.0, -1.0, 1.0, 1.25, 16.0, 20.0, 448.0, float("nan"), 0.0, 2.0**-8, 0.0]
    np.testing.assert_array_equal(e4m3.float().numpy(), np.float32(expected))
    e5m2 = nx.tensor([1.125, 1.375, 61439.0, 61440.0, -1e9, 2.0**-17]).to(nx.float8_e5m2)
    np.testing.assert_array_equal(
        e5m2.float().numpy(), np.float32([1.0, 1.5, 57344.0, float("inf"), -float("inf"), 0.0])
    )
    assert nx.tensor([3, -7], dtype="int32").to("float8_e4m3fn").to("int64").tolist() == [3, -7]
    assert repr(e4m3[:3]) == "tensor([ 0., -1.,  1.], dtype=float8_e4m3fn)"
    assert nx.finfo("float8_e4m3fn").max == 448.0 and nx.finfo("float8_e5m2").max == 57344.0


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_8_bit_floats_can_do(dtype: str, tmp_path: Path) -> None:
    x = nx.tensor([[1.0, -2.0, 0.5], [4.0, 0.0, -8.0]])
    low = x.to(dtype)
    moved = nx.concat([low.T[1:], low.T[:1]])[:, ::1].reshape(2, 3)
    assert moved.float().tolist() == nx.concat([x.T[1:], x.T[:1]]).reshape(2, 3).tolist()
    assert nx.where(x > 0, low, low).dtype == low.dtype and low[nx.tensor([1, 0])].float()[0].tolist() == x[1].tolist()
    nx.save({"x": low}, tmp_path / "x.safetensors")
    loaded = nx.load(tmp_path / "x.safetensors")["x"]
    assert loaded.dtype == low.dtype and loaded.float().tolist() == x.tolist()
    assert nx.from_dlpack(low).dtype == low.dtype
    with pytest.raises(TypeError, match=f"NumPy does not support {dtype}"):
        low.numpy()
    assert low.numpy(force=True).tolist() == x.tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_nothing_is_computed_with_8_bit_floats(dtype: str) -> None:
    low = nx.ones(2, 2).to(dtype)
    for compute in (
        lambda: low + low,
        lambda: low.sum(),
        lambda: low.exp(),
        lambda: F.softmax(low, 1),
        lambda: low.sort(),
        lambda: low @ low,
    ):
        with pytest.raises(TypeError, match="8-bit floats"):
            compute()
    # With another dtype they are converted, exactly.
    assert (low + nx.ones(2, 2)).dtype == nx.float32 and (low.float() + 1).sum().item() == 8.0


def test_gradients_need_scales() -> None:
    x = nx.ones(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="scale of its own"):
        x.to("float8_e5m2").float().sum().backward()
    x.detach().to("float8_e5m2").float()


def test_products_with_another_dtype() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-128, 128, shape).astype("int8") for shape in ((5, 300), (300, 7)))
    product = nx.matmul(nx.tensor(a), nx.tensor(b), out_dtype="int32")
    assert product.dtype == nx.int32
    np.testing.assert_array_equal(product.numpy(), a.astype("int32") @ b.astype("int32"))
    assert nx.tensor(a).mm(nx.tensor(b)).dtype == nx.int8
    x, y = nx.randn(6, 32), nx.randn(32, 4)
    for left, right in (("float8_e4m3fn", "float8_e4m3fn"), ("float8_e4m3fn", "float8_e5m2"), ("bfloat16", "bfloat16")):
        low, other = x.to(left), y.to(right)
        product = low.matmul(other, out_dtype="float32")
        exact = low.double().numpy() @ other.double().numpy()
        # A device may keep 14 bits of each term.
        assert np.abs(product.numpy() - exact).max() < 2.0**-7 * np.abs(exact).max()
    with pytest.raises(TypeError, match="integers, or floats"):
        nx.tensor(a).matmul(nx.tensor(b), out_dtype="float32")
    with pytest.raises(TypeError, match="at least 16 bits"):
        x.to("float8_e5m2").matmul(y.to("float8_e5m2"), out_dtype="float8_e5m2")
    with pytest.raises(TypeError, match="another dtype for the result"):
        x.to("float8_e5m2") @ y.to("float8_e5m2")


def test_autocast_of_8_bits() -> None:
    # Integers that both formats hold, and of which each factor has the greatest: no rounding but the result's.
    rng = np.random.default_rng(5)

    def whole(*shape: int) -> nx.Tensor:
        numbers = rng.integers(-7, 8, shape).astype("float32")
        numbers.flat[0] = 7
        return nx.tensor(numbers, requires_grad=True)

    x, weight, upstream = whole(4, 16, 32), whole(48, 32), whole(4, 16, 48).detach()
    with nx.autocast(dtype="float8_e4m3fn"):
        assert nx.amp.is_autocast_enabled()
        y = F.linear(x, weight)
    assert y.dtype == nx.bfloat16
    exact = x.detach().numpy() @ weight.detach().numpy().T
    np.testing.assert_allclose(y.float().detach().numpy(), exact, atol=2.0**-8 * np.abs(exact).max())
    y.backward(upstream.bfloat16())
    for found, product in (
        (x.grad, upstream.numpy() @ weight.detach().numpy()),
        (weight.grad, upstream.numpy().reshape(64, 48).T @ x.detach().numpy().reshape(64, 32)),
    ):
        np.testing.assert_allclose(found.numpy(), product, atol=2.0**-8 * np.abs(product).max())


def test_8_bits_round_but_only_where_sizes_fit() -> None:
    x, weight = nx.randn(16, 64), nx.randn(32, 64)

    def error(rows: int) -> float:
        exact = x[:rows].double() @ weight.double().T
        with nx.autocast(dtype="float8_e4m3fn"):
            y = F.linear(x[:rows], weight)
        return ((y.double() - exact).norm() / exact.norm()).item()

    # Rounded to 4 and to 8 significant bits.
    assert 0.02 < error(16) < 0.06
    assert error(15) < 0.006


def test_training_in_8_bits() -> None:
    nx.manual_seed(3)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
    x = nx.randn(64, 32)
    target = x @ nx.randn(32, 16) / 6
    optimizer = nx.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(60):
        with nx.autocast(dtype="float8_e4m3fn"):
            loss = F.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
@pytest.mark.parametrize("precision", ["tf32", "split", "bf16", "fp8", "int8", "fp16", "mixed", "fp32"])
def test_every_precision_of_a_model(precision: str) -> None:
    nx.manual_seed(5)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    x = nx.randn(16, 64)
    expected = model(x).detach()
    before = nx.get_float32_matmul_precision()
    optimized = TensorCoresBackend().optimize_model(model, precision)
    y = optimized(x.to(next(iter(optimized.buffers() if precision == "int8" else optimized.parameters())).device))
    assert nx.get_float32_matmul_precision() == before
    assert (optimized is model) and y.dtype.name == {
        "bf16": "bfloat16", "fp16": "float16", "mixed": "float16", "fp8": "bfloat16"
    }.get(precision, "float32")
    error = ((y.float().detach().cpu() - expected).norm() / expected.norm()).item()
    low, high = {"fp8": (0.01, 0.08), "int8": (0.001, 0.03), "bf16": (1e-4, 0.02)}.get(precision, (0.0, 0.003))
    assert low <= error < high


@pytest.mark.filterwarnings("ignore::neurenix.hardware.FallbackWarning")
def test_a_linear_layer_of_integers() -> None:
    layer = nn.Linear(32, 8)
    quantized = TensorCoresBackend().optimize_model(layer, "int8")
    x = nx.randn(4, 32)
    scale = x.abs().amax(1, True) / 127
    rounded = (x / scale).round()
    integers = quantized.weight_quantized.cpu()
    sums = (rounded.double() @ integers.double().T).numpy()
    expected = sums * scale.numpy() * quantized.weight_scale.cpu().T.numpy() + layer.bias.detach().cpu().numpy()
    np.testing.assert_allclose(quantized(x.to(quantized.bias.device)).cpu().numpy(), expected, rtol=1e-5, atol=1e-6)
    assert "inputs=rounded" in repr(quantized)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "split", "fp16", "bf16", "mixed", "fp8", "int8"])
def test_products_of_the_backend(precision: str) -> None:
    backend = TensorCoresBackend()
    backend.set_precision(precision)
    a, b = nx.randn(32, 64), nx.randn(64, 48)
    if backend.get_device_count() == 0:
        with pytest.warns(FallbackWarning):
            product = backend.matmul(a, b)
    else:
        product = backend.matmul(a, b)
    assert product.dtype.name == {"fp16": "float16", "bf16": "bfloat16"}.get(precision, "float32")
    exact = a.double() @ b.double()
    assert ((product.cpu().double() - exact).norm() / exact.norm()).item() < 0.06
