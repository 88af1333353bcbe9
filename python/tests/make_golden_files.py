"""Writes golden/pytorch_files.json: small files that PyTorch wrote, compressed and in base64, and the values in them.

Run it with an interpreter that has PyTorch and NumPy: ``python tests/make_golden_files.py``. The tests do not need
PyTorch.
"""

import argparse
import base64
import collections
import io
import json
import pathlib
import zlib

import numpy as np
import torch

torch.manual_seed(0)
DTYPES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2".split()
)


class Net(torch.nn.Module):
    """A class of a program."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.norm = torch.nn.BatchNorm1d(2)


def written(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    return base64.b64encode(zlib.compress(file.getvalue(), 9)).decode()


def shared():
    base = torch.arange(12, dtype=torch.float32)
    whole, matrix = base.view(3, 4), torch.arange(6.0).view(2, 3)
    return {
        "whole": whole, "row": whole[1], "column": whole[:, 1], "transposed": matrix.t(), "expanded": torch.ones(1).expand(3),
        "part": torch.arange(100)[90:93], "empty": torch.zeros(0, 3), "number": torch.tensor(7), "again": whole,
    }


def training():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model.norm(model.layer(torch.ones(3, 2))).square().sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "losses": [0.5, 0.25]}


def plain():
    return {
        "numbers": [1, -1, 2**40, 2**100, 0.1, float("inf"), True, None, 1 + 2j], "text": "é", "bytes": b"\x00\xff", "tuple": (1, (2,), ()),
        "set": {1, 2}, "ordered": collections.OrderedDict([("b", 1), ("a", 2)]), 3: "three", "counter": collections.Counter("aab"),
        "size": torch.Size([2, 3]), "dtype": torch.bfloat16, "device": torch.device("cpu"),
        "parameter": torch.nn.Parameter(torch.ones(2)), "frozen": torch.nn.Parameter(torch.ones(1), requires_grad=False),
        "leaf": torch.zeros(2, requires_grad=True),
    }


def arrays():
    return {"scalar": np.float64(0.5), "array": np.arange(6, dtype=np.int16).reshape(2, 3), "fortran": np.asfortranarray(np.eye(2, 3))}


def lazy():
    z = torch.tensor([1 + 2j, 3 - 4j])
    return {"stored": z, "conjugate": z.conj(), "both": torch._neg_view(z.conj()), "parameter": torch.nn.Parameter(z.conj())}


def options():
    path = pathlib.PosixPath("runs/1")
    return {
        "options": argparse.Namespace(lr=0.1, device=torch.device("cuda", 7), inner=argparse.Namespace(path=path)),
        "paths": [path, pathlib.PosixPath("/x"), pathlib.PurePosixPath("a/b"), pathlib.PureWindowsPath("c:/d"), pathlib.PosixPath()],
        "weight": torch.ones(2),
    }


def listed(value):
    """The value as JSON."""
    if isinstance(value, torch.Tensor):
        return value.float().tolist()
    if isinstance(value, dict):
        return {str(key): listed(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [listed(part) for part in value]
    return value


bits = torch.tensor([15360, 16384], dtype=torch.uint16)
values = {name: torch.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(torch, name)) for name in DTYPES}
values["complex64"] = torch.tensor([1 + 2j])
state = training()
legacy = {"_use_new_zipfile_serialization": False}
files = {
    "dtypes": written({name: value for name, value in values.items() if name != "complex64"}),
    "complex": written({"complex64": values["complex64"]}),
    "shared": written(shared()),
    "shared_legacy": written(shared(), **legacy),
    "training": written(state),
    "training_legacy": written(state, **legacy),
    "plain": written(plain()),
    "plain_protocol_5": written(plain(), pickle_protocol=5),
    "bits": written({"uint16": bits, "float8_e5m2": bits.view(torch.float8_e5m2), "row": bits[1:]}),
    "arrays": written(arrays()),
    "module": written(Net()),
    "module_legacy": written(Net(), **legacy),
    "sparse": written(torch.eye(2).to_sparse()),
    "lazy": written(lazy()),
    "lazy_legacy": written(lazy(), **legacy),
    "negative": written({"negative": lazy()["stored"].conj().imag, "row": lazy()["stored"].conj().imag[1:]}),
    "options": written(options()),
    "options_legacy": written(options(), **legacy),
    "options_protocol_4": written(options(), pickle_protocol=4),
}
golden = {
    "files": files,
    "values": {"training": listed(state), "shared": listed(shared())},
    "pytorch": torch.__version__,
}
path = pathlib.Path(__file__).parent / "golden" / "pytorch_files.json"
path.write_text(json.dumps(golden, indent=0) + "\n")
