"""Finding the operation whose gradient is NaN."""

from __future__ import annotations

from typing import Any

from .. import _engine

__all__ = ["detect_anomaly", "set_detect_anomaly"]


class set_detect_anomaly:
    """Sets whether backward passes, of all threads, refuse NaNs: see :class:`detect_anomaly`. As a context manager, it
    restores the former setting."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._former = _engine.refuse_anomalies(mode and check_nan)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: Any) -> None:
        _engine.refuse_anomalies(self._former)


class detect_anomaly:
    """Within this context, a NaN that appears in a backward pass is a ``RuntimeError`` that names the operation whose
    gradient it is. Each gradient is computed at once, which is slow. Where the operation was called is not known.

    >>> import neurenix as nx
    >>> x = nx.tensor(0.0, requires_grad=True)
    >>> with nx.autograd.detect_anomaly():
    ...     (x.sqrt() * 0).backward()
    Traceback (most recent call last):
        ...
    RuntimeError: backward: the gradient of sqrt contains NaN (found by detect_anomaly)
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = check_nan
        self._former: list[bool] = []

    def __enter__(self) -> None:
        self._former.append(_engine.refuse_anomalies(self._check_nan))

    def __exit__(self, *error: Any) -> None:
        _engine.refuse_anomalies(self._former.pop())
