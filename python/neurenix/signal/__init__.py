"""Signals: windows.

>>> import neurenix as nx
>>> nx.signal.windows.hann(5).tolist()
[0.0, 0.5, 1.0, 0.5, 0.0]
"""

from __future__ import annotations

from . import windows as windows

__all__ = ["windows"]
