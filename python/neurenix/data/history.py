"""Training results by epoch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import _engine


class History(Mapping[str, list[float]]):
    """Results by name, one number per epoch: a mapping from names to lists. Notebooks display it as curves.

    >>> import neurenix as nx
    >>> history = nx.data.History()
    >>> history.record(loss=1.5, test_loss=1.75)
    >>> history.record(loss=0.5, test_loss=0.75)
    >>> history["loss"], history.epochs
    ([1.5, 0.5], 2)
    """

    def __init__(self, results: Mapping[str, Sequence[float]] | None = None) -> None:
        self._results = {name: [float(value) for value in values] for name, values in (results or {}).items()}

    def record(self, **results: Any) -> None:
        """Adds an epoch's results: numbers, or one-element tensors. Missing results are NaN."""
        values = {name: float(value) for name, value in results.items()}
        before = self.epochs
        for name in [*self._results, *(name for name in values if name not in self._results)]:
            curve = self._results.setdefault(name, [float("nan")] * before)
            curve.append(values.get(name, float("nan")))

    @property
    def epochs(self) -> int:
        """The number of epochs."""
        return max((len(values) for values in self._results.values()), default=0)

    def __getitem__(self, name: str) -> list[float]:
        return self._results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        last = ", ".join(f"{name}={values[-1]:.4g}" for name, values in self._results.items() if values)
        return f"History({self.epochs} epochs{': ' if last else ''}{last})"

    def plot(self, path: str | os.PathLike[str] | None = None) -> History:
        """The curves, for display in a notebook; with ``path`` they are also written there as a PNG image. Names with
        the same ending, such as ``loss`` and ``test_loss``, share axes.
        """
        image = self._repr_png_()
        if image is None:
            raise ValueError("plot: there are no results yet")
        if path is not None:
            with open(path, "wb") as file:
                file.write(image)
        return self

    def _repr_png_(self) -> bytes | None:
        if not self.epochs:
            return None
        panels: dict[str, list[tuple[str, list[float]]]] = {}
        for name, values in self._results.items():
            panels.setdefault(name.rsplit("_", 1)[-1], []).append((name, values))
        return _engine.curves_png(list(panels.items()))
