"""Other libraries on tensors: einops, safetensors, tqdm, Pillow, and the exchange of memory."""

from __future__ import annotations

import ctypes
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import einops
import neurenix as nx
import neurenix.torch as torch
import neurenix.utils.einops_backend  # noqa: F401
import numpy as np
import pytest
import safetensors.numpy
from neurenix.torch.utils import dlpack
from PIL import Image
from tqdm import tqdm

DTYPES = "uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2".split()


def run(tmp_path: Path, program: str) -> str:
    """Runs a program that says ``import torch``; what it printed."""
    script = tmp_path / "script.py"
    script.write_text(program)
    command = [sys.executable, "-m", "neurenix.torch", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return done.stdout


CASES: list[tuple[str, str, dict[str, int]]] = [
    ("rearrange", "b c (h p) (w q) -> b (h w) (p q c)", {"p": 2, "q": 3}),
    ("rearrange", "b c h w -> w () (h b) c", {}),
    *(("reduce", "b c (h 2) w -> w b h", {"reduction": kind}) for kind in ("min", "max", "sum", "mean", "prod")),  # type: ignore[dict-item]
    ("reduce", "b c h w -> () c () w", {"reduction": "mean"}),  # type: ignore[dict-item]
    ("repeat", "b c h w -> b (c k) new h w", {"k": 2, "new": 3}),
    ("repeat", "b c h w -> (2 b) c (h 3) w", {}),
]


@pytest.mark.parametrize(("function", "pattern", "options"), CASES)
def test_einops(function: str, pattern: str, options: dict[str, Any]) -> None:
    x = np.random.default_rng(0).random((2, 3, 4, 6))
    expected = getattr(einops, function)(x, pattern, **options)
    tensor = nx.tensor(x, requires_grad=True)
    result = getattr(einops, function)(tensor, pattern, **options)
    assert isinstance(result, nx.Tensor) and np.allclose(result.detach().numpy(), expected, rtol=1e-12)
    # The gradient against a difference quotient in one direction.
    direction, weight = np.random.default_rng(1).random(x.shape), np.random.default_rng(2).random(expected.shape)
    (result * nx.tensor(weight)).sum().backward()
    assert tensor.grad is not None
    step = 1e-6
    ends = [(getattr(einops, function)(x + sign * step * direction, pattern, **options) * weight).sum() for sign in (1, -1)]
    assert (tensor.grad.numpy() * direction).sum() == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6)


def test_einops_of_several_tensors() -> None:
    x, y = nx.arange(24.0).reshape(2, 3, 4), nx.arange(8.0).reshape(2, 4)
    assert einops.einsum(x, y, "batch n width, batch width -> batch n").tolist() == (x * y[:, None]).sum(-1).tolist()
    packed, shapes = einops.pack([x, y], "batch * width")
    assert packed.shape == (2, 4, 4) and [tuple(shape) for shape in shapes] == [(3,), ()]
    back = einops.unpack(packed, shapes, "batch * width")
    assert all((a == b).all() for a, b in zip((x, y), back, strict=True))
    assert einops.rearrange([y, y], "n b w -> b (n w)").shape == (2, 8)
    assert einops.parse_shape(x, "b _ w") == {"b": 2, "w": 4} and isinstance(einops.asnumpy(x), np.ndarray)
    assert einops.reduce(x > 3, "b n w -> b", "all").tolist() == [False, True]


def test_einops_in_a_program_of_pytorch(tmp_path: Path) -> None:
    program = """
import torch
from einops import einsum, pack, rearrange, reduce, repeat
from einops.layers.torch import EinMix, Rearrange, Reduce

x = torch.arange(48.0).reshape(2, 2, 3, 4).requires_grad_()
model = torch.nn.Sequential(
    Rearrange("b c h (w p) -> b (h w) (c p)", p=2), EinMix("b n i -> b n o", weight_shape="i o", bias_shape="o", i=4, o=5), Reduce("b n o -> b o", "mean")
)
out = model(x)
print(out.shape, model[0])
out.sum().backward()
print(x.grad.shape, [tuple(p.shape) for p in model.parameters()])
print(rearrange(x, "b c h w -> (b h) (c w)").sum().item(), reduce(x, "b c h w -> c", "max").tolist(), repeat(x[0, 0, 0], "w -> w 2").shape)
print(einsum(x, x, "b c h w, b c h w -> b").tolist(), pack([x, x], "b * h w")[0].shape)
"""
    assert run(tmp_path, program).splitlines() == [
        f"{torch.zeros(2, 5).shape} Rearrange('b c h (w p) -> b (h w) (c p)', p=2)",
        f"{torch.zeros(2, 2, 3, 4).shape} [(4, 5), (1, 1, 5)]",
        f"1128.0 [35.0, 47.0] {torch.zeros(4, 2).shape}",
        f"[4324.0, 31396.0] {torch.zeros(2, 4, 3, 4).shape}",
    ]


