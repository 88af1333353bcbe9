"""Checkpoints that all ranks write together, and that any number of ranks can read.

A checkpoint is a folder: a safetensors file of each rank, and ``index.json``, which says where each tensor is. Tensors
that every rank has are written by one of them. A tensor that is divided among ranks is a :class:`Shard` on each. The
folder appears under its name once everything is written, so a checkpoint is complete or not there.

>>> import tempfile
>>> import neurenix as nx
>>> import neurenix.distributed as dist
>>> from neurenix.distributed import checkpoint
>>> _ = dist.init_process_group()
>>> path = tempfile.mkdtemp() + "/step-3"
>>> model = nx.nn.Linear(2, 2)
>>> checkpoint.save({"model": model.state_dict(), "step": 3}, path)
>>> state = checkpoint.load({"model": nx.nn.Linear(2, 2).state_dict(), "step": 0}, path)
>>> state["step"], bool((state["model"]["weight"] == model.weight).all())
(3, True)
>>> dist.destroy_process_group()
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._engine import ProcessGroup, Tensor
from ._groups import group_or_world

__all__ = ["Shard", "latest", "load", "save"]

_INDEX = "index.json"


@dataclass(frozen=True)
class Shard:
    """A part of a tensor that is divided among ranks, in row-major order: from element ``start`` on, of ``size``."""

    tensor: Tensor
    start: int
    size: int


def _leaves(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested dictionaries and lists, by their paths."""
    if isinstance(state, dict):
        for key, value in state.items():
            yield from _leaves(value, f"{path}/{key}" if path else str(key))
    elif isinstance(state, (list, tuple)):
        for at, value in enumerate(state):
            yield from _leaves(value, f"{path}/{at}" if path else str(at))
    else:
        yield path, state


