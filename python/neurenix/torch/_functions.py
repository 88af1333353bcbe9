"""Functions with PyTorch's semantics: the tensor's methods, which have them, and functions of ``neurenix``."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import neurenix as nx

from .. import _complex_parts, _copies, _factories, _matrices, _numbers, _parts, _statistics, _table
from .._engine import Tensor
from ..nn import _top_level

_METHODS = """
absolute add addcdiv addcmul addmm addmv all allclose amax amin aminmax any argmax argmin argsort baddbmm bincount
bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm broadcast_to cdist celu
chunk clamp clamp_max clamp_min clip clone count_nonzero cross cummax cummin cumprod cumsum det detach diag diag_embed
diagonal diff dist div divide dot eq equal erfc erfinv flatten fliplr flipud frac gather ge ger gt hardshrink histc
hypot index_add index_copy index_fill index_put index_select inner inverse is_floating_point isclose isfinite kron
kthvalue le lerp log10 log_softmax logcumsumexp logical_and logical_not logical_or logical_xor logsumexp lt
masked_fill masked_scatter masked_select matmul matrix_power max mean median min mm mode moveaxis movedim mul
multinomial multiply mv nan_to_num nanmean nanmedian nansum narrow ne neg negative nonzero norm numel outer permute
pinverse prelu prod quantile ravel relu repeat_interleave reshape roll rot90 round scatter scatter_add scatter_reduce
select selu sigmoid sign signbit slogdet softmax sort split square squeeze std std_mean sub subtract sum swapaxes t
take take_along_dim tensor_split threshold tile topk trace transpose tril triu unbind unflatten unique unsqueeze var
var_mean
"""

_FUNCTIONS = f"""
{" ".join([*_complex_parts.__all__, *_numbers.__all__, *_parts.__all__, *_statistics.__all__])}
Generator Size Tensor UntypedStorage arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh as_tensor asarray autocast bernoulli
broadcast_shapes broadcast_tensors bucketize can_cast cat column_stack concat concatenate copysign dstack einsum empty
empty_like enable_grad eye finfo floor_divide fmod from_dlpack from_numpy frombuffer full full_like get_default_device
get_default_dtype get_float32_matmul_precision get_rng_state greater greater_equal hstack iinfo inference_mode
is_grad_enabled is_tensor isin istft less less_equal linspace logaddexp logspace manual_seed nextafter no_grad normal
not_equal ones ones_like polygamma positive pow promote_types rand rand_like randint randn randn_like randperm remainder
searchsorted set_default_device set_default_dtype set_float32_matmul_precision set_grad_enabled
set_printoptions set_rng_state stack stft swapdims tensor tensordot trapezoid trapz tril_indices triu_indices vstack xlogy zeros zeros_like
"""

_ONLY_METHODS = """
arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ deg2rad_ detach_ digamma fill_ fix_ gcd_ get_device i0 i0_ igamma igammac index_put_
is_same_size is_signed lcm_ ldexp_ lgamma logit logit_ mvlgamma rad2deg_ unsafe_split_with_sizes xlogy_ zero_
"""

_VALUES = """
bfloat16 bool cdouble cfloat complex128 complex64 double dtype e float float16 float32 float64 float8_e4m3fn float8_e5m2 half inf int int16 int32 int64 int8 long nan
newaxis pi uint16 uint32 uint64 uint8
"""

_ALONG = frozenset(
    """
all amax amin aminmax any argmax argmin argsort count_nonzero cummax cummin cumprod cumsum gather index_add index_copy index_fill
index_select kthvalue log_softmax logcumsumexp logsumexp max mean median min mode nanmean nanmedian nansum norm prod quantile
scatter scatter_add scatter_reduce softmax sort squeeze std std_mean sum topk transpose unbind var var_mean
""".split()
)
"""Functions along a dimension."""

_OF_NUMBERS = frozenset("add div divide mul multiply sub subtract".split())
"""Functions whose first operand may be a number."""

_FACTORS_FIRST = frozenset("addbmm addmm addmv addr baddbmm".split())
"""Functions to which older programs pass ``beta`` before the first tensor."""

_FIRST = {"split": "tensor", "tensor_split": "input"}
"""PyTorch's names of first arguments that are not called ``input``."""


def _method(name: str) -> Callable[..., Any]:
    method = getattr(Tensor, name)

    @functools.wraps(method)
    def function(*args: Any, **kwargs: Any) -> Any:
        if args:
            (input, *rest) = args
        else:
            input, rest = kwargs.pop(_FIRST.get(name, "input"), None), []
        if name in _FACTORS_FIRST and rest and isinstance(rest[0], Tensor) and not isinstance(input, Tensor):
            input, rest[0] = rest[0], input
        if not isinstance(input, Tensor):
            if name in _OF_NUMBERS and isinstance(input, (builtins.int, builtins.float, complex)):
                return _with_out(getattr(nx, name))(input, *rest, **kwargs)
            raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(input).__name__}")
        out = kwargs.pop("out", None)
        if input.ndim == 0 and name in _ALONG:
            result = _of_a_number(name, input, rest, kwargs)
        else:
            result = getattr(input, name)(*rest, **kwargs)
        return result if out is None else _into(out, result)

    function.__name__ = function.__qualname__ = name
    return function


