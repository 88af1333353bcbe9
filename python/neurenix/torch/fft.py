"""``torch.fft``: the functions of ``neurenix.fft``, which accept ``out=`` here."""

from __future__ import annotations

from .. import fft as _module
from ..fft import *  # noqa: F403
from ._functions import _all_with_out

globals().update(_all_with_out(_module))
__all__ = _module.__all__
