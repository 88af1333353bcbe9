"""``nx.load`` of files that PyTorch wrote (see make_golden_files.py), and what ``torch.save`` writes."""

from __future__ import annotations

import argparse
import base64
import collections
import io
import json
import pathlib
import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import neurenix as nx
import neurenix.torch as torch
import numpy as np
import pytest

GOLDEN = json.loads((Path(__file__).parent / "golden" / "pytorch_files.json").read_text())


def stored(name: str) -> bytes:
    """The contents of a file that PyTorch wrote."""
    return zlib.decompress(base64.b64decode(GOLDEN["files"][name]))


def loaded(name: str, **options: Any) -> Any:
    return torch.load(io.BytesIO(stored(name)), **options)


def listed(value: Any) -> Any:
    """The value as JSON."""
    if isinstance(value, nx.Tensor):
        return value.float().tolist()
    if isinstance(value, dict):
        return {str(key): listed(part) for key, part in value.items()}
    return [listed(part) for part in value] if isinstance(value, (list, tuple)) else value


def test_all_dtypes() -> None:
    values = loaded("dtypes")
    assert len(values) == 15
    for name, value in values.items():
        assert value.dtype == nx.dtype(name)
        expected = [[False, True, True], [True] * 3] if name == "bool" else [[0, 1, 2], [3, 4, 5]]
        assert value.tolist() == expected


@pytest.mark.parametrize("name", ["shared", "shared_legacy"])
def test_strides_and_shared_storages(name: str) -> None:
    values = loaded(name)
    assert listed(values) == GOLDEN["values"]["shared"]
    assert values["again"] is values["whole"]
    assert values["empty"].shape == (0, 3) and values["number"].dtype == nx.int64


@pytest.mark.parametrize("name", ["lazy", "lazy_legacy"])
def test_conjugates_and_negatives(name: str) -> None:
    values = loaded(name)
    assert values["stored"].tolist() == [1 + 2j, 3 - 4j] and values["conjugate"].tolist() == [1 - 2j, 3 + 4j]
    assert values["both"].tolist() == [-1 + 2j, -3 - 4j]
    parameter = values["parameter"]
    assert isinstance(parameter, torch.nn.Parameter) and parameter.is_leaf and parameter.tolist() == [1 - 2j, 3 + 4j]
    negative = loaded("negative")
    assert negative["negative"].tolist() == [-2.0, 4.0] and negative["row"].tolist() == [4.0]


def test_an_unknown_property_of_a_tensor_is_refused() -> None:
    damaged = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(stored("lazy"))) as before, zipfile.ZipFile(damaged, "w") as after:
        for name in before.namelist():
            after.writestr(name, before.read(name).replace(b"conj", b"cold"))
    with pytest.raises(pickle.UnpicklingError, match="properties that are not supported"):
        torch.load(io.BytesIO(damaged.getvalue()))


@pytest.mark.parametrize("name", ["options", "options_legacy", "options_protocol_4"])
def test_options_paths_and_absent_devices(name: str) -> None:
    values = loaded(name, map_location="cpu")
    path = pathlib.Path("runs/1")
    inner = argparse.Namespace(path=path)
    assert values["options"] == argparse.Namespace(lr=0.1, device=nx.Device("cpu"), inner=inner)
    posix, windows = pathlib.PurePosixPath("a/b"), pathlib.PureWindowsPath("c:/d")
    assert values["paths"] == [path, pathlib.Path("/x"), posix, windows, pathlib.Path()]
    with pytest.warns(RuntimeWarning, match="cuda:7.* not available") as warned:
        assert loaded(name)["options"].device == nx.Device("cpu")
    assert len(warned) == 1
    assert loaded(name, map_location={"cuda:7": "cpu"})["options"].device == nx.Device("cpu")


