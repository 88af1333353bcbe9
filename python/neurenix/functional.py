"""The functions that layers call: those of ``neurenix.nn.functional``, by a shorter name."""

from __future__ import annotations

from .nn.functional import *  # noqa: F403
