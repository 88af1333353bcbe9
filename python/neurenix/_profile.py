"""The profiler, as ``nx.Profiler``."""

from ._engine import Profiler

__all__ = ["Profiler"]
