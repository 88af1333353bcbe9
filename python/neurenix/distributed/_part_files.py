"""Files of parts of tensors: safetensors files, of which other ranks read single blocks."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from .. import _engine
from .._engine import Tensor
from ._shard import Copy

BLOCK = 1 << 20
"""Bytes that are read at once, and have a checksum of their own, in new checkpoints."""


class PartFile:
    """Tensors in a safetensors file, to read some of their elements."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > os.path.getsize(path):
                raise ValueError(f"{path} is damaged: its header is not complete")
            try:
                self.header = json.loads(file.read(length))
            except ValueError:
                raise ValueError(f"{path} is damaged: its header is not JSON") from None
        self.data = 8 + length

    def place(self, name: str) -> tuple[int, int]:
        """The first byte of a tensor, and the number of bytes."""
        try:
            start, end = self.header[name]["data_offsets"]
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{self.path} is damaged: it does not have {name}") from None
        return self.data + start, end - start


def write(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """Writes tensors. Returns the checksums of each one's blocks."""
    _engine.save_safetensors(os.fspath(path), dict(tensors), {})
    written, sums = PartFile(path), dict[str, list[str]]()
    with open(path, "rb") as file:
        for name in tensors:
            start, length = written.place(name)
            file.seek(start)
            sizes = [min(BLOCK, length - at) for at in range(0, length, BLOCK)]
            sums[name] = [_checksum(file.read(size)) for size in sizes]
    return sums


def _checksum(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


class _Blocks:
    """The bytes of one tensor in an open file. One block is kept."""

    def __init__(self, file: IO[bytes], within: PartFile, name: str, checksums: list[str], size: int) -> None:
        self.file, self.path, self.name, self.checksums, self.size = file, within.path, name, checksums, size
        self.start, self.length = within.place(name)
        self.number, self.block = -1, b""

    def copy(self, start: int, to: memoryview) -> None:
        """Fills ``to`` with the bytes from ``start`` on."""
        done = 0
        while done < len(to):
            number, inside = divmod(start + done, self.size)
            if number != self.number:
                self.block, self.number = self._read(number), number
            count = min(len(to) - done, len(self.block) - inside)
            to[done : done + count] = self.block[inside : inside + count]
            done += count

    def _read(self, number: int) -> bytes:
        self.file.seek(self.start + number * self.size)
        size = min(self.size, self.length - number * self.size)
        data = self.file.read(size)
        if len(data) < size or _checksum(data) != self.checksums[number]:
            raise ValueError(f"{self.path} is damaged: the checksum of {self.name} does not match")
        return data


class PartFiles:
    """The files of a checkpoint. Their headers are read once."""

    def __init__(self, folder: Path, block: int) -> None:
        self.folder, self.block, self.known = folder, block, dict[str, PartFile]()

    def read(self, name: str, entry: Mapping[str, Any], found: list[tuple[int, list[Copy]]], length: int) -> Tensor:
        """The elements of a part, given where they are among those of the index's entry."""
        dtype = entry["dtype"]
        size = _engine.dtype(dtype).itemsize
        data = bytearray(length * size)
        view = memoryview(data)
        for number, copies in found:
            part = entry["parts"][number]
            if part["file"] not in self.known:
                self.known[part["file"]] = PartFile(self.folder / part["file"])
            file = self.known[part["file"]]
            if file.place(name)[1] != part["length"] * size:
                raise ValueError(f"{file.path} is damaged: {name} does not have {part['length']} elements")
            with open(file.path, "rb") as opened:
                blocks = _Blocks(opened, file, name, part["crc32"], self.block)
                for copy in copies:
                    for source, target, count in copy.runs():
                        blocks.copy(source * size, view[target * size : (target + count) * size])
        view.release()
        return _engine.from_bytes(bytes(data), dtype, (length,), "cpu")
