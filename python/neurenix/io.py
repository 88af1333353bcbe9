"""Saves nested dictionaries and lists of tensors and plain values as safetensors files, and loads them.

>>> import neurenix as nx, os, tempfile
>>> path = os.path.join(tempfile.mkdtemp(), "state.safetensors")
>>> nx.save({"weights": {"w": nx.ones(2)}, "epoch": 3}, path)
>>> nx.load(path)["epoch"], nx.load(path)["weights"]["w"].tolist()
(3, [1.0, 1.0])
"""

from __future__ import annotations

import errno
import json
import os
import warnings
from collections.abc import Mapping
from typing import IO, Any

from . import _engine
from ._engine import Tensor

_STRUCTURE = "neurenix"
"""The metadata key of everything except the tensors, as JSON."""


def save(obj: Any, path: str | os.PathLike[str] | IO[bytes]) -> None:
    """Writes dictionaries, lists, tuples, tensors, NumPy arrays, numbers, strings, booleans and ``None`` as a
    safetensors file, or into an open binary file.

    A file given by its path is written atomically; its folder must exist. Save a module or an optimiser by its
    ``state_dict()``, or pass the object itself. Other programs that read safetensors see the tensors under their names,
    joined by dots.
    """
    if hasattr(obj, "state_dict"):
        obj = obj.state_dict()
    tensors: dict[str, Tensor] = {}
    structure = _packed(obj, "", tensors)
    if not isinstance(path, (str, os.PathLike)):
        _open(path, "save")
    else:
        folder = os.path.dirname(os.fspath(path))
        if folder and not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, "save: the folder does not exist", folder)
    _engine.save_safetensors(path, tensors, {_STRUCTURE: json.dumps(structure)})


def load(
    path: str | os.PathLike[str] | IO[bytes], device: Any = None, *, map_location: Any = None, weights_only: bool = True
) -> Any:
    """Reads what :func:`save` wrote, or any safetensors file as a dictionary of tensors; to the CPU unless ``device``
    names another device. An open binary file is read from its current position to its end. Tensors of unknown types,
    such as ``F4``, are skipped with a warning.

    ``map_location`` is PyTorch's name for ``device``. ``weights_only`` has no effect: no file contains code.
    """
    if map_location is not None:
        if device is not None:
            raise TypeError("load: device and map_location are the same argument; pass only one")
        if callable(map_location) or isinstance(map_location, Mapping):
            raise TypeError("load: map_location must be one device for all tensors, such as \"cpu\"")
        device = map_location
    if not isinstance(path, (str, os.PathLike)):
        _open(path, "load")
    tensors, metadata, left_out = _engine.load_safetensors(path, device)
    if left_out:
        listed = ", ".join(f"{name} ({kind})" for name, kind in left_out.items())
        warnings.warn(f"load: skipping tensors of unsupported types: {listed}", stacklevel=2)
    if _STRUCTURE not in metadata:
        return tensors
    try:
        return _unpacked(json.loads(metadata[_STRUCTURE]), tensors)
    except (KeyError, TypeError, ValueError) as error:
        name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else "the open file"
        raise ValueError(f"{name}: the metadata that describes its contents is damaged: {error!r}") from None


def _open(file: Any, name: str) -> None:
    """Raises an error if this is not an open file."""
    if not hasattr(file, "write" if name == "save" else "read"):
        raise TypeError(f"{name}: expected a path or an open binary file, got {type(file).__name__}")
    if getattr(file, "closed", False):
        raise ValueError(f"{name}: the file is closed")


# Numbers, text, booleans and null are plain JSON; everything else is an object whose single key gives the type.
def _packed(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        name, number = path or "tensor", 1
        while name in tensors:  # {"a": {"b": t}, "a.b": u}
            name, number = f"{path or 'tensor'}#{number}", number + 1
        tensors[name] = value.detach()
        return {"tensor": name}
    if hasattr(value, "__array_interface__"):
        if not value.shape and hasattr(value, "dtype"):
            return _packed(value.item(), path, tensors)  # A NumPy scalar.
        return {"array": _packed(_engine.tensor(value, device="cpu"), path, tensors)["tensor"]}

    def inner(name: Any) -> str:
        return f"{path}.{name}" if path else str(name)

    if isinstance(value, Mapping):
        pairs = []
        for key, part in value.items():
            if not isinstance(key, (str, int, float, bool)):
                raise TypeError(f"save: unsupported key type {type(key).__name__} in the dictionary {path or 'at the top level'}")
            pairs.append([key, _packed(part, inner(key), tensors)])
        return {"dict": pairs}
    if isinstance(value, (list, tuple)):
        parts = [_packed(part, inner(number), tensors) for number, part in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": parts}
    raise TypeError(
        f"save: {path or 'the object'} has the type {type(value).__name__}: dictionaries, lists, tuples, tensors, arrays, "
        "numbers, text, booleans and None can be saved"
    )


def _unpacked(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "array":
        return tensors[content].cpu().numpy().copy()
    if kind == "dict":
        return {key: _unpacked(part, tensors) for key, part in content}
    parts = [_unpacked(part, tensors) for part in content]
    if kind not in ("list", "tuple"):
        raise ValueError(f"{kind!r} is unknown")
    return parts if kind == "list" else tuple(parts)
