"""Types for annotations: ``torch.types``."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, Union

from .. import _engine
from .._engine import Tensor as Tensor
from .._size import Size
from .._storage import UntypedStorage
from ._types import device as _device

_TensorOrTensors = Union[Tensor, Sequence[Tensor]]
_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_str, _bytes = builtins.str, builtins.bytes
_dtype, _layout = _engine.dtype, builtins.str
_size = Union[Size, list[int], tuple[int, ...]]
Number = Union[int, float, bool]
_Number = (int, float, bool)
Device = Union[_device, str, int, None]
FileLike = Union[str, "os.PathLike[str]", IO[bytes]]
Storage = UntypedStorage
