"""Edge cases: indices out of range, masks, slow loaders, impossible alignments, float64, empty tensors."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import neurenix as nx
import numpy as np
import pytest
from neurenix import amp, data, nn

INF = float("inf")


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("index", [(0, 5), (0, -4), (2, 0), (-3, 0)])
def test_index_put_refuses_an_index_out_of_range(index: tuple[int, int], accumulate: bool) -> None:
    places = tuple(nx.tensor([number]) for number in index)
    with pytest.raises(IndexError, match="out of range"):
        nx.index_put(nx.zeros(2, 3), places, nx.ones(1), accumulate).tolist()


def test_index_put_takes_masks() -> None:
    mask, values = nx.tensor([[True, False, True], [False, False, True]]), nx.tensor([7.0, 8.0, 9.0])
    assert nx.index_put(nx.ones(2, 3), (mask,), values).tolist() == [[7.0, 1.0, 8.0], [1.0, 1.0, 9.0]]
    assert nx.index_put(nx.ones(2, 3), (mask,), values, True).tolist() == [[8.0, 1.0, 9.0], [1.0, 1.0, 10.0]]
    x = nx.zeros(2, 3)
    assert x.index_put_((nx.tensor([False, True]), nx.tensor([0, 2])), nx.tensor(4.0)) is x
    assert x.tolist() == [[0.0, 0.0, 0.0], [4.0, 0.0, 4.0]]
    rows = nx.tensor([1, -1, 0])
    assert x.index_put_((rows,), nx.ones(3), accumulate=True).tolist() == [[1.0, 1.0, 1.0], [6.0, 2.0, 6.0]]


def test_index_put_has_gradients() -> None:
    x, values = nx.zeros(2, 3, requires_grad=True), nx.ones(2, requires_grad=True)
    place = nx.tensor([[True, False, False], [False, True, False]])
    (nx.index_put(x, (place,), values) * nx.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).sum().backward()
    assert x.grad.tolist() == [[0.0, 2.0, 3.0], [4.0, 0.0, 6.0]] and values.grad.tolist() == [1.0, 5.0]


def test_masked_scatter_without_places() -> None:
    nothing = nx.zeros(0, 3)
    assert nothing.masked_scatter(nothing > 0, nx.ones(2)).shape == (0, 3)
    assert nothing.masked_scatter_(nothing > 0, nx.ones(0)).shape == (0, 3)
    x = nx.ones(2)
    assert x.masked_scatter(x > 1, nx.ones(0)).tolist() == [1.0, 1.0]


class Slow(data.Dataset):
    """A sample that waits until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.delivered = False

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        self.released.wait(60)
        self.delivered = True
        return index


class Late(data.Dataset):
    """A sample whose source is too slow."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        raise TimeoutError("the camera does not answer")


def test_a_late_batch_is_told_at_once() -> None:
    samples = Slow()
    try:
        with pytest.raises(RuntimeError, match="more than 0.05 seconds"):
            list(data.DataLoader(samples, num_workers=1, timeout=0.05))
        assert not samples.released.is_set() and not samples.delivered
    finally:
        samples.released.set()


@pytest.mark.parametrize("timeout", [0, 30])
def test_the_data_sets_own_timeout_is_passed_on(timeout: float) -> None:
    with pytest.raises(TimeoutError, match="the camera does not answer"):
        list(data.DataLoader(Late(), num_workers=1, timeout=timeout))


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_loss_with_probabilities_of_zero(zero_infinity: bool) -> None:
    """PyTorch's numbers. In the first sample, two classes have probability 0 at one frame; the second has no alignment."""
    scores = np.sin(np.arange(48.0, dtype=np.float32).reshape(6, 2, 4) * 1.7)
    scores[1, 0, :2] = -INF
    scores[:, 1, 2] = -INF
    x = nx.tensor(scores, requires_grad=True)
    loss = nn.CTCLoss(reduction="none", zero_infinity=zero_infinity)(
        x.log_softmax(-1), nx.tensor([[1, 3], [1, 2]]), [6, 6], [2, 2]
    )
    assert loss.tolist() == [pytest.approx(5.4311724, rel=1e-5), 0.0 if zero_infinity else INF]
    loss.sum().backward()
    gradient = x.grad.numpy()
    assert np.isfinite(gradient[:, 0]).all()
    np.testing.assert_allclose(gradient[0, 0], [0.20548972, -0.44605774, 0.15915123, 0.08141679], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradient[5, 0], [-0.50303739, 0.36590081, 0.44846487, -0.31132829], rtol=1e-4, atol=1e-5)
    assert (gradient[:, 1] == 0.0).all()