def test_safetensors_of_numpy(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({"a": np.arange(6, dtype=np.int16).reshape(2, 3), "b": np.array(0.5, np.float32)}, path)
    loaded = torch.load(path)
    assert loaded["a"].dtype == torch.int16 and loaded["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and loaded["b"].item() == 0.5
    torch.save({"w": torch.ones(2, 2), "step": 3}, path)
    assert safetensors.numpy.load_file(path)["w"].tolist() == [[1, 1], [1, 1]]


@pytest.mark.skipif(not hasattr(torch, "complex64"), reason="safetensors.torch asks for complex64 when it is imported")
def test_safetensors_of_pytorch(tmp_path: Path) -> None:
    program = f"""
import torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model

values = {{name: torch.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(torch, name)) for name in {DTYPES!r}}}
values |= {{"bool": torch.tensor([True, False]), "empty": torch.zeros(0, 3), "number": torch.tensor(2.5)}}
save_file(values, "all.safetensors", metadata={{"format": "pt"}})
for back in (load_file("all.safetensors"), load_file("all.safetensors", device="cpu", backend="pread"), load(save(values))):
    assert back.keys() == values.keys()
    for name, value in values.items():
        assert back[name].dtype == value.dtype and back[name].float().tolist() == value.float().tolist(), name
with safe_open("all.safetensors", framework="pt", device="cpu") as file:
    part = file.get_slice("float32")
    print(file.metadata(), part.get_shape(), part[1, 1:].tolist(), file.get_tensor("bfloat16").dtype == torch.bfloat16)
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
model[1].weight = model[0].weight
try:
    save_file(model.state_dict(), "model.safetensors")
except RuntimeError as error:
    print("share memory" in str(error))
save_model(model, "model.safetensors")
other = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
other[1].weight = other[0].weight
print(load_model(other, "model.safetensors"), other[1].weight.equal(model[0].weight), torch.load("model.safetensors").keys())
"""
    assert run(tmp_path, program).splitlines() == [
        "{'format': 'pt'} [2, 3] [4.0, 5.0] True",
        "True",
        "(set(), []) True dict_keys(['0.bias', '0.weight', '1.bias'])",
    ]


def test_progress_bars() -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(10.0)), batch_size=4)
    shown = io.StringIO()
    bar = tqdm(loader, file=shown)
    for (x,) in bar:
        bar.set_description(f"loss {x.mean():.2f}")
        bar.set_postfix(sum=x.sum().item(), last=x[-1])
    assert "3/3" in shown.getvalue() and "loss 8.50" in shown.getvalue() and "sum=17" in shown.getvalue()
    assert [row.tolist() for row in tqdm(torch.eye(2), file=shown)] == [[1.0, 0.0], [0.0, 1.0]] and "2/2" in shown.getvalue()


class ToTensor:
    """As in torchvision."""

    def __call__(self, picture: Image.Image) -> nx.Tensor:
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous().to(torch.get_default_dtype()).div(255)


class Normalize:
    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self.mean, self.std = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))

    def __call__(self, image: nx.Tensor) -> nx.Tensor:
        return image.clone().sub_(self.mean).div_(self.std)


