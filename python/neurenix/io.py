"""Saves nested dictionaries and lists of tensors and plain values as safetensors files, and loads them; loads the files
of PyTorch.

>>> import neurenix as nx, os, tempfile
>>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
>>> nx.save({"weights": {"w": nx.ones(2)}, "epoch": 3}, path)
>>> nx.load(path)["epoch"], nx.load(path)["weights"]["w"].tolist()
(3, [1.0, 1.0])
"""

from __future__ import annotations

import argparse
import base64
import collections
import errno
import json
import os
import pathlib
import warnings
from collections.abc import Callable, Mapping
from typing import IO, Any

from . import _engine, _pytorch_files
from ._engine import Tensor
from ._storage import UntypedStorage

_STRUCTURE = "neurenix"
"""The metadata key of everything except the tensors, as JSON."""


def save(obj: Any, path: str | os.PathLike[str] | IO[bytes]) -> None:
    """Writes tensors, parameters, NumPy arrays, numbers, text, bytes, ``None``, dtypes, devices, paths, and
    dictionaries, lists, tuples, sets and ``argparse.Namespace`` of them as a safetensors file, or into an open binary
    file.

    A file given by its path is written atomically; its folder must exist. Save a module or an optimiser by its
    ``state_dict()``, or pass the object itself. Other programs that read safetensors see the tensors under their names,
    joined by dots. A tensor that occurs twice is written once, and loaded as one tensor.
    """
    if hasattr(obj, "state_dict"):
        obj = obj.state_dict()
    packer = _Packer()
    structure = packer.packed(obj, "")
    if not isinstance(path, (str, os.PathLike)):
        _open(path, "save")
    else:
        folder = os.path.dirname(os.fspath(path))
        if folder and not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, "save: the folder does not exist", folder)
    _engine.save_safetensors(path, packer.tensors, {_STRUCTURE: json.dumps(structure)})


