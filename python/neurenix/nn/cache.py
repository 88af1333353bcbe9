"""The keys and values that attention layers keep between the steps of a generation."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _engine
from .._engine import Tensor

__all__ = ["KeyValueCache"]


class KeyValueCache:
    """Keys and values of all earlier tokens, for every attention layer of a model: each (N, H, S, E).

    A *static* cache (with ``max_length``) has room for ``max_length`` tokens from the start and writes new ones at their
    positions. The shapes are the same at every step, so a step's plan and kernels are reused. A *growing* cache (without
    ``max_length``) appends: it takes less memory, but every step has another shape.

    A forward pass calls :meth:`extend` once and :meth:`update` once in every layer.

    >>> import neurenix as nx
    >>> cache = nx.nn.KeyValueCache(num_layers=1, max_length=8)
    >>> query = key = value = nx.ones(1, 2, 3, 4)  # (N, H, L, E)
    >>> positions, mask = cache.extend(3)
    >>> keys, values = cache.update(0, key, value)
    >>> nx.functional.scaled_dot_product_attention(query, keys, values, mask).shape
    torch.Size([1, 2, 3, 4])
    >>> cache.length, keys.shape, positions.tolist()
    (3, torch.Size([1, 2, 8, 4]), [0, 1, 2])
    """

    def __init__(self, num_layers: int, max_length: int | None = None) -> None:
        if num_layers < 1:
            raise ValueError(f"KeyValueCache: num_layers is {num_layers}, it must be at least 1")
        if max_length is not None and max_length < 1:
            raise ValueError(f"KeyValueCache: max_length is {max_length}, it must be at least 1")
        self.num_layers, self.max_length = num_layers, max_length
        self.reset()

    def reset(self) -> None:
        """Forgets everything, also after a forward pass that an exception ended."""
        self.length = 0
        """The number of tokens in the cache."""
        self._layers: list[tuple[Tensor, Tensor] | None] = [None] * self.num_layers
        self._waiting: set[int] = set()
        self._rows: Tensor | None = None
        self._count = 0

    def extend(self, count: int, device: Any = None) -> tuple[Tensor, Tensor]:
        """Makes room for the next ``count`` tokens. Returns their positions (count), and a ``bool`` mask (count, S) of the
        keys that each may attend to: itself and all earlier ones. S is ``max_length``, or the length of a growing cache.
        """
        if count < 1:
            raise ValueError(f"KeyValueCache: count is {count}, it must be at least 1")
        if self._waiting:
            missing = ", ".join(map(str, sorted(self._waiting)))
            raise RuntimeError(
                f"KeyValueCache: the layers {missing} have not updated since the last extend(): call update() in every layer, "
                "or reset() after an exception"
            )
        total = self.length + count
        if self.max_length is not None and total > self.max_length:
            raise ValueError(
                f"KeyValueCache: {count} tokens do not fit after {self.length}: max_length is {self.max_length}. Pass a "
                "greater max_length"
            )
        # Host data, not numbers of the graph: every step has the same plan.
        positions = _engine.tensor(list(range(self.length, total)), dtype="int64", device=device)
        keys = _engine.arange(total if self.max_length is None else self.max_length, device=positions.device)
        self.length, self._count, self._rows = total, count, None
        self._waiting = set(range(self.num_layers))
        return positions, keys <= positions.unsqueeze(-1)

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Adds the keys and values (N, H, count, E) of the tokens of the last :meth:`extend` and returns all of the layer,
        (N, H, S, E). Those of a static cache are zero at positions that have not been written.
        """
        if layer not in self._waiting:
            known = f"expected one from 0 to {self.num_layers - 1}" if not 0 <= layer < self.num_layers else "call extend() first"
            raise RuntimeError(f"KeyValueCache: update of layer {layer}: {known}")
        before = self._layers[layer]
        for name, new, old in (("key", key, before and before[0]), ("value", value, before and before[1])):
            self._check(name, new, old)
        if key.shape[:3] != value.shape[:3]:
            shapes = f"{tuple(key.shape)} and {tuple(value.shape)}"
            raise ValueError(f"KeyValueCache: keys and values must agree in all dimensions but the last, got {shapes}")
        if self.max_length is not None:
            olds = before or (self._zeros(key, self.max_length), self._zeros(value, self.max_length))
            both = self._written(olds[0], key), self._written(olds[1], value)
        elif before is None:
            both = key, value
        else:
            both = _engine.cat([before[0], key], 2), _engine.cat([before[1], value], 2)
        self._layers[layer] = both
        self._waiting.discard(layer)
        return both

    def next_step(self) -> tuple[Tensor, ...]:
        """Makes room for one more token in a static cache that has been used. Returns what a :class:`CacheStep` needs:
        its position (1), and on the CPU the rows to write.
        """
        keys = self.layers()[0][0]
        positions, _ = self.extend(1, keys.device)
        self._waiting.clear()
        return (positions, self._rows_to_write(keys)) if keys.device.type == "cpu" else (positions,)

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """The keys and values of every layer that has been updated."""
        return [both for both in self._layers if both is not None]

    def evaluate(self, *others: Tensor) -> None:
        """Computes everything pending in the cache, together with other tensors."""
        _engine.evaluate([*others, *(each for both in self.layers() for each in both)])

    def _check(self, name: str, new: Tensor, old: Tensor | None) -> None:
        if new.ndim != 4 or new.shape[2] != self._count:
            raise ValueError(f"KeyValueCache: expected a {name} of shape (N, H, {self._count}, E), got {tuple(new.shape)}")
        if old is None:
            return
        kept = (*old.shape[:2], self._count, old.shape[3])
        if kept != tuple(new.shape) or old.dtype != new.dtype:
            raise ValueError(
                f"KeyValueCache: expected a {name} of shape {kept} and dtype {old.dtype.name}, as before, got "
                f"{tuple(new.shape)} and {new.dtype.name}: reset() starts another generation"
            )

    @staticmethod
    def _zeros(new: Tensor, length: int) -> Tensor:
        batch, heads, _, size = new.shape
        return _engine.zeros((batch, heads, length, size), dtype=new.dtype, device=new.device)

    def _written(self, old: Tensor, new: Tensor) -> Tensor:
        """``old`` with ``new`` at the current positions."""
        if self._rows is None:
            self._rows = self._rows_to_write(old)
        return _with_rows(old, self._rows, new)

    def _rows_to_write(self, old: Tensor) -> Tensor:
        """The rows of the tokens of the last :meth:`extend` in keys or values as a matrix."""
        batch, heads, length, _ = old.shape
        # On the host, because an assignment to computed indices reads them at once.
        firsts = np.arange(batch * heads)[:, None] * length
        rows = (firsts + np.arange(self.length - self._count, self.length)).reshape(-1)
        return _engine.tensor(rows, device=old.device)

    def __repr__(self) -> str:
        return f"KeyValueCache(num_layers={self.num_layers}, max_length={self.max_length}, length={self.length})"


