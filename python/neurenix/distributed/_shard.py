"""Which part of a tensor a rank has."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from .._engine import Tensor


@dataclass(frozen=True)
class Part:
    """Some elements of a tensor of ``shape``: from its box at index ``offset``, of shape ``box``, those from element
    ``start`` on, ``length`` of them, in row-major order. By default the box is the whole tensor, and all of it.

    Ranges divide a vector of parameters, boxes divide matrices. A range of a box is what remains if both do.

    >>> from neurenix.distributed.checkpoint import Part
    >>> Part((4, 6), offset=(2, 0), box=(2, 6)).length
    12
    """

    shape: tuple[int, ...]
    offset: tuple[int, ...] = ()
    box: tuple[int, ...] = ()
    start: int = 0
    length: int = -1

    def __post_init__(self) -> None:
        shape = tuple(map(int, self.shape))
        offset = tuple(map(int, self.offset)) or (0,) * len(shape)
        box = tuple(map(int, self.box)) or tuple(size - first for size, first in zip(shape, offset))
        length = math.prod(box) - self.start if self.length == -1 else self.length
        for name, value in (("shape", shape), ("offset", offset), ("box", box), ("length", length)):
            object.__setattr__(self, name, value)
        if not len(shape) == len(offset) == len(box):
            raise ValueError(f"Part: shape, offset and box must have as many dimensions: {shape}, {offset}, {box}")
        if any(first < 0 or size < 0 or first + size > all_ for first, size, all_ in zip(offset, box, shape)):
            raise ValueError(f"Part: a box of shape {box} at {offset} is not inside a tensor of shape {shape}")
        if self.start < 0 or length < 0 or self.start + length > math.prod(box):
            raise ValueError(f"Part: elements {self.start} to {self.start + length} are not inside a box of shape {box}")

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole tensor."""
        return self.box == self.shape and self.length == math.prod(self.shape)

    @property
    def own_shape(self) -> tuple[int, ...]:
        """The shape of a tensor of these elements: the box, or a vector if some of it is missing."""
        return self.box if self.length == math.prod(self.box) else (self.length,)

    def range(self, start: int, length: int) -> Part:
        """A range of the same box."""
        return Part(self.shape, self.offset, self.box, start, length)


@dataclass(frozen=True)
class Shard:
    """A tensor that is divided among ranks: the elements of this rank, and which :class:`Part` of it they are."""

    tensor: Tensor
    part: Part

    def __post_init__(self) -> None:
        if self.tensor.numel() != self.part.length:
            raise ValueError(f"Shard: a tensor of {self.tensor.numel()} elements is not a part of {self.part.length}")


class Unread(dict[str, Any]):
    """An empty dictionary in the place of what an optimiser will keep for a parameter. ``checkpoint.load`` reads
    tensors of the parameter's shape as this part; with None nothing, because other ranks have them.
    """

    def __init__(self, part: Part | None) -> None:
        super().__init__()
        self.part = part


@dataclass(frozen=True)
class Box:
    """A box of a tensor, and the place of its first element among those of a part, which has it in row-major order."""

    offset: tuple[int, ...]
    size: tuple[int, ...]
    at: int = 0

    def cut(self, other: Box) -> Box | None:
        """What two boxes have in common."""
        first = tuple(map(max, self.offset, other.offset))
        ends = (min(a + n, b + m) for a, n, b, m in zip(self.offset, self.size, other.offset, other.size))
        size = tuple(end - start for end, start in zip(ends, first))
        return Box(first, size) if all(each > 0 for each in size) else None

    def without(self, cut: Box) -> Iterator[Box]:
        """What remains of a box without one that is inside it."""
        offset, size = list(self.offset), list(self.size)
        for dim, (first, length) in enumerate(zip(cut.offset, cut.size)):
            for start, end in ((offset[dim], first), (first + length, offset[dim] + size[dim])):
                if start < end:
                    yield Box((*offset[:dim], start, *offset[dim + 1 :]), (*size[:dim], end - start, *size[dim + 1 :]))
            offset[dim], size[dim] = first, length

    def place(self, index: tuple[int, ...]) -> int:
        """The place of the element at an index of the tensor."""
        place = 0
        for at, first, length in zip(index, self.offset, self.size):
            place = place * length + at - first
        return self.at + place

    def __str__(self) -> str:
        return f"[{', '.join(f'{first}:{first + length}' for first, length in zip(self.offset, self.size))}]"


def boxes(part: Part) -> Iterator[Box]:
    """A part as boxes, one after the other: a range is at most twice as many as there are dimensions."""

    def inside(offset: tuple[int, ...], box: tuple[int, ...], start: int, length: int) -> Iterator[Box]:
        # `box` are the dimensions that are left; of those before, the part has one index.
        if not length:
            return
        before, size = offset[: len(offset) - len(box)], (1,) * (len(offset) - len(box))
        if length == math.prod(box):
            yield Box(offset, (*size, *box))
            return
        row, rest = math.prod(box[1:]), offset[len(before) + 1 :]
        end = start + length
        while start < end:
            first, skipped = divmod(start, row)
            rows = 0 if skipped else (end - start) // row
            here = (*before, offset[len(before)] + first, *rest)
            if rows:
                yield Box(here, (*size, rows, *box[1:]))
                start += rows * row
            else:
                taken = min(end - start, row - skipped)
                yield from inside(here, box[1:], skipped, taken)
                start += taken

    at = 0
    for each in inside(part.offset, part.box, part.start, part.length):
        yield Box(each.offset, each.size, at)
        at += math.prod(each.size)


@dataclass(frozen=True)
class Copy:
    """What one part gives another: a box that is inside a box of each."""

    common: Box
    source: Box
    target: Box

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Elements that are consecutive in both parts: the first one's place in each, and the number."""
        dim, length = len(self.common.size), 1
        # The last dimensions that both have in full, and one more.
        while dim:
            dim -= 1
            length *= self.common.size[dim]
            if not self.common.size[dim] == self.source.size[dim] == self.target.size[dim]:
                break
        for index in product(*map(range, self.common.size[:dim])):
            here = (*map(sum, zip(self.common.offset, index)), *self.common.offset[dim:])
            yield self.source.place(here), self.target.place(here), length


def copies(target: Part, sources: list[Part]) -> tuple[list[tuple[int, list[Copy]]], Box | None]:
    """Where a part's elements are: for each source that has some, its number, and what it gives. And a box that no
    source has.
    """
    missing = [(box, box) for box in boxes(target)]
    found = []
    for number, source in enumerate(sources):
        if not missing:
            break
        given = []
        for box in boxes(source):
            left = []
            for rest, within in missing:
                common = rest.cut(box)
                if common is None:
                    left.append((rest, within))
                else:
                    given.append(Copy(common, box, within))
                    left += [(each, within) for each in rest.without(common)]
            missing = left
        if given:
            found.append((number, given))
    return found, missing[0][0] if missing else None