def _rebuilt(state: Any, value_of: Callable[[str, Any], Any], path: str = "") -> Any:
    """The same dictionaries and lists with other values."""
    if isinstance(state, dict):
        return {key: _rebuilt(value, value_of, f"{path}/{key}" if path else str(key)) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        values = [_rebuilt(value, value_of, f"{path}/{at}" if path else str(at)) for at, value in enumerate(state)]
        return values if isinstance(state, list) else tuple(values)
    return value_of(path, state)


def _together(group: ProcessGroup, problem: str | None) -> None:
    """Raises if a rank has a problem: then all of them do."""
    problems = [part.decode() for part in group._all_gather_bytes((problem or "").encode())]
    for rank, text in enumerate(problems):
        if text:
            raise RuntimeError(f"checkpoint: rank {rank}: {text}")


def save(state: Any, path: str | os.PathLike[str], group: Any = None) -> None:
    """Writes dictionaries and lists of tensors, shards and plain values. Every rank calls it, with the same keys. An older
    checkpoint of this name is replaced.

    Raises ``RuntimeError`` on every rank if one of them cannot write; the older checkpoint is then as it was.
    """
    group = group_or_world(group, "checkpoint.save")
    final = Path(path)
    unfinished = final.with_name(f"{final.name}.unfinished")
    rank, file = group.rank(), f"rank-{group.rank()}.safetensors"
    if rank == 0:
        shutil.rmtree(unfinished, ignore_errors=True)
    own: dict[str, Tensor] = {}
    parts: dict[str, dict[str, Any]] = {}
    plain: dict[str, Any] = {}
    problem = None
    try:
        if rank == 0:
            unfinished.mkdir(parents=True)
    except OSError as error:
        problem = str(error)
    _together(group, problem)
    try:
        with no_grad():
            for at, (key, value) in enumerate(_leaves(state)):
                if isinstance(value, Shard):
                    own[key] = value.tensor.detach().reshape(-1)
                    part = {"file": file, "start": value.start, "length": value.tensor.numel()}
                    parts[key] = {"size": value.size, "dtype": str(value.tensor.dtype), "parts": [part]}
                elif isinstance(value, Tensor):
                    writer = at % group.size()
                    if writer == rank:
                        own[key] = value.detach().reshape(-1)
                    part = {"file": f"rank-{writer}.safetensors", "start": 0, "length": value.numel()}
                    parts[key] = {"size": value.numel(), "dtype": str(value.dtype), "parts": [part]}
                else:
                    plain[key] = value
        _engine.save_safetensors(os.fspath(unfinished / file), own, {})
        json.dumps(plain)
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        problem = str(error)
    _together(group, problem)
    gathered = [json.loads(part) for part in group._all_gather_bytes(json.dumps(parts).encode())]
    try:
        if rank == 0:
            _finish(_merged(gathered), plain, group.size(), unfinished, final)
    except (OSError, ValueError) as error:
        problem = str(error)
    _together(group, problem)


def _merged(gathered: list[dict[str, Any]]) -> dict[str, Any]:
    """One entry for each tensor, from those of all ranks."""
    merged: dict[str, Any] = {}
    for parts in gathered:
        for key, entry in parts.items():
            known = merged.setdefault(key, {**entry, "parts": []})
            if (known["size"], known["dtype"]) != (entry["size"], entry["dtype"]):
                raise ValueError(f"{key} is not of one size and dtype on all ranks")
            known["parts"] += [part for part in entry["parts"] if part not in known["parts"]]
    return merged


def _finish(tensors: dict[str, Any], plain: dict[str, Any], ranks: int, unfinished: Path, final: Path) -> None:
    """Writes the index, and gives the folder its name."""
    index = unfinished / _INDEX
    with open(index, "w", encoding="utf-8") as file:
        json.dump({"version": 1, "ranks": ranks, "tensors": tensors, "values": plain}, file)
        file.flush()
        os.fsync(file.fileno())
    old = final.with_name(f"{final.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    unfinished.rename(final)
    _flush(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def _flush(folder: Path) -> None:
    """Makes names in a folder last, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def latest(folder: str | os.PathLike[str]) -> Path | None:
    """The newest complete checkpoint in a folder: of names that end with numbers, the greatest. None without any."""

    def number(path: Path) -> int:
        digits = re.search(r"\d+$", path.name)
        return int(digits.group()) if digits else -1

    found = {path.parent for path in Path(folder).glob(f"*/{_INDEX}")}
    found = {path.with_name(path.name.removesuffix(".old")) for path in found if path.suffix != ".unfinished"}
    return max(found, key=lambda path: (number(path), path.name), default=None)


class _Files:
    """The ranks' files, each read once."""

    def __init__(self, path: Path) -> None:
        self.path, self.read = path, dict[str, dict[str, Tensor]]()

    def part(self, file: str, key: str) -> Tensor:
        if file not in self.read:
            self.read[file] = _engine.load_safetensors(os.fspath(self.path / file), "cpu")[0]
        return self.read[file][key]


def load(state: Any, path: str | os.PathLike[str], group: Any = None) -> Any:
    """Reads a checkpoint into the tensors and shards of ``state``, and returns the state with the plain values of the
    checkpoint. The number of ranks may be another one than when it was written.

    Raises ``FileNotFoundError`` if there is no complete checkpoint, and ``ValueError`` if it does not fit the state;
    nothing is changed then.
    """
    folder = _complete(Path(path))
    try:
        index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"checkpoint.load: {folder} is no complete checkpoint") from None
    tensors, plain, files = index["tensors"], index["values"], _Files(folder)
    targets = dict(_leaves(state))
    missing = [key for key, value in targets.items() if key not in (tensors if _is_tensor(value) else plain)]
    if missing:
        raise ValueError(f"checkpoint.load: {folder} does not have {missing[0]}, and {len(missing) - 1} more")
    roots = {key.split("/")[0] for key in targets} | (set(state) if isinstance(state, dict) else set())
    dropped = [key for key in (*tensors, *plain) if key not in targets and key.split("/")[0] in roots]
    if dropped:
        raise ValueError(
            f"checkpoint.load: the state has no {dropped[0]} to read into, and {len(dropped) - 1} more: an optimiser has its "
            "tensors after its first step"
        )
    found: dict[str, Tensor] = {}
    for key, value in targets.items():
        if not _is_tensor(value):
            continue
        shard = value if isinstance(value, Shard) else Shard(value, 0, value.numel())
        entry = tensors[key]
        if entry["size"] != shard.size:
            raise ValueError(f"checkpoint.load: {key} has {entry['size']} elements in {folder}, and {shard.size} here")
        found[key] = _elements(entry, key, shard, files)
    with no_grad():
        for key, read in found.items():
            target = targets[key].tensor if isinstance(targets[key], Shard) else targets[key]
            target.copy_(read.reshape(target.shape))
    return _rebuilt(state, lambda key, value: value if _is_tensor(value) else plain[key])


def _complete(folder: Path) -> Path:
    """The folder, or the older one if a process was killed between their renames."""
    old = folder.with_name(f"{folder.name}.old")
    return old if not (folder / _INDEX).exists() and (old / _INDEX).exists() else folder


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (Tensor, Shard))


def _elements(entry: dict[str, Any], key: str, shard: Shard, files: _Files) -> Tensor:
    """A shard's elements, from the parts that have them."""
    pieces, at, end = [], shard.start, shard.start + shard.tensor.numel()
    for part in sorted(entry["parts"], key=lambda part: part["start"]):
        first, last = max(at, part["start"]), min(end, part["start"] + part["length"])
        if first < last:
            if first > at:
                break
            pieces.append(files.part(part["file"], key)[first - part["start"] : last - part["start"]])
            at = last
    if at < end:
        raise ValueError(f"checkpoint.load: elements {at} to {end} of {key} are missing")
    return _engine.cat(pieces, 0) if pieces else shard.tensor.detach().reshape(-1).cpu()
