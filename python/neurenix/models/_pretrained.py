"""Reading folders in Hugging Face's format: ``config.json`` and safetensors files."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

from .. import io
from .._engine import Tensor
from ..nn import Module

INDEX, SINGLE, CONFIG = "model.safetensors.index.json", "model.safetensors", "config.json"


class CheckpointError(ValueError):
    """The weights in a folder do not fit the model that its ``config.json`` describes.

    ``missing`` and ``unexpected`` are names of parameters, ``mismatched`` maps names to two shapes: of the file and of the
    model.
    """

    def __init__(
        self,
        message: str,
        missing: list[str] | None = None,
        unexpected: list[str] | None = None,
        mismatched: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] | None = None,
    ) -> None:
        super().__init__(message)
        self.missing, self.unexpected, self.mismatched = missing or [], unexpected or [], mismatched or {}


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, "a model's folder must contain this file", str(path))
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


def read_config(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The contents of a folder's ``config.json``."""
    if not Path(folder).is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", os.fspath(folder))
    return read_json(Path(folder) / CONFIG)


def read_weights(folder: str | os.PathLike[str], device: Any) -> dict[str, Tensor]:
    """All tensors of ``model.safetensors``, or of the files that ``model.safetensors.index.json`` lists."""
    index = Path(folder) / INDEX
    if not index.is_file():
        path = Path(folder) / SINGLE
        if not path.is_file():
            message = f"a model's folder must contain this file, or {INDEX}"
            raise FileNotFoundError(errno.ENOENT, message, str(path))
        return _tensors(path, device)
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise ValueError(f"{index}: expected an object \"weight_map\" of file names by parameter")
    weights: dict[str, Tensor] = {}
    for file in sorted(set(places.values())):
        if Path(file).name != file:
            raise ValueError(f"{index}: expected the name of a file in the same folder, got {file!r}")
        if not (Path(folder) / file).is_file():
            raise FileNotFoundError(errno.ENOENT, f"{INDEX} lists this file", str(Path(folder) / file))
        found = _tensors(Path(folder) / file, device)
        absent = sorted(name for name, place in places.items() if place == file and name not in found)
        if absent:
            raise CheckpointError(f"{Path(folder) / file} lacks parameters that {INDEX} lists: {_some(absent)}", absent)
        weights.update(found)
    return weights


def _tensors(path: Path, device: Any) -> dict[str, Tensor]:
    content = io.load(path, device)
    if not isinstance(content, dict) or not all(isinstance(each, Tensor) for each in content.values()):
        raise ValueError(f"{path}: expected tensors by name")
    return content


def renamed(weights: dict[str, Tensor], prefix: str, ignored: str) -> dict[str, Tensor]:
    """The weights under the names of the model with a head. Checkpoints of models without one lack the prefix; old ones
    contain constants, which the pattern ``ignored`` matches.
    """
    kept = {name: value for name, value in weights.items() if not re.search(ignored, name)}
    if any(name.startswith(prefix) for name in kept):
        return kept
    return {name if name.startswith("lm_head.") else prefix + name: value for name, value in kept.items()}


def assign(model: Module, weights: dict[str, Tensor], folder: str | os.PathLike[str]) -> None:
    """Stores the weights in the model's parameters; on an error, changes nothing."""
    own = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    missing = [name for name in own if name not in weights]
    unexpected = [name for name in weights if name not in own]
    given = {name: tuple(value.shape) for name, value in weights.items()}
    mismatched = {name: (given[name], own[name]) for name in own if name in given and given[name] != own[name]}
    parts = [f"missing parameters: {_some(missing)}"] if missing else []
    parts += [f"unexpected parameters: {_some(unexpected)}"] if unexpected else []
    shapes = [f"{name} has shape {shape}, the model has {needed}" for name, (shape, needed) in mismatched.items()]
    parts += [_some(shapes)] if shapes else []
    if parts:
        text = f"{os.fspath(folder)}: the weights do not fit {type(model).__name__}: {'; '.join(parts)}"
        raise CheckpointError(text, missing, unexpected, mismatched)
    model.load_state_dict(weights)


def _some(names: list[str]) -> str:
    """The first names; the error's attributes have all of them."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more
