"""Cases and names of PyTorch beyond those of the engine, with results worked out by hand, or NumPy's."""

from __future__ import annotations

import neurenix as nx
import neurenix.torch as torch
import numpy as np
import pytest

F = nx.nn.functional


def test_masks_broadcast_the_tensor() -> None:
    mask = nx.tensor([[True, False], [False, True]])
    assert nx.ones(2).masked_fill(mask, 5.0).tolist() == [[5, 1], [1, 5]]
    assert nx.zeros(2).masked_scatter(mask, nx.tensor([3.0, 4.0])).tolist() == [[3, 0], [0, 4]]
    with pytest.raises(ValueError, match="do not fit"):
        nx.ones(3).masked_fill(mask, 5.0)


def test_sums_of_truth_values_mean_or() -> None:
    x, index = nx.tensor([False, True]), nx.tensor([0, 0])
    source = nx.tensor([True, True])
    assert x.index_add(0, index, source).tolist() == [True, True] and x.scatter_add(0, index, source).dtype == nx.bool
    assert x.scatter_reduce(0, index, nx.tensor([True, False]), "prod").tolist() == [False, True]
    assert x.scatter(0, index, True, reduce="add").tolist() == [True, True]
    assert x.index_put((index,), source, accumulate=True).tolist() == [True, True]


def test_factors_of_integers() -> None:
    x = nx.tensor([1, 2])
    assert x.add(x, alpha=3).tolist() == [4, 8] and torch.sub(x, x, alpha=2).dtype == nx.int64
    assert nx.tensor([True]).add(nx.tensor([True]), alpha=False).tolist() == [True]
    with pytest.raises(TypeError, match="alpha must not be a floating-point number"):
        x.add(x, alpha=0.5)
    assert x.index_add(0, nx.tensor([1]), nx.tensor([5]), alpha=2).tolist() == [1, 12]
    assert nx.addmv(x, nx.tensor([[1, 1], [1, 1]]), x, beta=1.5, alpha=2.5).tolist() == [7, 8]


def test_elements_of_other_kinds() -> None:
    assert nx.tensor([10, 100]).log10().tolist() == [1.0, 2.0] and nx.tensor([True]).square().dtype == nx.int64
    assert nx.tensor([True, False]).sign().tolist() == [True, False]
    assert nx.copysign(nx.tensor([1, -2]), nx.tensor([-1, 1])).tolist() == [-1.0, 2.0]


def test_empty_parts() -> None:
    assert nx.cat([nx.zeros(0), nx.ones(2, 3)], 1).shape == (2, 3)
    assert nx.zeros(5).gather(0, nx.zeros(2, 0, dtype=nx.int64)).shape == (2, 0)
    assert nx.tensor(3.0).gather(0, nx.tensor([0])).tolist() == [3.0]
    assert [part.tolist() for part in nx.tensor(2.0).nonzero(as_tuple=True)] == [[0]]
    assert F.pixel_shuffle(nx.zeros(0, 4, 2, 2), 2).shape == (0, 1, 4, 4)
    with pytest.raises(IndexError):
        nx.cat([nx.zeros(2), nx.ones(2, 3)], 1)