def _of_a_number(name: str, input: Tensor, rest: list[Any], kwargs: dict[str, Any]) -> Any:
    """The result for a tensor without dimensions: it counts as one of size 1 where ``dim`` is 0 or -1."""
    def vector(value: Any) -> Any:
        return value.reshape(1) if isinstance(value, Tensor) and value.ndim == 0 else value

    def number(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.reshape(()) if value.numel() == 1 else value
        return type(value)(*map(number, value)) if hasattr(value, "_fields") else tuple(map(number, value))

    try:
        return getattr(input, name)(*rest, **kwargs)
    except IndexError:
        given = {key: vector(value) for key, value in kwargs.items()}
        return number(getattr(input.reshape(1), name)(*map(vector, rest), **given))


def _into(out: Any, result: Any) -> Any:
    """Stores results in the tensors given as ``out=``, which must have their shapes, or be real and empty."""
    if isinstance(out, Tensor):
        if not out.numel() and not out.is_complex() and tuple(out.shape) != tuple(result.shape):
            return out._become(result.to(out.dtype).clone())
        if tuple(out.shape) == tuple(result.shape):
            return out.copy_(result)
        raise RuntimeError(f"out has shape {tuple(out.shape)}, but the result has shape {tuple(result.shape)}")
    parts = [_into(each, part) for each, part in zip(out, result, strict=True)]
    return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)


def _with_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """Accepts ``out=``, and hints that have no meaning here."""

    @functools.wraps(function)
    def called(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        for hint in ("pin_memory", "memory_format", "layout"):
            kwargs.pop(hint, None)
        result = function(*args, **kwargs)
        return result if out is None else _into(out, result)

    return called


def _all_with_out(module: ModuleType) -> dict[str, Any]:
    """The functions of a module by their names; each accepts ``out=``."""
    members = {name: getattr(module, name) for name in module.__all__}
    return {name: value if isinstance(value, type) else _with_out(value) for name, value in members.items()}


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of a grid from its axes; the first axis of the results is that of the first tensor."""
    return tuple(nx.meshgrid(*tensors, indexing=indexing))


def is_nonzero(input: Tensor) -> builtins.bool:
    """Whether the only element is not zero."""
    return builtins.bool(input)


def flip(input: Tensor, dims: Any) -> Tensor:
    """The elements in reverse order along ``dims``."""
    return input.flip(dims)


def where(condition: Tensor, input: Any = None, other: Any = None, *, out: Tensor | None = None) -> Any:
    """``input`` where the condition is not zero, ``other`` elsewhere; without these, the positions as for ``nonzero``."""
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    result = nx.where(condition if condition.dtype == nx.bool else condition != 0, input, other)
    return result if out is None else _into(out, result)


def save(obj: Any, f: Any, pickle_module: Any = None, pickle_protocol: Any = None, **_: Any) -> None:
    """Writes an object, such as a ``state_dict()``, as a safetensors file: see ``neurenix.save``. The ways of pickling
    have no effect.
    """
    if hasattr(obj, "state_dict"):
        kind = type(obj).__name__
        raise TypeError(f"torch.save: a file has no code, so it cannot hold an object of the class {kind}: pass its state_dict()")
    nx.save(obj, f)


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: builtins.bool | None = None,
    mmap: builtins.bool | None = None,
    **_: Any,
) -> Any:
    """Reads a file of ``save`` or of PyTorch, or a safetensors file: see ``neurenix.load``. The ways of pickling have
    no effect, since no code in a file is run.
    """
    return nx.load(f, map_location=map_location)


def _in_dtype(name: str) -> Callable[..., Tensor]:
    along = _method(name)

    def function(input: Tensor, dim: builtins.int | None = None, _stacklevel: builtins.int = 3, dtype: Any = None) -> Tensor:
        return cast(Tensor, along(input if dtype is None else input.to(dtype), dim))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = getattr(Tensor, name).__doc__
    return function


def _spread(name: str) -> Callable[..., Any]:
    along = _method(name)

    def function(input: Tensor, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(dim, builtins.bool):  # std(input, unbiased)
            dim, kwargs = None, {"unbiased": dim, **kwargs}
        if "unbiased" in kwargs:
            kwargs["correction"] = builtins.int(kwargs.pop("unbiased"))
        return along(input, dim, *args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = getattr(Tensor, name).__doc__
    return function


for _name in [*_table.__all__, *_METHODS.split()]:
    globals()[_name] = _method(_name)
    if hasattr(Tensor, f"{_name}_"):
        globals()[f"{_name}_"] = _method(f"{_name}_")
for _name in ("softmax", "log_softmax"):
    globals()[_name] = _in_dtype(_name)
for _name in ("std", "std_mean", "var", "var_mean"):
    globals()[_name] = _spread(_name)
for _name in _ONLY_METHODS.split():
    globals()[_name] = _method(_name)
for _name in _FUNCTIONS.split():
    _value = getattr(nx, _name)
    globals()[_name] = _value if isinstance(_value, type) else _with_out(_value)
for _module in (_matrices, _factories):
    for _name in _module.__all__:
        globals()[_name] = _with_out(getattr(_module, _name))
for _name, _value in (_top_level.FUNCTIONS | _copies.FUNCTIONS).items():
    globals()[_name] = _with_out(_value)
for _name in _VALUES.split():
    globals()[_name] = getattr(nx, _name)
short = nx.int16

__all__ = [name for name in globals() if not name.startswith("_") and name not in ("annotations", "builtins", "functools", "Callable", "ModuleType", "Any", "cast", "nx")]
