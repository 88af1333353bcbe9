"""A progress bar for loops."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
_WIDTH = 30


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _visible() -> bool:
    """Whether progress is displayed: on a terminal, or in a notebook."""
    shell = sys.modules.get("IPython")
    in_notebook = shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None
    return in_notebook or sys.stderr.isatty()


def progress(iterable: Iterable[T], description: str = "") -> Iterator[T]:
    """Iterates over ``iterable`` and shows the progress on standard error, if that is a terminal or a notebook.

    ``for inputs, labels in nx.data.progress(loader, "epoch 1"): ...``
    """
    if not _visible():
        yield from iterable
        return
    try:
        total = len(iterable)  # type: ignore[arg-type]
    except TypeError:
        total = 0
    start, shown, done, longest = time.monotonic(), 0.0, 0, 0
    head = f"{description} " if description else ""

    def show(end: str) -> None:
        nonlocal longest
        passed = time.monotonic() - start
        if total:
            filled = _WIDTH * done // total
            left = _duration(passed * (total - done) / done) if done else "?"
            line = f"{head}[{'█' * filled}{'·' * (_WIDTH - filled)}] {done}/{total} {_duration(passed)}<{left}"
        else:
            line = f"{head}{done} {_duration(passed)}"
        longest = max(longest, len(line))
        sys.stderr.write("\r" + line.ljust(longest) + end)
        sys.stderr.flush()

    try:
        for item in iterable:
            yield item
            done += 1
            now = time.monotonic()
            if now - shown > 0.1:
                shown = now
                show("")
    finally:
        show("\n")