def load(
    path: str | os.PathLike[str] | IO[bytes], device: Any = None, *, map_location: Any = None, weights_only: bool = True
) -> Any:
    """Reads what :func:`save` wrote, any safetensors file as a dictionary of tensors, or a file that PyTorch's
    ``torch.save`` wrote (``.pt``, ``.pth``, ``.bin``). An open binary file is read from its current position to its end.

    From safetensors files, tensors go to the CPU unless ``device`` names another device, and tensors of unknown types,
    such as ``F4``, are skipped with a warning. From PyTorch's files they go to the device where they were. No code in a
    file is run: an object that is not a tensor, a plain value or a container is a ``pickle.UnpicklingError`` that names
    its class. ``weights_only=False`` therefore changes nothing.

    ``map_location`` is PyTorch's name for ``device``. It can also be a dictionary from devices in the file to devices,
    or a function of a storage and its device in the file that returns the storage, ``storage.cuda()``, or ``None``.
    """
    if map_location is not None:
        if device is not None:
            raise TypeError("load: device and map_location are the same argument; pass only one")
        device = map_location
    is_path = isinstance(path, (str, os.PathLike))
    name = os.fspath(path) if is_path else "the open file"  # type: ignore[arg-type]
    if not is_path:
        _open(path, "load")
        if _is_of_pytorch(path, name):
            return _pytorch_files.load(path, name, device)  # type: ignore[arg-type]
    elif os.path.isfile(name):
        with open(name, "rb") as file:
            if _is_of_pytorch(file, repr(name)):
                return _pytorch_files.load(file, repr(name), device)
    is_one = not isinstance(device, Mapping) and not callable(device)
    tensors, metadata, left_out = _engine.load_safetensors(path, device if is_one else None)  # pyright: ignore
    if not is_one:
        tensors = {key: _moved(value, device) for key, value in tensors.items()}
    if left_out:
        listed = ", ".join(f"{key} ({kind})" for key, kind in left_out.items())
        warnings.warn(f"load: skipping tensors of unsupported types: {listed}", stacklevel=2)
    if _STRUCTURE not in metadata:
        return tensors
    try:
        return _unpacked(json.loads(metadata[_STRUCTURE]), tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: the metadata that describes its contents is damaged: {error!r}") from None


def _is_of_pytorch(file: Any, name: str) -> bool:
    """Whether an open file begins as those of PyTorch. One that cannot go back is not looked at, and one that begins as
    no file with tensors is an error.
    """
    if not (hasattr(file, "seek") and hasattr(file, "tell")) or (hasattr(file, "seekable") and not file.seekable()):
        return False
    start = file.tell()
    try:
        begins = file.read(40)
        if _pytorch_files.reads(begins[:9]):
            return True
        if not begins:
            raise ValueError(f"load: {name} is empty")
        # A safetensors file begins with the length of its header, which is at most 100 MB.
        if len(begins) > 8 and int.from_bytes(begins[:8], "little") > 100_000_000 and begins.isascii():
            shown = begins.decode().splitlines()[0]
            raise ValueError(
                f"load: {name} is text that begins with {shown!r}, not a file with tensors: it may be a page with an error, or a "
                "pointer to a file of Git LFS"
            )
        return False
    finally:
        file.seek(start)


def _moved(tensor: Tensor, map_location: Any) -> Tensor:
    device = _pytorch_files.device_for(map_location, "cpu", lambda: UntypedStorage.of(tensor))
    return tensor.to(device=device)


def _open(file: Any, name: str) -> None:
    """Raises an error if this is not an open file."""
    if not hasattr(file, "write" if name == "save" else "read"):
        raise TypeError(f"{name}: expected a path or an open binary file, got {type(file).__name__}")
    if getattr(file, "closed", False):
        raise ValueError(f"{name}: the file is closed")


# Numbers, text, booleans and null are plain JSON; everything else is an object whose single key gives the type.
class _Packer:
    """Describes objects as JSON, and collects their tensors."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[int, str] = {}

    def packed(self, value: Any, path: str) -> Any:
        """The description of the value at a path, such as ``model.weight``."""
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if hasattr(value, "__array_interface__") and hasattr(value, "shape"):
            if not value.shape and hasattr(value, "dtype"):
                return self.packed(value.item(), path)  # A NumPy scalar.
            return {"array": self._stored(_engine.tensor(value, device="cpu"), path)}
        for kind, (of, _) in _KINDS.items():
            if isinstance(value, of):
                return {kind: _AS_JSON[kind](value)}
        if isinstance(value, argparse.Namespace):
            return {"namespace": self._pairs(vars(value), path)}
        if isinstance(value, Mapping):
            ordered = isinstance(value, collections.OrderedDict)
            return {"ordered" if ordered else "dict": self._pairs(value, path)}
        for kind, of in _COLLECTIONS.items():
            if isinstance(value, of):
                return {kind: [self.packed(part, _inner(path, number)) for number, part in enumerate(value)]}
        raise TypeError(
            f"save: {path or 'the object'} has the type {type(value).__name__}: "
            + (
                "pass its state_dict()"
                if hasattr(value, "state_dict")
                else "tensors, arrays, numbers, text, bytes, dtypes, devices, paths, None, and dictionaries, lists, tuples and sets of them "
                "can be saved"
            )
        )

    def _pairs(self, value: Mapping[Any, Any], path: str) -> list[list[Any]]:
        pairs = []
        for key, part in value.items():
            if not isinstance(key, (str, int, float, bool, tuple, bytes, type(None))):
                raise TypeError(f"save: unsupported key type {type(key).__name__} in the dictionary {path or 'at the top level'}")
            pairs.append([self.packed(key, path), self.packed(part, _inner(path, key))])
        return pairs

    def _tensor(self, value: Tensor, path: str) -> Any:
        from .nn import Parameter

        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = self._stored(value.detach(), path)
        if isinstance(value, Parameter):
            return {"parameter" if value.requires_grad else "frozen": name}
        return {"leaf" if value.requires_grad else "tensor": name}

    def _stored(self, value: Tensor, path: str) -> str:
        name, number = path or "tensor", 1
        while name in self.tensors:  # {"a": {"b": t}, "a.b": u}
            name, number = f"{path or 'tensor'}#{number}", number + 1
        self.tensors[name] = value
        return name


def _inner(path: str, name: Any) -> str:
    return f"{path}.{name}" if path else str(name)


_COLLECTIONS: dict[str, Any] = {"list": list, "set": set, "frozenset": frozenset, "tuple": tuple}
_KINDS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "bytes": ((bytes, bytearray), base64.b64decode),
    "complex": (complex, lambda parts: complex(*parts)),
    "dtype": (_engine.dtype, _engine.dtype),
    "device": (_engine.Device, _engine.Device),
    "path": (pathlib.PurePath, pathlib.Path),
}
"""Values that are text or numbers in JSON: their classes, and how they are made of it."""
_AS_JSON: dict[str, Callable[[Any], Any]] = {
    "bytes": lambda value: base64.b64encode(value).decode(),
    "complex": lambda value: [value.real, value.imag],
    "dtype": lambda value: value.name,
    "device": str,
    "path": str,
}


def _unpacked(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    made: dict[str, Any] = {}

    def once(name: str, kind: str) -> Any:
        """The tensor of a name: the same one each time."""
        if name not in made:
            made[name] = _as(kind, tensors[name])
        return made[name]

    def pairs(content: Any) -> list[tuple[Any, Any]]:
        return [(unpacked(key), unpacked(part)) for key, part in content]

    def unpacked(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind in ("tensor", "leaf", "parameter", "frozen"):
            return once(content, kind)
        if kind == "array":
            return tensors[content].cpu().numpy().copy()
        if kind == "dict":
            return dict(pairs(content))
        if kind == "ordered":
            return collections.OrderedDict(pairs(content))
        if kind == "namespace":
            return argparse.Namespace(**dict(pairs(content)))
        if kind in _KINDS:
            return _KINDS[kind][1](content)
        if kind in _COLLECTIONS:
            return _COLLECTIONS[kind](map(unpacked, content))
        raise ValueError(f"{kind!r} is unknown")

    return unpacked(value)


def _as(kind: str, tensor: Tensor) -> Tensor:
    from .nn import Parameter

    if kind in ("parameter", "frozen"):
        return Parameter(tensor, requires_grad=kind == "parameter")
    return tensor.requires_grad_() if kind == "leaf" else tensor
