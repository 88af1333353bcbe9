"""Kernels written by users, as ``nx.CustomKernel``."""

from ._engine import CustomKernel

__all__ = ["CustomKernel"]