@pytest.mark.parametrize("least", [-1e4, -1e9, float(np.finfo(np.float32).min)])
def test_gradients_of_attention_whose_queries_have_no_key(least: float) -> None:
    # As for a sequence that is padding only. What is added to all scores of a query changes no weight.
    q, k, v = (nx.randn(1, 1, 16, 8).requires_grad_() for _ in range(3))
    mask = nx.zeros(16, 16)
    mask[8:] = least
    attended = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    weights = ((q @ k.mT) * 8**-0.5).softmax(-1)
    for mine, composed in zip(nx.grad(attended.square().sum(), [q, k, v]), nx.grad((weights @ v).square().sum(), [q, k, v])):
        assert nx.allclose(mine, composed, rtol=1e-3, atol=1e-4)


def test_a_product_of_two_precisions_stays_out_of_autocast() -> None:
    single, double = nx.randn(2, 2), nx.randn(2, 2).double()
    expected = (single @ double).numpy()
    assert expected.dtype == np.float64
    with amp.autocast("cpu", nx.bfloat16):
        products = [single @ double, double @ single, single.matmul(double), nx.einsum("ij,jk->ik", single, double)]
        assert nn.functional.linear(single, double).dtype == nx.float64
        assert (single @ single).dtype == nx.bfloat16
    assert all(product.dtype == nx.float64 for product in products)
    for product in (products[0], products[2], products[3]):
        np.testing.assert_array_equal(product.numpy(), expected)


@pytest.mark.parametrize("name", ["uniform_", "normal_", "exponential_"])
def test_wide_floats_are_drawn_wide(name: str) -> None:
    nx.manual_seed(1)
    drawn = getattr(nx.zeros(1000, dtype="float64"), name)().numpy()
    assert drawn.dtype == np.float64
    assert (drawn != drawn.astype(np.float32)).mean() > 0.9


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_uniform_numbers_stay_below_the_end(dtype: str) -> None:
    nx.manual_seed(1)
    low, high = 1.0, 1.0 + 2.0**-6
    drawn = nx.zeros(20000, dtype=dtype).uniform_(low, high)
    assert bool((drawn >= low).all()) and bool((drawn < high).all())
    with pytest.raises(ValueError, match="uniform_"):
        drawn.uniform_(2.0, 1.0)


def test_the_namespace_lists_what_it_offers() -> None:
    names = dir(nx)
    assert {"Tensor", "compile", "CustomKernel", "save", "load", "linalg", "nn", "random", "sin", "float32"} <= set(names)
    assert not {"Any", "Callable", "annotations", "builtins", "importlib", "math", "ModuleType"} & set(names)


def test_none_is_no_data() -> None:
    for make in (nx.Tensor, nx.tensor, nx.asarray):
        with pytest.raises(TypeError, match="got None"):
            make(None)
    assert nx.Tensor().shape == (0,) and nx.Tensor(shape=(2, 3)).shape == (2, 3)


def test_a_file_goes_into_a_folder_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "not" / "there.safetensors"
    with pytest.raises(FileNotFoundError, match="the folder does not exist") as refused:
        nx.save({"x": nx.ones(2)}, path)
    assert refused.value.filename == str(path.parent) and not path.parent.exists()
    nx.save({"x": nx.ones(2)}, tmp_path / "here.safetensors")
    (tmp_path / "broken").write_bytes(b"no tensors")
    for name, kind in (("absent", FileNotFoundError), ("broken", ValueError)):
        with pytest.raises(kind) as told:
            nx.load(tmp_path / name)
        assert str(told.value).count(str(tmp_path / name)) == 1, str(told.value)


