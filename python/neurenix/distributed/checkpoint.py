"""Checkpoints that all ranks write together, and that any number of ranks can read.

A checkpoint is a folder: a safetensors file of each rank, and ``index.json``, which says where each tensor is. What
several ranks have is written by one of them. A tensor that is divided among ranks is a :class:`Shard` on each. The
folder appears under its name once everything is written, so a checkpoint is complete or not there.

:func:`get_model_state_dict` and :func:`get_optimizer_state_dict` give this rank's part of the state of any network and
optimiser, by names that do not depend on how they are divided.

>>> import tempfile
>>> import neurenix as nx
>>> import neurenix.distributed as dist
>>> from neurenix.distributed import checkpoint
>>> _ = dist.init_process_group()
>>> path = tempfile.mkdtemp() + "/step-1"
>>> def parts(model, optimizer, step):
...     return {
...         "model": checkpoint.get_model_state_dict(model),
...         "optimizer": checkpoint.get_optimizer_state_dict(model, optimizer),
...         "step": step,
...     }
>>> model = nx.nn.Linear(2, 2)
>>> optimizer = nx.optim.Adam(model.parameters())
>>> model(nx.ones(1, 2)).sum().backward()
>>> optimizer.step()
>>> checkpoint.save(parts(model, optimizer, 1), path)

After a restart:

>>> again = nx.nn.Linear(2, 2)
>>> optimizer = nx.optim.Adam(again.parameters())
>>> state = checkpoint.load(parts(again, optimizer, 0), path)
>>> checkpoint.set_model_state_dict(again, state["model"])
>>> checkpoint.set_optimizer_state_dict(again, optimizer, state["optimizer"])
>>> state["step"], bool((again.weight == model.weight).all())
(1, True)
>>> dist.destroy_process_group()
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._engine import ProcessGroup, Tensor
from ..nn.module import Module
from ..optim.optimizer import Optimizer
from . import _module_state, _optim_state
from ._groups import GroupMember, group_or_world, group_unless_alone
from ._part_files import BLOCK, PartFiles, write
from ._shard import Copy, Part, Shard, Unread, copies

__all__ = [
    "Part",
    "Shard",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "latest",
    "load",
    "save",
    "set_model_state_dict",
    "set_optimizer_state_dict",
]

_INDEX = "index.json"
_VERSION = 2


# The state of networks and optimisers.
def get_model_state_dict(model: Module) -> dict[str, Any]:
    """The parameters and buffers of a network by the names that they have without wrappers: tensors, and a
    :class:`Shard` of what is divided among ranks by tensor parallelism, sharding or both. A parameter with several
    names has the first one only.
    """
    return _module_state.model_state(model)


def set_model_state_dict(model: Module, model_state_dict: Mapping[str, Any]) -> None:
    """Stores what :func:`load` has read into the state of :func:`get_model_state_dict`."""
    _module_state.load_model_state(model, model_state_dict)


def get_optimizer_state_dict(model: Module, optimizers: Optimizer) -> dict[str, Any]:
    """What one optimiser keeps for the parameters of a network, by their names: ``state`` and ``param_groups`` as in
    ``optimizer.state_dict()``, with a :class:`Shard` of what is divided among ranks. The optimiser may be a
    :class:`neurenix.distributed.optim.ZeroRedundancyOptimizer`: each rank has the state of some parameters. Before
    the first step, each parameter has an empty dictionary, into which :func:`load` reads this rank's part.
    """
    return _optim_state.sharded_state(model, optimizers)


def set_optimizer_state_dict(model: Module, optimizers: Optimizer, optim_state_dict: Mapping[str, Any]) -> None:
    """Stores what :func:`load` has read into the state of :func:`get_optimizer_state_dict`."""
    optimizers.load_state_dict(_optim_state.state_to_load(model, optimizers, optim_state_dict))


# Paths are JSON pointers (RFC 6901) without the first slash.
def _escaped(key: Any) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")


def _unescaped(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")


def _inside(path: str, token: str) -> str:
    return f"{path}/{token}" if path else token


def _items(state: Any) -> Iterator[tuple[Any, Any]]:
    return iter(state.items()) if isinstance(state, dict) else enumerate(state)


def _leaves(state: Any, path: str, lists: list[str]) -> Iterator[tuple[str, Any]]:
    """The values of nested dictionaries and lists by their paths, also empty ones; and the paths of lists."""
    if isinstance(state, (dict, list, tuple)) and state:
        if not isinstance(state, dict):
            lists.append(path)
        for key, value in _items(state):
            yield from _leaves(value, _inside(path, _escaped(key)), lists)
    else:
        yield path, state


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (Tensor, Shard))


def _shard(value: Any) -> Shard:
    return value if isinstance(value, Shard) else Shard(value.detach(), Part(tuple(value.shape)))


def _together(group: ProcessGroup | None, error: Exception | None, value: Any = None) -> list[Any]:
    """What each rank gives. Raises if a rank has a problem: then all of them do."""
    if group is None:
        if error is not None:
            raise error
        return [value]
    given = json.dumps({"problem": None if error is None else str(error), "value": None if error else value})
    found = [json.loads(part) for part in group._all_gather_bytes(given.encode())]
    for rank, each in enumerate(found):
        if each["problem"] is not None:
            raise RuntimeError(f"checkpoint: rank {rank}: {each['problem']}") from error
    return [each["value"] for each in found]


# Writing.
def save(state: Any, path: str | os.PathLike[str], group: Any = None) -> None:
    """Writes dictionaries and lists of tensors, shards and plain values. Every rank calls it. What several ranks have
    under a name must be the same; a rank may have names that others do not have. Keys are saved as strings, and
    :func:`load` returns new ones as strings. An older checkpoint of this name is replaced, with everything in its
    folder. A folder that is neither empty nor a checkpoint is never replaced.

    Raises ``RuntimeError`` on every rank if one of them cannot write, and without a group the error itself; the older
    checkpoint is then as it was.
    """
    group = group_unless_alone(group, "checkpoint.save")
    rank = 0 if group is None else group.rank()
    # Links stay links.
    final = Path(path).resolve()
    unfinished = final.with_name(f"{final.name}.unfinished")
    file = f"rank-{rank}.safetensors"
    problem: Exception | None = None
    own: dict[str, Shard] = {}
    description: dict[str, Any] = {}
    try:
        if rank == 0:
            for each in (final, _older(final), unfinished):
                _check_replaceable(each)
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
        own, description = _described(state)
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        problem = error
    gathered = _together(group, problem, description)
    sums: dict[str, list[str]] = {}
    index: dict[str, Any] = {}
    try:
        index = _merged(gathered)
        mine = [key for key, entry in index["tensors"].items() if any(part["file"] == file for part in entry["parts"])]
        with no_grad():
            sums = write(unfinished / file, {key: own[key].tensor.detach().reshape(own[key].part.own_shape) for key in mine})
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        problem = error
    all_sums = _together(group, problem, sums)
    try:
        if rank == 0:
            for key, entry in index["tensors"].items():
                for part in entry["parts"]:
                    part["crc32"] = all_sums[int(part["file"].removeprefix("rank-").partition(".")[0])][key]
            _finish(index, unfinished, final)
    except (OSError, ValueError) as error:
        problem = error
    _together(group, problem)


def _described(state: Any) -> tuple[dict[str, Shard], dict[str, Any]]:
    """This rank's tensors, and what it has besides their elements."""
    own: dict[str, Shard] = {}
    tensors: dict[str, Any] = {}
    values: dict[str, Any] = {}
    lists: list[str] = []
    for key, value in _leaves(state, "", lists):
        if key in own or key in values:
            raise ValueError(f"two keys of the state are {key!r} as text")
        if not _is_tensor(value):
            _check_plain(key, value)
            values[key] = value
            continue
        shard = own[key] = _shard(value)
        part = shard.part
        place = {"offset": part.offset, "box": part.box, "start": part.start, "length": part.length}
        tensors[key] = {"shape": part.shape, "dtype": shard.tensor.dtype.name, "part": place}
    return own, {"tensors": tensors, "values": values, "lists": lists}


