"""Neurenix: neural networks on any accelerator, or on the CPU.

>>> import neurenix as nx
>>> x = nx.Tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> (x * x).sum().backward()
>>> x.grad.tolist()
[2.0, 4.0, 6.0]

The main namespace follows the Python array API standard 2024.12; methods, ``dim=`` and
``neurenix.nn`` follow PyTorch.
"""

from __future__ import annotations

import builtins
import importlib
import math
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._autograd import enable_grad as enable_grad
from ._autograd import grad as grad
from ._autograd import hessian as hessian
from ._autograd import inference_mode as inference_mode
from ._autograd import jacobian as jacobian
from ._autograd import no_grad as no_grad
from ._autograd import set_grad_enabled as set_grad_enabled
from ._autograd import value_and_grad as value_and_grad
from ._complex_methods import attach as _attach_to_complex
from ._config import DeviceType as DeviceType
from ._config import attach as _attach_to_devices
from ._config import init as init
from ._creation import *  # noqa: F403
from ._elementwise import *  # noqa: F403
from ._engine import (
    Device as Device,
    Generator as Generator,
    Tensor as Tensor,
    __version__ as __version__,
    all_dtypes as all_dtypes,
    broadcast_shapes as broadcast_shapes,
    devices as devices,
    dtype as dtype,
    evaluate as evaluate,
    get_default_device as get_default_device,
    get_float32_matmul_precision as get_float32_matmul_precision,
    get_rng_state as get_rng_state,
    is_grad_enabled as is_grad_enabled,
    manual_seed as manual_seed,
    missing_devices as missing_devices,
    promote_types as promote_types,
    randint as randint,
    randperm as randperm,
    set_default_device as set_default_device,
    set_float32_matmul_precision as set_float32_matmul_precision,
    set_num_threads as set_num_threads,
    set_rng_state as set_rng_state,
)
from ._functions import *  # noqa: F403
from ._info import __array_namespace_info__ as __array_namespace_info__
from ._manipulation import *  # noqa: F403
from ._methods import *  # noqa: F403
from ._numpy import attach as _attach_to_numpy
from ._complex_parts import *  # noqa: F403
from ._numbers import *  # noqa: F403
from ._parts import *  # noqa: F403
from ._printing import attach as _attach_to_printing
from ._printing import get_printoptions as get_printoptions
from ._printing import printoptions as printoptions
from ._printing import set_printoptions as set_printoptions
from ._placement import Placement as Placement
from ._placement import is_recovery as is_recovery
from ._placement import is_strict_placement as is_strict_placement
from ._placement import on_fallback as on_fallback
from ._placement import set_recovery as set_recovery
from ._placement import set_strict_placement as set_strict_placement
from ._in_place import attach as _attach
from ._real import attach as _attach_to_real
from ._reductions import *  # noqa: F403
from ._short_time import istft as istft
from ._short_time import stft as stft
from ._size import Size as Size
from ._special import *  # noqa: F403
from ._statistics import *  # noqa: F403
from ._storage import *  # noqa: F403
from ._table import *  # noqa: F403
from .random import bernoulli as bernoulli
from .random import normal as normal
from .random import rand as rand
from .random import rand_like as rand_like
from .random import randn as randn
from .random import randn_like as randn_like

if TYPE_CHECKING:
    from . import amp as amp, autograd as autograd, data as data, distributed as distributed
    from . import distributions as distributions, fft as fft, func as func, functional as functional, hardware as hardware
    from . import special as special
    from . import io as io, linalg as linalg, masked as masked, models as models, nn as nn, onnx as onnx, optim as optim
    from . import profiler as profiler, quantize as quantize, random as random, utils as utils
    from ._compile import compile as compile
    from ._custom import CustomKernel as CustomKernel
    from ._profile import Profiler as Profiler
    from .io import load as load, save as save

_attach_to_printing()
_attach_to_real()
_attach()
_attach_to_complex()
_attach_to_numpy()
_attach_to_devices()

__array_api_version__ = "2024.12"

e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None

bool, uint8, uint16, uint32, uint64, int8, int16, int32, int64, *_floats = all_dtypes()
float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, float64 = _floats
complex64, complex128 = dtype("complex64"), dtype("complex128")
cfloat, cdouble = complex64, complex128
half, float, double, int, long = float16, float32, float64, int32, int64
"""PyTorch's aliases."""

# Loaded on first use, to keep ``import neurenix`` fast.
_MODULES = (
    "amp", "autograd", "data", "distributed", "distributions", "fft", "func", "functional", "hardware", "io", "linalg", "masked", "models", "nn",
    "onnx", "optim", "profiler", "quantize", "random", "signal", "special", "utils",
)  # fmt: skip
_LATER = {"save": "io", "load": "io", "compile": "_compile", "Profiler": "_profile", "CustomKernel": "_custom"}
_LATER |= dict.fromkeys(("Module", "Linear", "Conv2d", "LSTM", "Sequential"), "nn")
_LATER |= dict.fromkeys(("Optimizer", "SGD", "Adam"), "optim")
_LATER["autocast"] = "amp"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _LATER:
        return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names of the package, without names that its modules import for internal use."""
    def offered(name: str, value: object) -> builtins.bool:
        if name.startswith("_") or name in ("annotations", "ModuleType", "TYPE_CHECKING"):
            return name.startswith("__")
        if isinstance(value, ModuleType):
            return value.__name__.startswith(f"{__name__}.")
        return not str(getattr(value, "__module__", "")).startswith(("typing", "collections", "importlib"))

    return sorted({name for name, value in globals().items() if offered(name, value)} | {*_MODULES, *_LATER})


def synchronize(device: Any = None) -> None:
    """Waits until all work submitted to a device has finished."""
    (get_default_device() if device is None else Device(device)).synchronize()


def version() -> str:
    """The version of the package."""
    return __version__
