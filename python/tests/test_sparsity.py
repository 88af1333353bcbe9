"""2:4 sparsity: pruning, compression, products, and models with compressed layers, compared with NumPy."""

from __future__ import annotations

from pathlib import Path

import neurenix as nx
import numpy as np
import pytest
from neurenix import _engine, nn

#: The relative error of rounding to a dtype.
ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def numbers(tensor: nx.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def network() -> nn.Sequential:
    """Two layers that can be compressed, and one that cannot."""
    return nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 12, bias=False), nn.Tanh(), nn.Linear(12, 3))


@pytest.mark.parametrize("dtype", ROUNDING)
def test_pruning_keeps_the_two_greatest_of_each_four(dtype: str) -> None:
    weight = nx.randn(5, 2, 12).to(dtype)
    kept, given = numbers(nn.utils.keep_two_of_four(weight)), numbers(weight)
    assert kept.shape == given.shape
    for four, result in zip(given.reshape(-1, 4), kept.reshape(-1, 4)):
        # The sort is stable: of equal magnitudes the first are kept.
        greatest = np.argsort(-np.abs(four), kind="stable")[:2]
        expected = np.zeros(4)
        expected[greatest] = four[greatest]
        np.testing.assert_array_equal(result, expected)
    assert nn.utils.keep_two_of_four(weight).dtype == weight.dtype


def test_ties_and_special_numbers() -> None:
    keep = nn.utils.keep_two_of_four
    assert keep(nx.tensor([1.0, -1.0, 1.0, 1.0])).tolist() == [1.0, -1.0, 0.0, 0.0]
    assert keep(nx.zeros(2, 4)).tolist() == [[0.0] * 4] * 2
    assert keep(nx.zeros(3, 0)).shape == (3, 0)
    special = keep(nx.tensor([np.inf, 3.0, np.nan, -np.inf])).numpy()
    np.testing.assert_array_equal(special, np.float32([np.inf, 0.0, np.nan, 0.0]))


