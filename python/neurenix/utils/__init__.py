"""Utilities that are not about layers."""

from . import checkpoint as checkpoint

__all__ = ["checkpoint"]