@pytest.mark.parametrize("name", ["training", "training_legacy"])
def test_a_checkpoint_continues_training(name: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(stored(name))
    checkpoint = torch.load(tmp_path / "checkpoint.pt", map_location="cpu", weights_only=False)
    assert listed(checkpoint) == GOLDEN["values"]["training"]
    assert isinstance(checkpoint["model"], collections.OrderedDict) and hasattr(checkpoint["model"], "_metadata")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)
            self.norm = torch.nn.BatchNorm1d(2)

    model = Net()
    model.load_state_dict(checkpoint["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    optimizer.load_state_dict(checkpoint["optimizer"])
    assert listed(model.state_dict()) == GOLDEN["values"]["training"]["model"]
    before = model.norm.bias.tolist()
    (model.norm(model.layer(torch.ones(3, 2)))).square().sum().backward()
    optimizer.step()
    assert model.norm.bias.tolist() != before


@pytest.mark.parametrize("name", ["plain", "plain_protocol_5"])
def test_plain_values(name: str) -> None:
    value = loaded(name)
    assert value["numbers"] == [1, -1, 2**40, 2**100, 0.1, float("inf"), True, None, 1 + 2j]
    assert value["text"] == "é" and value["bytes"] == b"\x00\xff" and value["tuple"] == (1, (2,), ()) and value["set"] == {1, 2}
    assert list(value["ordered"]) == ["b", "a"] and isinstance(value["ordered"], collections.OrderedDict)
    assert value[3] == "three" and value["counter"] == collections.Counter("aab") and value["size"] == (2, 3)
    assert value["dtype"] == nx.bfloat16 and value["device"] == nx.Device("cpu")
    assert isinstance(value["parameter"], nx.nn.Parameter) and value["parameter"].requires_grad
    assert isinstance(value["frozen"], nx.nn.Parameter) and not value["frozen"].requires_grad
    assert value["leaf"].requires_grad and value["leaf"].is_leaf


def test_the_bits_of_a_tensor_as_another_dtype() -> None:
    values = loaded("bits")
    assert values["uint16"].tolist() == [15360, 16384] and values["float8_e5m2"].tolist() == [0.0, 1.0, 0.0, 2.0]
    assert values["row"].tolist() == [16384] and values["row"].dtype == nx.uint16


def test_numpy_arrays() -> None:
    value = loaded("arrays")
    assert value["scalar"] == 0.5 and isinstance(value["scalar"], np.float64)
    assert value["array"].dtype == np.int16 and value["array"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert value["fortran"].tolist() == [[1, 0, 0], [0, 1, 0]]


def test_no_code_is_run() -> None:
    for name in ("module", "module_legacy"):
        with pytest.raises(pickle.UnpicklingError, match=r"the open file holds an object of the class __main__\.Net"):
            loaded(name, weights_only=False)
    with pytest.raises(pickle.UnpicklingError, match=r"a sparse tensor: store x\.to_dense\(\)"):
        loaded("sparse")

    class Harmful:
        def __reduce__(self) -> Any:
            return (print, ("run",))

    for protocol in range(2, 6):
        with pytest.raises(pickle.UnpicklingError, match=r"(builtins|__builtin__)\.print"):
            torch.load(rewritten("plain", pickle.dumps({"x": Harmful()}, protocol)))
    with pytest.raises(pickle.UnpicklingError, match="is a pickle, but not one of torch.save"):
        torch.load(io.BytesIO(pickle.dumps({"x": Harmful()})))


def rewritten(name: str, data: bytes | None = None, storage: bytes | None = None) -> io.BytesIO:
    """A file with other contents."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(stored(name))) as old, zipfile.ZipFile(changed, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if member.endswith("/data.pkl") and data is not None:
                content = data
            if "/data/" in member and storage is not None:
                content = storage
            new.writestr(member, content)
    changed.seek(0)
    return changed


def test_damaged_files() -> None:
    with zipfile.ZipFile(io.BytesIO(stored("shared"))) as archive:
        data = archive.read("archive/data.pkl")
    for length in range(0, len(data), 7):
        with pytest.raises(pickle.UnpicklingError):
            torch.load(rewritten("shared", data[:length]))
    with pytest.raises(pickle.UnpicklingError, match="a storage of 48 bytes has 4"):
        torch.load(rewritten("shared", storage=bytes(4)))
    whole = stored("training_legacy")
    for length in range(16, len(whole), 97):
        with pytest.raises(pickle.UnpicklingError):
            torch.load(io.BytesIO(whole[:length]))
    # Any change of a byte of the pickle gives some values or this error.
    for place in range(len(data)):
        try:
            torch.load(rewritten("shared", data[:place] + bytes([data[place] ^ 0x15]) + data[place + 1 :]))
        except (pickle.UnpicklingError, RuntimeError):
            pass
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("words.txt", "no tensors")
    other.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="it has no data.pkl"):
        torch.load(other)


def test_map_location() -> None:
    with zipfile.ZipFile(io.BytesIO(stored("dtypes"))) as archive:
        data = archive.read("archive/data.pkl")
    assert data.count(b"X\x03\x00\x00\x00cpu") == 1
    elsewhere = data.replace(b"X\x03\x00\x00\x00cpu", b"X\x07\x00\x00\x00cuda:77")
    with pytest.raises(RuntimeError, match=r"a tensor in the file is on cuda:77.*map_location=\"cpu\""):
        torch.load(rewritten("dtypes", elsewhere))
    seen = []

    def keep(storage: Any, location: str) -> Any:
        seen.append((location, storage.nbytes()))
        return storage

    for place in ("cpu", torch.device("cpu"), {"cuda:77": "cpu"}, keep):
        values = torch.load(rewritten("dtypes", elsewhere), map_location=place)
        assert values["float32"].tolist() == [[0, 1, 2], [3, 4, 5]] and values["float32"].device == torch.device("cpu")
    assert len(seen) == 15 and seen[0] == ("cuda:77", 6)
    with pytest.raises(RuntimeError, match="cuda:77"):
        torch.load(rewritten("dtypes", elsewhere), lambda storage, location: None)
    # Files of safetensors too.
    file = io.BytesIO()
    torch.save({"x": torch.ones(2)}, file)
    for place in ("cpu", {"cpu": "cpu"}, lambda storage, location: storage):
        file.seek(0)
        assert torch.load(file, map_location=place)["x"].tolist() == [1.0, 1.0]


def test_what_torch_save_writes() -> None:
    shared = torch.arange(3)
    value = {
        "numbers": [1, 2**100, 0.5, True, None, 1 + 2j, float("inf")], "bytes": b"\x00\xff", "set": {1, 2}, "nested": [[(shared,)], {}],
        "ordered": collections.OrderedDict(b=1, a=shared), 3: {(1, "two"): None}, "dtype": torch.float16, "device": torch.device("cpu"),
        "arguments": argparse.Namespace(lr=0.1, folder=Path("runs")), "array": np.eye(2), "parameter": torch.nn.Parameter(torch.ones(2)),
        "frozen": torch.nn.Parameter(torch.ones(1), requires_grad=False), "leaf": torch.zeros(2, requires_grad=True),
    }  # fmt: skip
    file = io.BytesIO()
    torch.save(value, file, pickle_protocol=4)
    file.seek(0)
    back = torch.load(file, weights_only=False)
    assert list(back) == list(value)
    for name in ("numbers", "bytes", "set", 3, "dtype", "device", "arguments"):
        assert back[name] == value[name] and type(back[name]) is type(value[name])
    assert isinstance(back["ordered"], collections.OrderedDict) and list(back["ordered"]) == ["b", "a"]
    assert back["nested"][0][0][0] is back["ordered"]["a"] and back["ordered"]["a"].tolist() == [0, 1, 2]
    assert back["array"].tolist() == [[1, 0], [0, 1]]
    assert isinstance(back["parameter"], nx.nn.Parameter) and back["parameter"].requires_grad
    assert isinstance(back["frozen"], nx.nn.Parameter) and not back["frozen"].requires_grad
    assert type(back["leaf"]) is nx.Tensor and back["leaf"].requires_grad
    model = torch.nn.Linear(1, 1)
    with pytest.raises(TypeError, match=r"the class Linear: pass its state_dict\(\)"):
        torch.save(model, file)
    with pytest.raises(TypeError, match=r"save: model has the type Linear: pass its state_dict\(\)"):
        torch.save({"model": model}, file)


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_of_an_early_version_may_lack_the_number_of_batches(assign: bool) -> None:
    net = nx.nn.Sequential(nx.nn.Linear(2, 2), nx.nn.BatchNorm1d(2))
    net(nx.ones(3, 2))
    state = collections.OrderedDict((key, value + 1) for key, value in net.state_dict().items() if "batches" not in key)
    net.load_state_dict(state, assign=assign)
    assert net[1].num_batches_tracked.item() == 1 and net[1].bias.tolist() == [1.0, 1.0] and len(state) == 6
    state._metadata = {"": {"version": 1}, "1": {"version": 1}}  # type: ignore[attr-defined]
    net.load_state_dict(state, assign=assign)
    state._metadata["1"]["version"] = 2  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: '1.num_batches_tracked'"):
        net.load_state_dict(state, assign=assign)
    del state._metadata, state["1.running_mean"]  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: '1.running_mean'\.$"):
        net.load_state_dict(state, assign=assign)