def test_gradients_reach_what_is_kept() -> None:
    weight = nx.tensor([4.0, 1.0, -3.0, 2.0], requires_grad=True)
    (nn.utils.keep_two_of_four(weight) * nx.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [1.0, 0.0, 3.0, 0.0]


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("shape", [(6, 8), (7, 40), (1, 1024), (0, 8), (4, 0)])
def test_what_was_compressed_comes_back(dtype: str, shape: tuple[int, int]) -> None:
    weight = nn.utils.keep_two_of_four(nx.randn(*shape).to(dtype))
    values, places = _engine.compress_two_of_four(weight)
    assert values.shape == (shape[0], shape[1] // 2) and places.shape == (shape[0], shape[1] // 8)
    assert values.dtype == weight.dtype and places.dtype == nx.uint8
    dense = _engine.decompress_two_of_four(values, places)
    assert dense.dtype == weight.dtype
    np.testing.assert_array_equal(numbers(dense), numbers(weight))


def test_the_format() -> None:
    # Places 1 and 2, then 0 and 3: two bits each, the first in the lowest.
    values, places = _engine.compress_two_of_four(nx.tensor([[0.0, 1.0, 2.0, 0.0, 3.0, 0.0, 0.0, 4.0]]))
    assert values.tolist() == [[1.0, 2.0, 3.0, 4.0]] and places.tolist() == [[0b11_00_10_01]]
    # The first zeros fill what is missing.
    values, places = _engine.compress_two_of_four(nx.tensor([[0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0]]))
    assert values.tolist() == [[0.0, 5.0, 0.0, 0.0]] and places.tolist() == [[0b01_00_10_00]]


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("leading", [(), (1,), (1, 1), (5,), (2, 3), (0,)])
def test_products_are_those_of_the_pruned_weights(dtype: str, leading: tuple[int, ...]) -> None:
    inner = 136
    weight = nn.utils.keep_two_of_four(nx.randn(20, inner).to(dtype))
    x = nx.randn(*leading, inner).to(dtype)
    found = _engine.matmul_sparse(x, *_engine.compress_two_of_four(weight))
    assert found.dtype == x.dtype and found.shape == (*leading, 20)
    expected = numbers(x) @ numbers(weight).T
    # 16-bit floats are summed in float32, and the sum is rounded.
    sums = np.abs(numbers(x)) @ np.abs(numbers(weight)).T * inner * min(ROUNDING[dtype], ROUNDING["float32"])
    bound = 2 * sums + np.abs(expected) * ROUNDING[dtype] * 1.1
    assert (np.abs(numbers(found) - expected) <= bound + 1e-7 * (dtype == "float16")).all()


def test_gradients_of_inputs_are_those_of_the_dense_product() -> None:
    weight = nn.utils.keep_two_of_four(nx.randn(6, 16))
    compressed = _engine.compress_two_of_four(weight)
    for rows in (1, 4):
        x, factor = nx.randn(rows, 16, requires_grad=True), nx.randn(rows, 6)
        (_engine.matmul_sparse(x, *compressed) * factor).sum().backward()
        assert x.grad is not None
        np.testing.assert_allclose(numbers(x.grad), numbers(factor) @ numbers(weight), rtol=1e-5, atol=1e-5)


def test_models_are_pruned_in_place() -> None:
    model = network()
    before = {name: numbers(each) for name, each in model.named_parameters()}
    weight = model[0].weight
    assert nn.utils.prune_two_of_four(model) == ["0.weight", "2.weight"]
    assert model[0].weight is weight and weight.requires_grad
    for name, each in model.named_parameters():
        kept = nn.utils.keep_two_of_four(nx.tensor(before[name])) if name in ("0.weight", "2.weight") else None
        np.testing.assert_array_equal(numbers(each), before[name] if kept is None else kept.numpy())
    # What is pruned stays as it is.
    pruned = numbers(weight)
    assert nn.utils.prune_two_of_four(model) == ["0.weight", "2.weight"]
    np.testing.assert_array_equal(numbers(weight), pruned)
    assert nn.utils.prune_two_of_four(nn.Linear(12, 8)) == []


def test_compressed_models_compute_the_same() -> None:
    model = network().eval()
    nn.utils.prune_two_of_four(model)
    inputs = [nx.randn(16), nx.randn(1, 16), nx.randn(9, 16), nx.randn(2, 3, 16), nx.randn(5, 4, 4)]
    with nx.no_grad():
        expected = [numbers(model(x)) for x in inputs]
        weights = [numbers(model[place].weight) for place in (0, 2)]
        assert nn.utils.compress_two_of_four(model) is model
        for x, dense in zip(inputs, expected):
            np.testing.assert_allclose(numbers(model(x)), dense, rtol=1e-5, atol=1e-6)
    assert [type(layer).__name__ for layer in model] == ["SparseLinear", "ReLU", "SparseLinear", "Tanh", "Linear"]
    for place, weight in zip((0, 2), weights):
        np.testing.assert_array_equal(numbers(model[place].to_dense()), weight)
    assert model[0].bias is not None and model[2].bias is None and not model[0].training
    assert list(model[0].parameters()) == [], "for inference"


def test_compressed_weights_take_nine_sixteenths_in_16_bits() -> None:
    layer = nn.Linear(256, 64, dtype="bfloat16")
    nn.utils.prune_two_of_four(layer)
    sparse = nn.utils.compress_two_of_four(layer)
    assert isinstance(sparse, nn.SparseLinear)
    size = sum(each.numel() * each.itemsize for each in (sparse.values, sparse.places))
    assert size * 16 == layer.weight.numel() * layer.weight.itemsize * 9
    x = nx.randn(3, 256).to("bfloat16")
    found, dense = sparse(x), layer(x)
    # Both round the sum and add the bias, so they may differ by several roundings of it.
    bound = 4 * ROUNDING["bfloat16"] * np.abs(numbers(dense)).max()
    assert found.dtype == nx.bfloat16 and np.abs(numbers(found) - numbers(dense)).max() <= bound


def test_a_layer_with_two_names_stays_one() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    model.append(model[0])
    assert nn.utils.prune_two_of_four(model) == ["0.weight"]
    nn.utils.compress_two_of_four(model)
    assert isinstance(model[0], nn.SparseLinear) and model[2] is model[0]


def test_states_are_saved_and_loaded(tmp_path: Path) -> None:
    model = network()
    nn.utils.prune_two_of_four(model)
    nn.utils.compress_two_of_four(model)
    state = model.state_dict()
    assert list(state) == ["0.values", "0.places", "0.bias", "2.values", "2.places", "4.weight", "4.bias"]
    nx.save(state, tmp_path / "model.safetensors")
    other = nn.Sequential(
        nn.SparseLinear(16, 24), nn.ReLU(), nn.SparseLinear(24, 12, bias=False), nn.Tanh(), nn.Linear(12, 3)
    )
    assert other[0].to_dense().tolist() == nx.zeros(24, 16).tolist()
    other.load_state_dict(nx.load(tmp_path / "model.safetensors"))
    x = nx.randn(4, 16)
    assert other(x).tolist() == model(x).tolist()
    half = other.half()
    assert half[0].values.dtype == nx.float16 and half[0].places.dtype == nx.uint8
    assert half(x.half()).dtype == nx.float16


def test_shared_weights_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(16, 8, bias=False), nn.Linear(16, 8), nn.Linear(16, 8))
    model[1].weight = model[0].weight
    assert nn.utils.prune_two_of_four(model) == ["2.weight"]
    nn.utils.compress_two_of_four(model)
    assert [type(layer) for layer in model] == [nn.Linear, nn.Linear, nn.SparseLinear]


def test_hooks_stay() -> None:
    model, calls = nn.Sequential(nn.Linear(16, 8)), []
    model[0].register_forward_hook(lambda *arguments: calls.append("after"))
    model[0].register_forward_pre_hook(lambda *arguments: calls.append("before"))
    nn.utils.prune_two_of_four(model)
    nn.utils.compress_two_of_four(model)(nx.ones(2, 16))
    assert calls == ["before", "after"]


@pytest.mark.parametrize("bias", [False, True])
def test_within_autocast_products_have_its_dtype(bias: bool) -> None:
    layer = nn.Linear(32, 8, bias=bias)
    nn.utils.prune_two_of_four(layer)
    sparse = nn.SparseLinear.from_linear(layer)
    x = nx.randn(4, 32)
    with nx.amp.autocast(dtype=nx.bfloat16):
        found, dense = sparse(x), layer(x)
    assert found.dtype == dense.dtype == nx.bfloat16
    np.testing.assert_allclose(numbers(found), numbers(dense), rtol=2.0**-7, atol=1e-2)


def test_errors() -> None:
    model = network()
    with pytest.raises(ValueError, match=r"0\.weight is not 2:4 sparse: call prune_two_of_four"):
        nn.utils.compress_two_of_four(model)
    assert type(model[0]) is nn.Linear
    with pytest.raises(ValueError, match="^compress_two_of_four: weight is not 2:4 sparse"):
        nn.utils.compress_two_of_four(nn.Linear(8, 8))
    with pytest.raises(ValueError, match="call keep_two_of_four first"):
        nn.SparseLinear.from_linear(nn.Linear(8, 8))
    with pytest.raises(ValueError, match="in_features must be a multiple of 8, got 12"):
        nn.SparseLinear(12, 4)
    with pytest.raises(ValueError, match="must be a multiple of 4"):
        nn.utils.keep_two_of_four(nx.ones(2, 6))
    with pytest.raises(TypeError, match="floats of at least 16 bits"):
        nn.utils.keep_two_of_four(nx.ones(4, dtype=nx.int32))
    with pytest.raises(TypeError, match="keep_two_of_four: expected a tensor, got list"):
        nn.utils.keep_two_of_four([1.0, 2.0, 3.0, 4.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be a multiple of 8"):
        _engine.compress_two_of_four(nx.zeros(2, 12))
    with pytest.raises(ValueError, match="expected a matrix"):
        _engine.compress_two_of_four(nx.zeros(8))
    values, places = _engine.compress_two_of_four(nx.zeros(2, 16))
    with pytest.raises(ValueError, match=r"weights of 16 inputs"):
        _engine.matmul_sparse(nx.ones(3, 8), values, places)
    with pytest.raises(TypeError, match="uint8"):
        _engine.matmul_sparse(nx.ones(3, 16), values, places.to("int32"))
    assert _engine.matmul_sparse(nx.ones(3, 16), values.double(), places).dtype == nx.float64
    with pytest.raises(TypeError, match="prune_two_of_four: model must be a Module, got Tensor"):
        nn.utils.prune_two_of_four(nx.ones(8, 8))  # type: ignore[arg-type]