class Pictures(torch.utils.data.Dataset):
    """A picture of one colour for each number."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> dict[str, Any]:
        image: Any = Image.new("RGB", (6, 4), (index * 50, 100, 200)).resize((3, 2))
        for transform in (ToTensor(), Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))):
            image = transform(image)
        return {"image": image, "label": index, "name": f"picture {index}"}


def test_pictures() -> None:
    batches = [*torch.utils.data.DataLoader(Pictures(), batch_size=2)]
    assert batches[0]["image"].shape == (2, 3, 2, 3) and batches[0]["label"].tolist() == [0, 1]
    assert batches[1]["name"] == ["picture 2"]
    assert batches[1]["image"][0, :, 0, 0].tolist() == pytest.approx([(value / 255 - 0.5) / 0.25 for value in (100, 100, 200)])

    def stacked(parts: list[dict[str, Any]]) -> tuple[nx.Tensor, nx.Tensor]:
        return torch.stack([part["image"] for part in parts]), torch.tensor([part["label"] for part in parts])

    (images, labels) = next(iter(torch.utils.data.DataLoader(Pictures(), batch_size=3, collate_fn=stacked)))
    assert images.shape == (3, 3, 2, 3) and labels.dtype == torch.int64
    pixels = images[2].mul(0.25).add(0.5).mul(255).round().clamp(0, 255).permute(1, 2, 0).to(torch.uint8)
    assert Image.fromarray(pixels.numpy()).getpixel((0, 0)) == (100, 100, 200)


class Columns:
    """A table as the library datasets gives it."""

    def __init__(self, **columns: list[Any]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self.columns[key]
        if isinstance(key, list):
            return {name: [values[index] for index in key] for name, values in self.columns.items()}
        return {name: values[key] for name, values in self.columns.items()}

    def __getitems__(self, keys: list[int]) -> list[dict[str, Any]]:
        return [self[key] for key in keys]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[index] for index in range(len(self)))


def test_tables() -> None:
    table = Columns(ids=[[1, 2], [3, 4], [5, 6]], text=["a", "b", "c"], label=[0, 1, 0])
    first, second = torch.utils.data.DataLoader(table, batch_size=2)  # type: ignore[arg-type, var-annotated]
    assert [part.tolist() for part in first["ids"]] == [[1, 3], [2, 4]] and first["text"] == ["a", "b"]
    assert second["label"].tolist() == [0]

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[dict[str, Any]]:
            return iter(table)

    def padded(parts: list[dict[str, Any]]) -> nx.Tensor:
        return torch.nn.utils.rnn.pad_sequence([torch.tensor(part["ids"]) for part in parts], batch_first=True)

    assert [batch.shape for batch in torch.utils.data.DataLoader(Stream(), batch_size=2, collate_fn=padded)] == [(2, 2), (1, 2)]


def test_storages_and_addresses() -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    assert ctypes.c_float.from_address(x.data_ptr() + 4).value == 2.0
    assert x.detach().data_ptr() == x.data_ptr() and x[1:].data_ptr() == x.data_ptr() + 4
    assert torch.zeros(0).data_ptr() == 0 and x.bfloat16().data_ptr() != 0
    assert x.storage().size() == 3 and x.storage().tolist() == [1.0, 2.0, 3.0] and x.storage()[1] == 2.0
    storage = x.untyped_storage()
    assert storage.nbytes() == len(storage) == 12 and storage.data_ptr() == x.data_ptr() == x.storage().data_ptr()
    assert torch.asarray(storage[4:8], dtype=torch.uint8).view(torch.float32).tolist() == [2.0]
    assert x.layout == torch.strided and torch.device("meta") != x.device and isinstance(x.device, torch.device)


def test_bits_as_another_dtype() -> None:
    x = torch.tensor([[1.0, -2.0]])
    assert x.view(torch.int32).tolist() == [[0x3F800000, -0x40000000]] and x.view(dtype=torch.uint8).shape == (1, 8)
    for name in DTYPES:
        y = torch.arange(8).reshape(2, 4).to(getattr(torch, name))
        assert y.view(torch.uint8).view(y.dtype).float().tolist() == y.float().tolist()
    assert torch.ones(2, 4).view(torch.float64).shape == (2, 2) and torch.tensor(1.0).view(torch.int32).shape == ()
    with pytest.raises(RuntimeError, match="cannot become"):
        torch.ones(2, 3).view(torch.float64)
    assert torch.frombuffer(bytearray(range(8)), dtype=torch.int16, count=2, offset=2).tolist() == [0x302, 0x504]
    for options in ({"offset": 8}, {"offset": 1}, {"count": 5}, {"count": 0}):
        with pytest.raises(ValueError, match="frombuffer"):
            torch.frombuffer(bytes(8), dtype=torch.int16, **options)


def test_capsules() -> None:
    x = torch.arange(6).reshape(2, 3)
    assert dlpack.from_dlpack(dlpack.to_dlpack(x)).tolist() == x.tolist()
    assert dlpack.from_dlpack(np.eye(2)).tolist() == [[1, 0], [0, 1]]
    capsule = x.__dlpack__(max_version=(1, 0))
    assert torch.utils.dlpack.from_dlpack(capsule).tolist() == x.tolist()

    class Exporter:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **_: Any) -> Any:
            return capsule

    assert np.from_dlpack(Exporter()).tolist() == x.tolist()
    with pytest.raises(ValueError, match="its array has been taken"):
        dlpack.from_dlpack(capsule)