def test_files_are_loaded_with_pytorchs_names(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    nx.save({"x": nx.ones(2)}, path)
    for options in (
        {"map_location": "cpu", "weights_only": True},
        {"map_location": nx.Device("cpu"), "weights_only": False},
        {"map_location": None},
    ):
        x = nx.load(path, **options)["x"]
        assert x.tolist() == [1.0, 1.0] and x.device.name == "cpu"
    with pytest.raises(ValueError, match="nowhere"):
        nx.load(path, map_location="nowhere")
    with pytest.raises(TypeError, match="device and map_location"):
        nx.load(path, "cpu", map_location="cpu")


def test_open_files_are_written_and_read(tmp_path: Path) -> None:
    state = {"w": nx.arange(3), "epoch": 2}
    memory = io.BytesIO()
    nx.save(state, memory)
    memory.seek(0)
    with open(tmp_path / "state", "wb") as file:
        nx.save(state, file)
    with open(tmp_path / "state", "rb") as file:
        for back in (nx.load(memory), nx.load(file), nx.load(tmp_path / "state")):
            assert back["w"].tolist() == [0, 1, 2] and back["epoch"] == 2
    for closed in (file, memory):
        closed.close()
        with pytest.raises(ValueError, match="closed"):
            nx.load(closed)
        with pytest.raises(ValueError, match="closed"):
            nx.save(state, closed)
    with pytest.raises(TypeError, match="str"), open(tmp_path / "text", "w") as text:
        nx.save(state, text)
    for wrong in (3, None, b"name"):
        with pytest.raises(TypeError, match="open binary file"):
            nx.save(state, wrong)
        with pytest.raises(TypeError, match="open binary file"):
            nx.load(wrong)
    with pytest.raises(ValueError):
        nx.load(io.BytesIO(b"no tensors"))


def test_memory_of_others_is_read_or_refused_and_never_kept() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    assert nx.Tensor(array).tolist() == [0.0, 1.0, 2.0]
    numbers = bytearray(b"\x01\x02")
    view = memoryview(numbers)
    x = nx.Tensor(view)
    view.release()
    # The copy has released the buffer: a bytearray with an exported buffer cannot grow.
    numbers += b"\x03"
    assert x.tolist() == [1, 2]
    with pytest.raises((TypeError, ValueError)):
        nx.Tensor(view)


def test_a_kernel_for_the_cpu_alone_needs_no_sources() -> None:
    double = nx.CustomKernel(
        "double", inputs=[("x", "float32", "n")], outputs=[("y", "float32", "n")], cpu=lambda x: 2 * x
    )
    assert double(nx.ones(3)).tolist() == [2.0] * 3


def test_borders_that_do_not_fit() -> None:
    x = nx.ones(1, 2, 3)
    for widths, mode in (((3, 0), "reflect"), ((0, 4), "circular"), ((-3, 1), "reflect"), ((-4, 0), "replicate"), ((1,), "reflect")):
        with pytest.raises(ValueError, match="pad"):
            nx.functional.pad(x, widths, mode=mode)
    with pytest.raises(ValueError, match="mirror"):
        nx.functional.pad(x, (1, 1), mode="mirror")
    with pytest.raises(ValueError, match="value"):
        nx.functional.pad(x, (1, 1), mode="reflect", value=1.0)
    with pytest.raises(ValueError, match="fold"):
        nx.functional.fold(nx.ones(1, 4, 5), (3, 3), 2)
    assert nx.functional.pad(x, (2, 3), mode="circular").shape == (1, 2, 8)


def test_bags_that_are_empty_or_all_padding() -> None:
    weight = nx.Tensor([[1.0, -2.0], [3.0, -4.0]], requires_grad=True)
    index, offsets = nx.tensor([1, 1, 0]), nx.tensor([0, 0, 2])
    for mode, expected in (("sum", [[0.0, 0.0], [0.0, 0.0], [1.0, -2.0]]), ("max", [[0.0, 0.0], [0.0, 0.0], [1.0, -2.0]])):
        bags = nx.functional.embedding_bag(index, weight, offsets, mode=mode, padding_idx=1)
        assert bags.tolist() == expected
    bags.sum().backward()
    assert weight.grad.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    with pytest.raises(ValueError, match="offsets"):
        nx.functional.embedding_bag(index, weight)
    with pytest.raises(ValueError, match="per_sample_weights"):
        nx.functional.embedding_bag(index, weight, offsets, per_sample_weights=nx.ones(3))
    weighted = nx.functional.embedding_bag(
        index, weight, offsets, mode="sum", per_sample_weights=nx.Tensor([1.0, 2.0, 3.0])
    )
    assert weighted.tolist() == [[0.0, 0.0], [9.0, -12.0], [3.0, -6.0]]


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("sizes", [(2,), (2, 3), (0, 1), (2, 3, 4)])
def test_meshgrid_is_numpys(sizes: tuple[int, ...], indexing: Any) -> None:
    axes = [np.arange(size) for size in sizes]
    grids = nx.meshgrid(*map(nx.asarray, axes), indexing=indexing)
    for grid, expected in zip(grids, np.meshgrid(*axes, indexing=indexing), strict=True):
        assert grid.shape == expected.shape and grid.tolist() == expected.tolist()
