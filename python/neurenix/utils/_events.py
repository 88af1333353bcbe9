"""TensorBoard's event files: records with checksums, and the few protocol buffer messages in them.

The field numbers are those of TensorBoard's ``event.proto``, ``summary.proto``, ``tensor.proto`` and of the
hyperparameter plugin's ``api.proto`` and ``plugin_data.proto``.
"""

from __future__ import annotations

import functools
import os
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

_BLOCK = 256


@functools.cache
def _tables() -> Any:
    """The CRC of a byte that 0 to 255 zero bytes follow, by the Castagnoli polynomial."""
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, (first >> 1) ^ np.uint32(0x82F63B78), first >> 1)
    tables = [first]
    for _ in range(_BLOCK - 1):
        tables.append(first[tables[-1] & 255] ^ (tables[-1] >> 8))
    return np.stack(tables)


def crc32c(data: bytes) -> int:
    """The CRC-32C of bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    tables = _tables()
    state = 0xFFFFFFFF
    whole = len(data) // _BLOCK
    if whole:
        # The CRC is linear: that of a block is the sum of those of its bytes, and of the state before it.
        blocks = np.frombuffer(data, np.uint8, whole * _BLOCK).reshape(whole, _BLOCK)
        order = np.arange(_BLOCK - 1, -1, -1)
        carried = [tables[_BLOCK - 1 - place].tolist() for place in range(4)]
        for start in range(0, whole, 1024):
            sums = np.bitwise_xor.reduce(tables[order, blocks[start : start + 1024]], axis=1)
            for block in sums.tolist():
                state = block ^ functools.reduce(
                    lambda total, place: total ^ carried[place][state >> 8 * place & 255], range(4), 0
                )
    single = tables[0].tolist()
    for byte in data[whole * _BLOCK :]:
        state = single[(state ^ byte) & 255] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


def record(data: bytes) -> bytes:
    """A record of an event file: its length and its bytes, each with a masked checksum."""
    def masked(part: bytes) -> bytes:
        crc = crc32c(part)
        return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


# Protocol buffers: a message is a sequence of fields, each with its number and its kind of encoding.
def varint(value: int) -> bytes:
    """An integer in groups of 7 bits; negative ones as 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field: int, value: int) -> bytes:
    """A field that holds an integer, a truth value or one of an enumeration."""
    return varint(field << 3) + varint(int(value))


def double(field: int, value: float) -> bytes:
    """A field of 64 bits."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    """A field of 32 bits."""
    return varint(field << 3 | 5) + np.float32(value).astype("<f4").tobytes()


def part(field: int, value: bytes | str) -> bytes:
    """A field that holds text, bytes or a message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def doubles(field: int, values: Any) -> bytes:
    """A field of packed 64-bit numbers."""
    return part(field, np.asarray(values, "<f8").tobytes())


def metadata(plugin: str, content: bytes = b"") -> bytes:
    """Says which plugin shows a value."""
    return part(1, part(1, plugin) + part(2, content))


def value(tag: str, *fields: bytes) -> bytes:
    """A summary of one value."""
    return part(1, b"".join([part(1, tag), *fields]))


def text(strings: Sequence[str]) -> bytes:
    """A tensor of strings."""
    return integer(1, 7) + part(2, part(2, integer(1, len(strings)))) + b"".join(part(8, string) for string in strings)


def histogram(values: Any, bins: Any, max_bins: int | None = None) -> bytes:
    """The numbers of values in intervals; ``bins`` are the limits, or one of NumPy's rules for them."""
    values = np.asarray(values).reshape(-1).astype(np.float64)
    if not values.size:
        raise ValueError("add_histogram: there are no values")
    if not np.isfinite(values).all():
        raise ValueError("add_histogram: some values are infinite or NaN")
    counts, limits = np.histogram(values, tensorflow_bins() if bins == "tensorflow" else bins)
    if max_bins is not None and len(counts) > max_bins:
        step = len(counts) // max_bins
        counts = np.add.reduceat(counts, np.arange(0, len(counts), step))
        limits = np.append(limits[:-1:step], limits[-1])
    if not counts.any():
        raise ValueError("add_histogram: no value is within the bins")
    used = np.flatnonzero(counts)
    first, last = used[0], used[-1] + 1
    # A bin is known by its right limit: an empty one before the first gives its left limit.
    return raw_histogram(
        values.min(), values.max(), values.size, values.sum(), values.dot(values), limits[first : last + 1], [0, *counts[first:last]]
    )


def raw_histogram(
    least: float, greatest: float, count: float, total: float, squares: float, limits: Iterable[float], counts: Iterable[float]
) -> bytes:
    """A histogram from its parts; ``limits`` are the right limits of the bins."""
    numbers = (least, greatest, count, total, squares)
    fields = [double(field, number) for field, number in enumerate(numbers, 1)]
    return b"".join(fields) + doubles(6, list(limits)) + doubles(7, list(counts))


@functools.cache
def tensorflow_bins() -> Any:
    """Limits that grow by 10 % from 1e-12 to 1e20, on both sides of 0."""
    limits = []
    limit = 1e-12
    while limit < 1e20:
        limits.append(limit)
        limit *= 1.1
    return np.array([*(-limit for limit in reversed(limits)), 0.0, *limits])


def png(pixels: Any) -> bytes:
    """An image file of bytes ``(height, width, 3 or 4)``."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)) + chunk(b"IEND", b"")


def image(pixels: Any) -> bytes:
    """An image of bytes ``(height, width, 3 or 4)``."""
    height, width, channels = pixels.shape
    return integer(1, height) + integer(2, width) + integer(3, channels) + part(4, png(pixels))


class EventFile:
    """An event file in a folder, open for writing."""

    _lock = threading.Lock()
    _number = 0

    def __init__(self, folder: str, flush_secs: float = 120, suffix: str = "") -> None:
        os.makedirs(folder, exist_ok=True)
        with self._lock:
            number = EventFile._number
            EventFile._number += 1
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{number}{suffix}"
        self.path = os.path.join(folder, name)
        self._file = open(self.path, "ab")
        self._flush_secs = flush_secs
        self._flushed = time.monotonic()
        self.write(part(3, "brain.Event:2"), None, now)
        self.flush()

    def write(self, what: bytes, step: int | None, walltime: float | None) -> None:
        """Adds an event: the field that says what happened."""
        event = double(1, time.time() if walltime is None else walltime)
        if step is not None:
            event += integer(2, step)
        data = record(event + what)
        with self._lock:
            if self._file.closed:
                raise ValueError(f"{self.path}: the writer is closed")
            self._file.write(data)
        if time.monotonic() - self._flushed > self._flush_secs:
            self.flush()

    def summary(self, value: bytes, step: int | None, walltime: float | None) -> None:
        """Adds an event that consists of values."""
        self.write(part(5, value), step, walltime)

    def flush(self) -> None:
        """Writes what is buffered."""
        with self._lock:
            if not self._file.closed:
                self._file.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._file.close()
