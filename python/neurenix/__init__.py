"""Neurenix: neural networks on whatever accelerator you have.

>>> import neurenix as nx
>>> x = nx.Tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad.tolist()
[2.0, 4.0, 6.0]

The main namespace follows the Python array API standard 2024.12 (without complex numbers); methods, ``dim=`` and
``neurenix.nn`` follow PyTorch.
"""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any

from ._autograd import enable_grad, grad, hessian, inference_mode, jacobian, no_grad, set_grad_enabled, value_and_grad
from ._elementwise import *  # noqa: F403
from ._engine import (
    Device,
    Generator,
    Tensor,
    __version__,
    all_dtypes,
    arange,
    bernoulli,
    broadcast_shapes,
    cat,
    devices,
    dtype,
    einsum,
    evaluate,
    full,
    get_default_device,
    get_rng_state,
    is_grad_enabled,
    manual_seed,
    missing_devices,
    ones,
    promote_types,
    rand,
    randint,
    randn,
    randperm,
    set_default_device,
    set_num_threads,
    set_rng_state,
    tensor,
    zeros,
)
from ._info import __array_namespace_info__
from ._manipulation import *  # noqa: F403
from ._reductions import *  # noqa: F403

if TYPE_CHECKING:
    from . import amp, data, hardware, io, linalg, nn, optim, random
    from .io import load, save
    from .nn import functional

__array_api_version__ = "2024.12"

e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None

bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, bfloat16, float32, float64 = all_dtypes()
half, float, double, int, long = float16, float32, float64, int32, int64
"""PyTorch's other names."""

# Opened when first asked for, so that an import stays quick.
_MODULES = ("amp", "data", "functional", "hardware", "io", "linalg", "nn", "optim", "random")
_LATER = {"save": "io", "load": "io", "compile": "_compile", "Profiler": "_profile", "CustomKernel": "_custom"}


def __getattr__(name: str) -> Any:
    if name == "functional":
        return importlib.import_module(".nn.functional", __name__)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _LATER:
        return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def synchronize(device: Any = None) -> None:
    """Waits until everything given to a device has been computed."""
    (get_default_device() if device is None else Device(device)).synchronize()


def version() -> str:
    """The version of the package."""
    return __version__