@pytest.mark.parametrize("shape", [(6, 1), (7, 3), (9, 4)])
@pytest.mark.parametrize("axis", [0, 1])
def test_distinct_slices(shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(0).integers(-1, 2, shape)
    values, inverse, counts = nx.unique(nx.tensor(x), return_inverse=True, return_counts=True, dim=axis)
    expected = np.unique(x, return_inverse=True, return_counts=True, axis=axis)
    assert values.tolist() == expected[0].tolist() and counts.tolist() == expected[2].tolist()
    assert inverse.tolist() == expected[1].flatten().tolist()


def test_places_in_sorted_rows() -> None:
    rows, values = nx.tensor([[1, 3, 5], [2, 4, 6]]), nx.tensor([[3, 6], [3, 6]])
    assert torch.searchsorted(rows, values).tolist() == [[1, 3], [1, 2]]
    assert torch.searchsorted(rows, values, side="right", out_int32=True).tolist() == [[2, 3], [1, 3]]
    assert torch.searchsorted(nx.tensor([5, 1, 3]), nx.tensor([3]), sorter=nx.tensor([1, 2, 0])).tolist() == [1]
    assert torch.searchsorted(nx.zeros(0, 3), nx.zeros(0, 2)).shape == (0, 2)
    with pytest.raises(ValueError, match="side='left' contradicts"):
        torch.searchsorted(nx.tensor([1]), nx.tensor([1]), side="left", right=True)


def test_repetitions() -> None:
    x = nx.tensor([[1, 2], [3, 4]])
    assert x.repeat_interleave(nx.tensor([2, 0]), 0, output_size=2).tolist() == [[1, 2], [1, 2]]
    assert torch.repeat_interleave(nx.tensor([0, 2, 1])).tolist() == [1, 1, 2]


def test_ranges_of_integers() -> None:
    assert nx.arange(0.0, -8.0, -4.0, dtype=nx.int64).tolist() == [0, -4] and nx.arange(3.1, dtype=nx.int32).tolist() == [0, 1, 2, 3]
    assert nx.linspace(-2, 10, 4, dtype=nx.int64).tolist() == [-2, 2, 6, 10] and nx.linspace(5, 1, 1, dtype=nx.int64).tolist() == [5]
    assert nx.logspace(0, 3, 4, base=2, dtype=nx.int64).tolist() == [1, 2, 4, 8]
    assert torch.range(1, 3).tolist() == [1.0, 2.0, 3.0] and torch.range(0, 1, 0.5).dtype == nx.float32


def test_norms_and_differences() -> None:
    x = nx.tensor([[3.0, 0.0], [0.0, -4.0]])
    assert x.norm("nuc").item() == pytest.approx(7.0) and torch.norm(x, "fro", dtype=nx.float64).item() == 5.0
    assert nx.diff(nx.tensor([1, 2]), n=0, append=nx.tensor([9])).tolist() == [1, 2]
    assert nx.bincount(nx.tensor([0, 0]), nx.tensor([1, 2])).dtype == nx.float64
    assert nx.linalg.vector_norm(nx.tensor(-2.0), dim=0).item() == 2.0
    assert nx.tensordot(nx.ones(1, 2), nx.ones(3, 2), dims=[[0, 1], [0, 1]]).item() == 6.0
    assert nx.linalg.vecdot(nx.ones(3, 2), nx.ones(3, 2), dim=0).tolist() == [3.0, 3.0]


def test_negative_widths_remove_elements() -> None:
    x = nx.arange(4.0).reshape(1, 4)
    assert F.pad(x, (-1, 1), "reflect").tolist() == [[1, 2, 3, 2]] and F.pad(x, (2, -1), "circular").tolist() == [[1, 2, 0, 1, 2]]
    assert F.pad(x, (-4, 5), "replicate").tolist() == [[3, 3, 3, 3, 3]]
    with pytest.raises(ValueError, match="pad: widths"):
        F.pad(x, (-3, 3), "reflect")


def test_pooling_with_odd_windows() -> None:
    x = nx.tensor([[[1.0, 5.0, 2.0, 4.0]]], requires_grad=True)
    values, indices = F.adaptive_max_pool1d(x, 3, return_indices=True)
    assert values.tolist() == [[[5, 5, 4]]] and indices.tolist() == [[[1, 1, 3]]]
    values.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[[0, 2, 0, 1]]]
    grid = nx.arange(12.0).reshape(1, 3, 4)
    found = F.adaptive_max_pool2d(grid, (2, 3), return_indices=True)
    assert found[0].tolist() == F.adaptive_max_pool2d(grid, (2, 3)).tolist() == [[[5, 6, 7], [9, 10, 11]]]
    assert found[1].tolist() == [[[5, 6, 7], [9, 10, 11]]]
    sums = F.avg_pool2d(nx.ones(1, 3, 3), 2, 2, ceil_mode=True, divisor_override=1)
    assert sums.tolist() == [[[4, 2], [2, 1]]]


