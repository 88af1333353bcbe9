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
    for name in (
        "sum mean var std norm logsumexp exp sigmoid erfc log10 isnan relu softsign sort max argmax round abs neg"
    ).split():
        with pytest.raises(TypeError, match="8-bit floats"):
            getattr(low, name)()
    for compute in (
        lambda: low + low,
        lambda: low.cumsum(0),
        lambda: low * 2.0,
        lambda: low * 3,
        lambda: low / 0.3,
        lambda: low == low,
        lambda: F.softmax(low, 1),
        lambda: F.elu(low),
        lambda: F.glu(low),
        lambda: F.mse_loss(low, low),
        lambda: F.avg_pool1d(low, 2),
        lambda: nx.histc(low, bins=2),
        lambda: low @ low,
        lambda: nx.rand(2, dtype=dtype),
        lambda: nx.randn(2, dtype=dtype),
        lambda: low.requires_grad_(),
    ):
        with pytest.raises(TypeError, match="8-bit floats|draw float32|cannot require gradients"):
            compute()
    assert not low.requires_grad and low.float().sum().item() == 4.0, "as before"
    layer = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="has no gradients"):
        layer.to(dtype)
    assert layer.weight.dtype == nx.float32
    assert layer.requires_grad_(False).to(dtype).weight.dtype.name == dtype
    # With another dtype they are converted, exactly.
    assert nx.concat([low, nx.tensor([[1000, 3]])]).tolist()[2] == [1000.0, 3.0]
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
        bound = 2.0**-7 if left.startswith("float8") else 1e-5
        assert np.abs(product.numpy() - exact).max() < bound * np.abs(exact).max()
    whole = (nx.tensor(a), nx.tensor(b))
    for operands, out in (
        (whole, "float32"),
        ((x, y), "int32"),
        ((x, y), "bfloat16"),
        ((x.double(), y.double()), "float32"),
        ((whole[0].int(), whole[1].int()), "int8"),
        ((x.to("float8_e5m2"), y.to("float8_e5m2")), "float8_e5m2"),
    ):
        with pytest.raises(TypeError, match="no narrower than the operands"):
            operands[0].matmul(operands[1], out_dtype=out)
    # Sums of 16-bit floats that float32 holds and bfloat16 does not.
    assert nx.full((1, 257), 1.0, dtype="bfloat16").matmul(nx.ones(257, 1).bfloat16(), out_dtype="float32").item() == 257.0
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


def test_scales_of_8_bits_reach_far() -> None:
    with nx.autocast(dtype="float8_e4m3fn"):
        for a, b in ((1e37, 1e-30), (1e-30, 1e37), (1e-30, 1e30), (1e37, 1.0)):
            product = nx.full((16, 16), a) @ (nx.eye(16) * b)
            assert product.float().numpy() == pytest.approx(a * b, rel=0.01)


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
    seen: list[str] = []
    model[1].register_forward_hook(lambda *_: seen.append(nx.get_float32_matmul_precision()))
    optimized = TensorCoresBackend().optimize_model(model, precision)
    y = optimized(x.to(next(iter(optimized.buffers() if precision == "int8" else optimized.parameters())).device))
    assert seen == [{"tf32": "high", "split": "split"}.get(precision, before)]
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
    assert quantized(x[0].to(quantized.bias.device)).shape == (8,)
    # Sums that float16 does not hold, NaN, and gradients.
    ones = nn.Linear(2048, 1, bias=False).half()
    ones.weight.data.fill_(1)
    ones = TensorCoresBackend().optimize_model(ones, "int8")
    given = nx.ones(2, 2048).half().to(ones.weight_scale.device)
    assert ones(given).tolist() == [[2048.0], [2048.0]]
    given[0, 5] = float("nan")
    assert ones(given).isnan().flatten().tolist() == [True, False]
    with pytest.raises(RuntimeError, match="for inference"):
        ones(given.requires_grad_())


def test_integer_products_of_long_sums() -> None:
    from neurenix.hardware._optimize import integer_product, scales

    a, b = nx.ones(1, 140_000), nx.ones(140_000, 1)
    assert integer_product(a, scales(a, -1), b, scales(b, -2)).item() == pytest.approx(140_000, rel=1e-4)
    a, b = nx.randn(5, 40), nx.randn(40, 3)
    product = integer_product(a, scales(a, -1), b, scales(b, -2))
    exact = a.double() @ b.double()
    assert 1e-4 < ((product.double() - exact).norm() / exact.norm()).item() < 0.02


def test_precisions_of_threads() -> None:
    import threading

    from neurenix.nn._precision import precision_of

    seen: list[str] = []
    with precision_of("products", "high"):
        other = threading.Thread(target=lambda: seen.append(nx.get_float32_matmul_precision()))
        other.start()
        other.join()
        assert nx.get_float32_matmul_precision() == "high"
    assert seen == ["highest"] and nx.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("precision", ["fp32", "tf32", "split", "fp16", "bf16", "mixed", "fp8", "int8"])
def test_products_of_the_backend(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, whose way the CPU can go too: it has the same numbers."""
    backend = TensorCoresBackend()
    backend.set_precision(precision)
    a, b = nx.randn(32, 64), nx.randn(64, 48)
    if backend.get_device_count() == 0:
        with pytest.warns(FallbackWarning):
            backend.matmul(a, b)
        monkeypatch.setattr(backend, "get_device_count", lambda: 1)
        monkeypatch.setattr(backend, "_on_device", lambda operation, function, *tensors: function(*tensors))
    product = backend.matmul(a, b)
    assert product.dtype.name == {"fp16": "float16", "bf16": "bfloat16"}.get(precision, "float32")
    exact = a.double() @ b.double()
    error = ((product.cpu().double() - exact).norm() / exact.norm()).item()
    low, high = {
        "fp8": (0.02, 0.06),
        "int8": (0.002, 0.02),
        "bf16": (1e-3, 6e-3),
        "fp16": (1e-4, 8e-4),
        "mixed": (1e-4, 8e-4),
    }.get(precision, (0.0, 1e-3))
    assert low < error < high