def _check_plain(key: str, value: Any) -> None:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"{key} is a {type(value).__name__}: save tensors, and numbers, strings, bools and None of Python"
        ) from None


def _merged(gathered: list[dict[str, Any]]) -> dict[str, Any]:
    """The index, without checksums. Of what several ranks have, the one that writes least writes it."""
    tensors: dict[str, Any] = {}
    values: dict[str, Any] = {}
    lists: dict[str, None] = {}
    holders: dict[tuple[str, str], list[int]] = {}
    for rank, each in enumerate(gathered):
        for key, entry in each["tensors"].items():
            known = tensors.setdefault(key, {"shape": entry["shape"], "dtype": entry["dtype"], "parts": []})
            if (known["shape"], known["dtype"]) != (entry["shape"], entry["dtype"]):
                raise ValueError(
                    f"{key} is not of one shape and dtype on all ranks: get_model_state_dict and "
                    "get_optimizer_state_dict know which parameters are divided"
                )
            if entry["part"]["length"]:
                holders.setdefault((key, json.dumps(entry["part"])), []).append(rank)
        for key, value in each["values"].items():
            values.setdefault(key, value)
        lists.update(dict.fromkeys(each["lists"]))
    work = [0] * len(gathered)
    for (key, place), ranks in holders.items():
        writer = min(ranks, key=lambda rank: work[rank])
        part = json.loads(place)
        work[writer] += part["length"] * _engine.dtype(tensors[key]["dtype"]).itemsize
        tensors[key]["parts"].append({"file": f"rank-{writer}.safetensors", **part})
    for key, entry in tensors.items():
        missing = copies(Part(tuple(entry["shape"])), [_part(part, entry) for part in entry["parts"]])[1]
        if missing is not None:
            raise ValueError(f"no rank has {key}{missing}")
    return {
        "version": _VERSION,
        "ranks": len(gathered),
        "block": BLOCK,
        "tensors": tensors,
        "values": values,
        "lists": list(lists),
    }