def test_losses_and_similarities_of_few_dimensions() -> None:
    assert F.multi_margin_loss(nx.tensor(0.5), nx.tensor(0)).item() == 0.0
    assert F.softmin(nx.tensor(3.0), 0).item() == 1.0 and F.log_softmax(nx.tensor(3.0), 0).item() == 0.0
    assert F.cosine_similarity(nx.ones(1, 2, 3), nx.ones(2, 1, 3), dim=-2).shape == (2, 3)


def test_top_level_functions_of_layers() -> None:
    x, weight = nx.ones(1, 1, 3, 3), nx.ones(1, 1, 2, 2)
    assert torch.conv2d(x, weight).tolist() == [[[[4, 4], [4, 4]]]]
    assert torch.embedding(nx.eye(3), nx.tensor([2])).tolist() == [[0, 0, 1]]
    mean, var = nx.tensor([1.0]), nx.tensor([4.0])
    found = torch.batch_norm(nx.tensor([[3.0], [5.0]]), nx.tensor([2.0]), nx.tensor([7.0]), mean, var, False, 0.1, 0.0, True)
    assert found.tolist() == [[9.0], [11.0]]
    scores, target = nx.tensor([1.0, -3.0]), nx.tensor([1.0, -1.0])
    assert torch.hinge_embedding_loss(scores, target, 1.0, 0).tolist() == [1.0, 4.0]
    assert torch.hinge_embedding_loss(scores, target, reduction=2).item() == 5.0
    assert torch.ctc_loss(nx.zeros(2, 1, 3), nx.tensor([[1]]), nx.tensor([2]), nx.tensor([1]), 0, 2, True).shape == ()
    weights = torch.binary_cross_entropy_with_logits(nx.zeros(2), nx.ones(2), None, nx.tensor(3.0), 2)
    assert weights.item() == pytest.approx(6 * np.log(2))
    values, indices = torch.adaptive_max_pool1d(nx.tensor([[1.0, 2.0]]), 1)
    assert values.tolist() == [[2.0]] and indices.tolist() == [[1]]
    assert torch.dropout(scores, 0.5, False).tolist() == [1.0, -3.0]


WINDOWS = {
    "hann": np.hanning, "hamming": np.hamming, "blackman": np.blackman, "bartlett": np.bartlett,
    "kaiser": lambda count: np.kaiser(count, 12.0),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8])
def test_windows(name: str, count: int) -> None:
    window = getattr(nx.signal.windows, name)
    np.testing.assert_allclose(window(count, dtype=nx.float64).numpy(), WINDOWS[name](count), atol=1e-12)
    period = WINDOWS[name](count + 1)[:count] if count > 1 else np.ones(count)
    np.testing.assert_allclose(getattr(torch, f"{name}_window")(count).numpy(), period, atol=1e-6)
    np.testing.assert_allclose(window(count, sym=False).numpy(), period, atol=1e-6)


def test_windows_by_definition() -> None:
    windows = nx.signal.windows
    n = np.arange(5)
    np.testing.assert_allclose(windows.gaussian(5, std=2.0).numpy(), np.exp(-((n - 2) ** 2) / 8), rtol=1e-6)
    np.testing.assert_allclose(windows.exponential(5, tau=2.0).numpy(), np.exp(-abs(n - 2) / 2), rtol=1e-6)
    np.testing.assert_allclose(windows.cosine(5).numpy(), np.sin(np.pi * (n + 0.5) / 5), rtol=1e-6)
    ends = windows.nuttall(5, dtype=nx.float64)
    assert ends[2].item() == pytest.approx(1.0) and ends[0].item() == pytest.approx(0.0003628)
    with pytest.raises(ValueError, match="expected a floating-point dtype"):
        windows.hann(4, dtype=nx.int64)


