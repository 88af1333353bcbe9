"""Sequences of different lengths as one tensor."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from ... import _engine
from ..._arguments import guard as _guard
from ..._engine import Tensor


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None


class PackedSequence(_Packed):
    """Sequences of different lengths without padding; :func:`pack_padded_sequence` and :func:`pack_sequence` make it.

    ``data`` (sum of lengths, ...) has step 0 of all sequences, the longest sequence first, then step 1 of those that
    have one, and so on. ``batch_sizes``, integers on the CPU, counts the sequences at each step. ``sorted_indices`` (N)
    are the positions in the batch of the sequences sorted by length, ``unsorted_indices`` the inverse; both are None if
    the batch was sorted.

    >>> import neurenix as nx
    >>> packed = nx.nn.utils.rnn.pack_sequence([nx.tensor([1, 2, 3]), nx.tensor([4])])
    >>> packed.data.tolist(), packed.batch_sizes.tolist()
    ([1, 4, 2, 3], [2, 1, 1])
    """

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if str(batch_sizes.device) != "cpu":
            raise ValueError(f"PackedSequence: batch_sizes must be on the CPU, got {batch_sizes.device}")
        if unsorted_indices is None and sorted_indices is not None:
            unsorted_indices = sorted_indices.argsort()
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _counts(self) -> list[int]:
        """``batch_sizes`` as numbers. They are kept because a function that ``nx.compile`` records cannot read them."""
        kept: list[int] | None = self.__dict__.get("_kept")
        if kept is None:
            kept = self.batch_sizes.tolist()
            if not kept or kept[-1] < 1 or any(before < after for before, after in pairwise(kept)):
                raise ValueError(f"PackedSequence: batch_sizes must be at least 1 and never increase, got {kept}")
            if sum(kept) != self.data.shape[0]:
                raise ValueError(
                    f"PackedSequence: data has {self.data.shape[0]} rows, but the sum of batch_sizes is {sum(kept)}"
                )
            self.__dict__["_kept"] = kept
        return kept

    def _with_data(self, data: Tensor) -> PackedSequence:
        """Other data of the same lengths, with the indices on its device."""
        indices = (None if each is None else each.to(data.device) for each in self[2:])
        packed = PackedSequence(data, self.batch_sizes, *indices)
        if "_kept" in self.__dict__:
            packed.__dict__["_kept"] = self.__dict__["_kept"]
        return packed

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """``data.to(...)``, with the indices on the same device; ``batch_sizes`` stays on the CPU."""
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else self._with_data(data)

    def cpu(self) -> PackedSequence:
        """The same on the CPU."""
        return self.to("cpu")

    @property
    def is_cuda(self) -> bool:
        """Whether ``data`` is on a CUDA device."""
        return self.data.is_cuda


def _whole(name: str, lengths: Any) -> list[int]:
    """Lengths from a tensor, an array or a list."""
    given = lengths.tolist() if hasattr(lengths, "tolist") else lengths
    try:
        return [operator.index(each) for each in given]
    except TypeError:
        raise TypeError(f"{name}: expected a list or a tensor of integers as the lengths, got {given!r}") from None


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs padded sequences (T, N, ...), or (N, T, ...) with ``batch_first``, of ``lengths`` (N), each from 1 to T.
    With ``enforce_sorted``, the lengths must be in descending order; without it, the sequences are sorted.

    >>> import neurenix as nx
    >>> x = nx.tensor([[1, 0], [2, 3]])
    >>> packed = nx.nn.utils.rnn.pack_padded_sequence(x, [1, 2], batch_first=True, enforce_sorted=False)
    >>> packed.data.tolist(), packed.batch_sizes.tolist(), packed.sorted_indices.tolist()
    ([2, 1, 3], [2, 1], [1, 0])
    """
    if input.ndim < 2:
        raise ValueError(f"pack_padded_sequence: expected an input of at least 2 dimensions, got shape {tuple(input.shape)}")
    count, steps = input.shape[:2] if batch_first else input.shape[1::-1]
    sizes = _whole("pack_padded_sequence", lengths)
    if not count or len(sizes) != count:
        raise ValueError(
            "pack_padded_sequence: expected one length for each sequence of a batch of at least 1, got "
            f"{len(sizes)} lengths for {count} sequences"
        )
    for size in sizes:
        if not 1 <= size <= steps:
            raise ValueError(
                f"pack_padded_sequence: a length is {size}, it must be between 1 and {steps}, the number of steps"
            )
    order = sorted(range(count), key=lambda place: -sizes[place])
    indices: list[Tensor | None] = [None, None]
    if not enforce_sorted:
        inverse = sorted(range(count), key=order.__getitem__)
        indices = [_engine.tensor(each, device=input.device) for each in (order, inverse)]
    elif any(before < after for before, after in pairwise(sizes)):
        raise ValueError(
            f"pack_padded_sequence: the lengths {sizes} are not in descending order: pass enforce_sorted=False to have "
            "the sequences sorted"
        )
    counts = [sum(size > step for size in sizes) for step in range(max(sizes))]
    per_sequence, per_step = (steps, 1) if batch_first else (1, count)
    rows = [place * per_sequence + step * per_step for step, at in enumerate(counts) for place in order[:at]]
    data = input.reshape(steps * count, *input.shape[2:]).index_select(0, _engine.tensor(rows, device=input.device))
    packed = PackedSequence(data, _engine.tensor(counts, device="cpu"), *indices)
    packed.__dict__["_kept"] = counts
    return packed


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The inverse of :func:`pack_padded_sequence`: padded sequences (T, N, ...), or (N, T, ...) with ``batch_first``,
    and their lengths (N) on the CPU, in the order of the batch before packing. T is ``total_length`` if given,
    otherwise the greatest length.

    >>> import neurenix as nx
    >>> rnn = nx.nn.utils.rnn
    >>> packed = rnn.pack_sequence([nx.tensor([1]), nx.tensor([2, 3])], enforce_sorted=False)
    >>> padded, lengths = rnn.pad_packed_sequence(packed, batch_first=True, total_length=3)
    >>> padded.tolist(), lengths.tolist()
    ([[1, 0, 0], [2, 3, 0]], [1, 2])
    """
    if not isinstance(sequence, PackedSequence):
        raise TypeError(f"pad_packed_sequence: expected a PackedSequence, got {type(sequence).__name__}")
    data, counts = sequence.data, sequence._counts()
    count, steps = counts[0], len(counts) if total_length is None else operator.index(total_length)
    if steps < len(counts):
        raise ValueError(
            f"pad_packed_sequence: total_length is {steps}, it must be at least {len(counts)}, the greatest length"
        )
    sizes = [sum(at > rank for at in counts) for rank in range(count)]
    starts = [0, *accumulate(counts)]
    # A padded step reads the last step of its own sequence: the gradient adds the zeros of padded steps there, and in
    # no row it adds more than T of them.
    rows = [starts[min(step, size - 1)] + rank for step in range(steps) for rank, size in enumerate(sizes)]
    padded = data.index_select(0, _engine.tensor(rows, device=data.device)).reshape(steps, count, *data.shape[1:])
    lengths = _engine.tensor(sizes, device="cpu")
    if len(rows) > data.shape[0]:
        beyond = [[step >= size for size in sizes] for step in range(steps)]
        mask = _engine.tensor(beyond, device=data.device).reshape(steps, count, *[1] * (data.ndim - 1))
        padded = padded.masked_fill(mask, padding_value if data.is_floating_point() else int(padding_value))
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths = lengths.index_select(0, sequence.unsorted_indices.cpu())
    return padded.transpose(0, 1) if batch_first else padded, lengths


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Pads sequences (L, ...) to the greatest length and stacks them: (L, N, ...), or (N, L, ...) with ``batch_first``.

    >>> import neurenix as nx
    >>> nx.nn.utils.rnn.pad_sequence([nx.tensor([1, 2]), nx.tensor([3])], batch_first=True, padding_value=9).tolist()
    [[1, 2], [3, 9]]
    """
    if padding_side not in ("left", "right"):
        raise ValueError(f'pad_sequence: padding_side is {padding_side!r}, it must be "left" or "right"')
    if not sequences or any(sequence.ndim == 0 for sequence in sequences):
        raise ValueError("pad_sequence: expected at least one sequence, each of at least 1 dimension")
    longest = max(sequence.shape[0] for sequence in sequences)
    padded = []
    for sequence in sequences:
        missing = longest - sequence.shape[0]
        widths = (missing, 0) if padding_side == "left" else (0, missing)
        value = padding_value if sequence.is_floating_point() else int(padding_value)
        padded.append(sequence.pad((0, 0) * (sequence.ndim - 1) + widths, value))
    return _engine.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False) -> list[Tensor]:
    """The sequences with these lengths, without the padding of ``pad_sequence``."""
    sizes = _whole("unpad_sequence", lengths)
    sequences = padded_sequences.unbind(0 if batch_first else 1)
    if len(sizes) != len(sequences):
        raise ValueError(f"unpad_sequence: {len(sizes)} lengths for {len(sequences)} sequences")
    return [sequence.narrow(0, 0, size) for sequence, size in zip(sequences, sizes)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs sequences (L, ...) of different lengths; ``enforce_sorted`` is that of :func:`pack_padded_sequence`.

    >>> import neurenix as nx
    >>> rnn = nx.nn.utils.rnn
    >>> packed = rnn.pack_sequence([nx.zeros(2, 4), nx.zeros(5, 4)], enforce_sorted=False)
    >>> output, h = nx.nn.GRU(4, 8)(packed)
    >>> output.data.shape, h.shape
    (torch.Size([7, 8]), torch.Size([1, 2, 8]))
    """
    padded = pad_sequence(sequences)
    return pack_padded_sequence(padded, [each.shape[0] for each in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The inverse of :func:`pack_sequence`: the sequences in the order of the batch before packing.

    >>> import neurenix as nx
    >>> rnn = nx.nn.utils.rnn
    >>> [each.tolist() for each in rnn.unpack_sequence(rnn.pack_sequence([nx.tensor([1, 2]), nx.tensor([3])]))]
    [[1, 2], [3]]
    """
    padded, lengths = pad_packed_sequence(packed_sequences)
    return unpad_sequence(padded, lengths)


__all__ = [
    "PackedSequence",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]
_guard(globals())