def _part(place: Mapping[str, Any], entry: Mapping[str, Any]) -> Part:
    """A part of an entry of the index."""
    return Part(entry["shape"], place["offset"], place["box"], place["start"], place["length"])


def _finish(index: dict[str, Any], unfinished: Path, final: Path) -> None:
    """Writes the index, and gives the folder its name."""
    with open(unfinished / _INDEX, "w", encoding="utf-8") as file:
        json.dump(index, file)
        file.flush()
        os.fsync(file.fileno())
    old = _older(final)
    # If a process was killed between the renames, the older checkpoint has only this name: it stays until there is
    # another one.
    if (final / _INDEX).exists():
        shutil.rmtree(old, ignore_errors=True)
        final.rename(old)
    elif final.exists():
        final.rmdir()
    unfinished.rename(final)
    _flush(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def _older(folder: Path) -> Path:
    """Where a checkpoint is while another one takes its place."""
    return folder.with_name(f"{folder.name}.old")


def _check_replaceable(folder: Path) -> None:
    """Refuses to remove what is no checkpoint."""
    names = os.listdir(folder) if folder.exists() else []
    own = [name for name in names if re.fullmatch(r"rank-\d+\.safetensors", name)]
    is_unfinished = folder.suffix == ".unfinished" and own == names
    if names and _INDEX not in names and not is_unfinished:
        raise FileExistsError(f"{folder} exists and is no checkpoint, so it is not replaced: choose another path")


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


# Reading.
def load(state: Any, path: str | os.PathLike[str], group: Any = None) -> Any:
    """Reads a checkpoint into the tensors and shards of ``state``, and returns the state with the plain values of the
    checkpoint. Every rank calls it; the number of ranks, and how tensors are divided, may be others than when it was
    written. A rank reads what it needs, one tensor at a time.

    An empty dictionary or list becomes what the checkpoint has there, on the CPU: the state of an optimiser before its
    first step. Keys at the top that the state does not have are left out.

    Raises ``FileNotFoundError`` if there is no complete checkpoint, and ``ValueError`` if it does not fit the state;
    nothing is changed then. Damaged files are a ``ValueError``, too; some tensors may have been read then. If the
    problem is another rank's, it is a ``RuntimeError``.
    """
    if group is not None or GroupMember.WORLD is not None:
        group = group_or_world(group, "checkpoint.load")
    problem: Exception | None = None
    reading, found = None, None
    try:
        reading = _Reading(Path(path))
        found = reading.fitted(state)
    except (OSError, LookupError, TypeError, ValueError) as error:
        problem = error
    _agree(group, problem)
    assert reading is not None
    try:
        with no_grad():
            found = reading.filled(found)
    except (OSError, LookupError, TypeError, ValueError, RuntimeError) as error:
        problem = error
    _agree(group, problem)
    return found


def _agree(group: ProcessGroup | None, problem: Exception | None) -> None:
    """Raises this rank's problem, or says that another one has one."""
    try:
        _together(group, problem)
    except RuntimeError:
        if problem is None:
            raise
    if problem is not None:
        raise problem


class _ToRead:
    """A tensor of the checkpoint: which part is needed, where it is, and into what it is read, if anything."""

    def __init__(self, key: str, part: Part, found: list[tuple[int, list[Copy]]], target: Any) -> None:
        self.key, self.part, self.found, self.target = key, part, found, target


class _Reading:
    """A checkpoint that is read."""

    def __init__(self, folder: Path) -> None:
        folder = folder.resolve()
        old = _older(folder)
        # A process was killed between the renames.
        self.folder = old if not (folder / _INDEX).exists() and (old / _INDEX).exists() else folder
        try:
            index = json.loads((self.folder / _INDEX).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FileNotFoundError(f"checkpoint.load: {self.folder} is no complete checkpoint") from None
        except ValueError as error:
            raise ValueError(f"{self.folder / _INDEX} is damaged: {error}") from None
        if index.get("version") != _VERSION:
            raise ValueError(
                f"checkpoint.load: {self.folder} has version {index.get('version')}, this library reads {_VERSION}"
            )
        self.tensors, self.values, self.lists = index["tensors"], index["values"], set(index["lists"])
        self.files = PartFiles(self.folder, index["block"])
        # The keys inside each path, and the paths that have tensors inside.
        self.inside: dict[str, dict[str, None]] = {}
        self.with_tensors: set[str] = set()
        for key in (*self.tensors, *self.values):
            path, is_tensor = key, key in self.tensors
            while True:
                if is_tensor:
                    self.with_tensors.add(path)
                if not path:
                    break
                path, _, token = path.rpartition("/")
                self.inside.setdefault(path, {})[token] = None

    def fitted(self, state: Any, path: str = "") -> Any:
        """The state with plain values of the checkpoint, and with what is to be read in the place of tensors."""
        if _is_tensor(state):
            return self._to_read(path, _shard(state).part, state)
        if isinstance(state, Unread) and state.part is None:
            return {}
        if isinstance(state, (dict, list)) and not state:
            return self._taken(path, state.part if isinstance(state, Unread) else None, state)
        if not isinstance(state, (dict, list, tuple)):
            if path in self.values:
                return self.values[path]
            raise ValueError(f"checkpoint.load: {self.folder} does not have {path}")
        given = list(_items(state))
        is_list = path in self.lists or self.values.get(path) == []
        has_tensors = path in self.with_tensors or any(_is_tensor(value) for _, value in _leaves(state, "", []))
        if is_list and not has_tensors:
            # Plain lists may have another length.
            given = given[: len(self.inside.get(path, ()))]
        read = {key: self.fitted(value, _inside(path, _escaped(key))) for key, value in given}
        if path or not isinstance(state, dict):
            known = {_escaped(key) for key in read}
            for token in self.inside.get(path, ()):
                if token in known:
                    continue
                place = _inside(path, token)
                if place in self.with_tensors:
                    raise ValueError(f"checkpoint.load: the state has no {place} to read into")
                read[_unescaped(token)] = self._taken(place)
        if isinstance(state, dict):
            return read
        return list(read.values()) if isinstance(state, list) else tuple(read.values())

    def _taken(self, path: str, part: Part | None = None, otherwise: Any = None) -> Any:
        """What the checkpoint has at a path; this part of tensors that are like a parameter."""
        if path in self.tensors:
            shape = tuple(self.tensors[path]["shape"])
            # Counts are not divided.
            if part is None or shape != part.shape or not shape or path.rpartition("/")[2] == "step":
                part = Part(shape)
            return self._to_read(path, part, None)
        inside = self.inside.get(path)
        if inside is None:
            return self.values.get(path, otherwise)
        if path in self.lists:
            return [self._taken(f"{path}/{at}", part) for at in range(len(inside))]
        return {_unescaped(key): self._taken(_inside(path, key), part) for key in inside}

    def _to_read(self, key: str, part: Part, target: Any) -> _ToRead:
        """Checks that the checkpoint has a part."""
        if key not in self.tensors:
            raise ValueError(f"checkpoint.load: {self.folder} does not have {key}")
        entry = self.tensors[key]
        shape = tuple(entry["shape"])
        if shape != part.shape:
            raise ValueError(f"checkpoint.load: {key} has shape {shape} in {self.folder}, and {part.shape} here")
        found, missing = copies(part, [_part(place, entry) for place in entry["parts"]])
        if missing is not None:
            raise ValueError(f"checkpoint.load: {self.folder} does not have {key}{missing}")
        return _ToRead(key, part, found, target)

    def filled(self, state: Any) -> Any:
        """The state with tensors, which are read."""
        if isinstance(state, _ToRead):
            return self._read(state)
        if isinstance(state, dict):
            return {key: self.filled(value) for key, value in state.items()}
        if isinstance(state, (list, tuple)):
            values = [self.filled(value) for value in state]
            return values if isinstance(state, list) else tuple(values)
        return state

    def _read(self, needed: _ToRead) -> Any:
        values = self.files.read(needed.key, self.tensors[needed.key], needed.found, needed.part.length)
        if needed.target is None:
            values = values.reshape(needed.part.own_shape)
            return values if needed.part.is_whole else Shard(values, needed.part)
        place = needed.target.tensor if isinstance(needed.target, Shard) else needed.target
        place.copy_(values.reshape(place.shape))
        # Now, so that the bytes from the file can be released.
        _engine.evaluate([place])
        return needed.target