def _with_rows(old: Tensor, rows: Tensor, new: Tensor) -> Tensor:
    """Keys or values with other rows. As a matrix, because whole rows of a contiguous tensor are written without copies
    of other layouts.
    """
    table = old.reshape(-1, old.shape[-1]).clone()
    table[rows] = new.reshape(-1, old.shape[-1])
    return table.reshape(old.shape)


class CacheStep:
    """A static cache in a step of one token whose position is a tensor. Nothing on the host changes, so the step can be
    compiled.

    ``layers`` are the keys and values of a :class:`KeyValueCache`; the position and the rows are from ``next_step``.
    """

    # The position has been checked.
    length = 0

    def __init__(self, layers: list[tuple[Tensor, Tensor]], position: Tensor, rows: Tensor | None = None) -> None:
        self._layers, self._position, self._rows = layers, position, rows

    def extend(self, count: int, device: Any = None) -> tuple[Tensor, Tensor]:
        """The position and the mask, as :meth:`KeyValueCache.extend` returns them."""
        return self._position, self._all_positions() <= self._position.unsqueeze(-1)

    def _all_positions(self) -> Tensor:
        return _engine.arange(self._layers[0][0].shape[2], device=self._position.device)

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Writes keys and values (N, H, 1, E) in place, and returns all of the layer."""
        both = self._layers[layer]
        for old, new in zip(both, (key, value), strict=True):
            new = new.to(dtype=old.dtype)
            if self._rows is not None:
                # The CPU writes rows in place.
                old._exchange(_with_rows(old, self._rows, new))
            else:
                # A GPU makes the choice in the kernel that reads the cache. Writing rows by index would take a sort.
                is_new = (self._all_positions() == self._position).unsqueeze(-1)
                old._exchange(_engine.where(is_new, new, old))
        return both