def test_other_new_tensors() -> None:
    assert torch.frombuffer(b"\x01\x00\x02\x00\x03\x00", dtype=nx.int16, count=2, offset=2).tolist() == [2, 3]
    assert torch.frombuffer(np.array([1.5, 2.5], dtype=np.float32), dtype=nx.float32).tolist() == [1.5, 2.5]
    with pytest.raises(ValueError, match="no whole number of elements"):
        torch.frombuffer(b"\x01\x00\x02", dtype=nx.int16)
    assert torch.scalar_tensor(3).dtype == nx.float32 and torch.empty_strided((2, 3), (3, 1)).shape == (2, 3)
    drawn = torch.randint_like(nx.zeros(200), 3, 5)
    assert drawn.dtype == nx.float32 and set(drawn.tolist()) == {3.0, 4.0}


def test_rarer_functions() -> None:
    x = nx.arange(6).reshape(2, 3)
    assert torch.permute_copy(x, (1, 0)).shape == (3, 2) and len(torch.unbind_copy(x)) == 2
    assert torch.fill(x, 7).tolist() == [[7] * 3] * 2 and x[0, 0].item() == 0
    assert torch.nonzero_static(nx.tensor([0, 5]), size=2).tolist() == [[1], [-1]]
    assert torch.as_strided_scatter(nx.zeros(4), nx.ones(2), (2,), (2,), 1).tolist() == [0, 1, 0, 1]
    assert torch.result_type(nx.tensor([1], dtype=nx.int8), 1.5) == nx.float32
    assert torch.result_type(nx.tensor([1], dtype=nx.int8), nx.tensor(300)) == nx.int8
    assert torch.result_type(nx.tensor([1.0], dtype=nx.float16), nx.tensor(1.0)) == nx.float16
    assert torch.polygamma(1, nx.tensor([1.0])).item() == pytest.approx(np.pi**2 / 6)
    assert torch.constant_pad_nd(nx.ones(1), (1, 0), 2.0).tolist() == [2.0, 1.0]
    nx.manual_seed(0)
    assert abs(torch.poisson(nx.ones(4000) * 3).mean().item() - 3) < 0.2
    assert abs(torch.binomial(nx.ones(4000) * 10, nx.ones(4000) * 0.3).mean().item() - 3) < 0.2


def test_attributes_of_tensors() -> None:
    x = nx.tensor([1.0, 2.0], device="cpu")
    assert x.is_cpu and not x.is_sparse and not x.is_quantized and x.layout == torch.strided
    assert x.new(2).shape == (2,) and x.new([5.0]).tolist() == [5.0] and x.to_dense() is x
    assert x.apply_(lambda each: each * 3) is x and x.tolist() == [3.0, 6.0]
    assert x.map_(nx.tensor(1.0), lambda mine, theirs: mine - theirs).tolist() == [2.0, 5.0]
    assert nx.tensor([0.0, 1.0]).bernoulli().tolist() == [0.0, 1.0]
    assert nx.zeros(2, 3).swapdims(0, 1).shape == (3, 2)
    assert nx.ones(2).index_reduce_(0, nx.tensor([0, 0]), nx.tensor([3.0, 5.0]), "amax").tolist() == [5, 1]


def test_names_of_types() -> None:
    x = nx.tensor([1.5], device="cpu")
    assert x.type() == torch.typename(x) == "torch.FloatTensor" and x.type("torch.LongTensor").tolist() == [1]
    assert x.type(torch.DoubleTensor).dtype == x.type(torch.float64).dtype == nx.float64
    assert torch.typename(3) == "int"


def test_settings() -> None:
    assert isinstance(torch.float32, torch.dtype) and torch.get_num_interop_threads() == 1
    torch.manual_seed(123)
    assert torch.initial_seed() == 123
    chosen = torch.seed()
    assert torch.initial_seed() == chosen
    torch.manual_seed(0)
    assert not torch.is_autocast_enabled() and torch.get_autocast_dtype("cpu") == torch.bfloat16
    with torch.autocast("cpu", torch.float16):
        assert torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.float16
