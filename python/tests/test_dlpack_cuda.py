"""DLPack between the engine's CUDA devices and PyTorch. Needs a CUDA GPU and PyTorch."""

from __future__ import annotations

import gc

import neurenix as nx
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available() or not any(str(device) == "cuda:0" for device in nx.devices()):
    pytest.skip("no CUDA device for both", allow_module_level=True)


class Versioned:
    """Requests a tensor as a library that supports version 1.0 does."""

    def __init__(self, tensor: nx.Tensor) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None, **_options: object) -> object:
        return self.tensor.__dlpack__(stream=stream, max_version=(1, 0))


def on_gpu(*shape: int) -> nx.Tensor:
    return nx.rand(*shape, device="cuda:0")


def test_the_device_is_named() -> None:
    assert on_gpu(2).__dlpack_device__() == (2, 0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int64", "uint8", "bool"])
def test_values_arrive(dtype: str) -> None:
    x = (on_gpu(5, 7) * 3).to(getattr(nx, dtype))
    there = torch.from_dlpack(x)
    assert there.is_cuda and str(there.dtype) == f"torch.{dtype}"
    assert there.cpu().tolist() == x.tolist()
    back = nx.from_dlpack(there)
    assert str(back.device) == "cuda:0" and str(back.dtype).endswith(dtype)
    assert back.tolist() == x.tolist()


def test_the_memory_is_shared_where_the_taker_may_be_told_so() -> None:
    x = on_gpu(1 << 20)
    x.evaluate()
    before = torch.cuda.memory_allocated()
    try:
        one, two = torch.from_dlpack(Versioned(x)), torch.from_dlpack(Versioned(x))
    except (BufferError, RuntimeError) as refused:
        pytest.skip(f"this PyTorch takes no read-only memory: {refused}")
    assert one.data_ptr() == two.data_ptr() and torch.cuda.memory_allocated() == before
    assert one.sum().item() == pytest.approx(x.sum().item(), rel=1e-4)


def test_a_copy_is_the_takers_own() -> None:
    x = on_gpu(16)
    values = x.tolist()
    there = torch.from_dlpack(x, copy=True)
    there.zero_()
    torch.cuda.synchronize()
    assert x.tolist() == values


def test_strides_both_ways() -> None:
    x = on_gpu(6, 8)
    assert torch.from_dlpack(x.T[1:5:2]).cpu().tolist() == x.T[1:5:2].tolist()
    there = torch.arange(48.0, device="cuda").reshape(6, 8)
    for view in (there.t(), there[::2, 1:], there[:, 3], there[2:3].expand(4, 8), there[0, 0]):
        assert nx.from_dlpack(view).tolist() == view.cpu().tolist()
    assert nx.from_dlpack(torch.zeros(0, 3, device="cuda")).shape == (0, 3)


def test_streams_are_waited_for() -> None:
    stream = torch.cuda.Stream()
    for _ in range(5):
        with torch.cuda.stream(stream):
            made = torch.ones(1 << 22, device="cuda")
            for _ in range(50):
                made = made * 1.01
            taken = nx.from_dlpack(made)
        assert taken[0].item() == pytest.approx(1.01**50, rel=1e-3)
        x = on_gpu(1 << 22) * 0 + 1
        for _ in range(50):
            x = x * 1.01
        with torch.cuda.stream(stream):
            there = torch.from_dlpack(x)
            assert there.sum().item() == pytest.approx((1 << 22) * 1.01**50, rel=1e-3)


def test_memory_is_given_back_behind_its_takers_work() -> None:
    expected = None
    for _ in range(20):
        x = on_gpu(1 << 22) * 0 + 2
        there = torch.from_dlpack(x)
        del x
        total = there
        for _ in range(20):
            total = total * 1.0
        del there
        # The engine may reuse the memory now: its writes come after the reads above.
        noise = on_gpu(1 << 22)
        noise.evaluate()
        value = total.sum().item()
        expected = value if expected is None else expected
        assert value == expected == (1 << 23)
    gc.collect()


def test_refusals() -> None:
    x = on_gpu(3)
    with pytest.raises(BufferError, match="copy=False"):
        x.__dlpack__(copy=False)
    with pytest.raises(ValueError, match="stream"):
        x.__dlpack__(stream=0)
    with pytest.raises(BufferError, match="gradients"):
        on_gpu(3).requires_grad_().__dlpack__()
    with pytest.raises(BufferError, match="copy=False"):
        x.__dlpack__(dl_device=(1, 0), copy=False, max_version=(1, 0))
    moved = x.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    assert "dltensor" in repr(moved)
