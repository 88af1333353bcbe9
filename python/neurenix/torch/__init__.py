"""PyTorch's namespace on Neurenix: ``import neurenix.torch as torch``.

>>> import neurenix.torch as torch
>>> values, indices = torch.max(torch.tensor([[3.0, 1.0], [2.0, 4.0]]), dim=1)
>>> values.tolist(), indices.tolist()
([3.0, 4.0], [0, 1])

``python -m neurenix.torch script.py`` runs a program that says ``import torch``. Functions have PyTorch's names, defaults
and semantics where these differ from the array API standard's, which ``neurenix`` follows. Importing this module applies
three of PyTorch's rules to the whole process: new tensors are on the CPU unless a device is given, tensors without
dimensions do not raise the dtype of others, and linear algebra fails within the call. What is missing raises ``AttributeError``.
"""

from __future__ import annotations

from typing import Any

import neurenix as _neurenix

from .. import _engine, _linear_algebra
from . import _C as _C
from . import _missing, _modules
from ._functions import *  # noqa: F403
from ._settings import *  # noqa: F403
from ._tensor import Tensor as Tensor
from ._types import *  # noqa: F403

__version__ = f"2.9.0+neurenix{_neurenix.__version__}"
"""Programs compare it: the version of PyTorch whose interface this module has."""

_neurenix.set_default_device("cpu")
_engine.set_promotion("pytorch")
_linear_algebra.raise_within_calls()
_modules.install(__name__)


def __getattr__(name: str) -> Any:
    if _modules.name_of(name) is not None:
        return _modules.attribute(name)
    raise AttributeError(_missing.message(f"torch.{name}"))
