"""Sequences of different lengths as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

from ... import _engine
from ..._engine import Tensor


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
    sizes = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    sequences = padded_sequences.unbind(0 if batch_first else 1)
    if len(sizes) != len(sequences):
        raise ValueError(f"unpad_sequence: {len(sizes)} lengths for {len(sequences)} sequences")
    return [sequence.narrow(0, 0, size) for sequence, size in zip(sequences, sizes)]


__all__ = ["pad_sequence", "unpad_sequence"]
