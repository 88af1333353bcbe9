"""Versions."""

from __future__ import annotations

from . import __version__ as __version__

cuda: str | None = None
hip: str | None = None
git_version = ""
debug = False
