"""``torch.linalg``: the functions of ``neurenix.linalg``, which accept ``out=`` here."""

from __future__ import annotations

from .. import linalg as _module
from ..linalg import *  # noqa: F403
from ._functions import _all_with_out

globals().update(_all_with_out(_module))
__all__ = _module.__all__
