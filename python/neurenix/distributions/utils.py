"""What distributions share: broadcasting, probabilities and logits, sums over last dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _engine, special
from .._autograd import enable_grad
from .._engine import Tensor, rand
from .._functions import get_default_dtype

euler_constant = 0.57721566490153286060


class lazy_property:
    """A property that is computed once, with gradients even where they are disabled."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        vars(instance)[self.name] = value
        return value


def tensors(values: dict[str, Any]) -> dict[str, Tensor]:
    """Parameters as tensors: numbers take the dtype and device of the first tensor."""
    like = next((value for value in values.values() if isinstance(value, Tensor)), None)
    dtype = like.dtype if like is not None and like.is_floating_point() else get_default_dtype()
    device = None if like is None else like.device
    for name, value in values.items():
        if not isinstance(value, (Tensor, int, float)):
            raise ValueError(f"expected a number or a tensor as {name}, got {type(value).__name__}")
    return {
        name: value if isinstance(value, Tensor) else _engine.full((), float(value), dtype=dtype, device=device)
        for name, value in values.items()
    }


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape."""
    given = tensors({str(index): value for index, value in enumerate(values)}).values()
    shape = _engine.broadcast_shapes(*(tuple(each.shape) for each in given))
    return tuple(each.expand(shape) for each in given)


def epsilon(x: Tensor) -> float:
    """The distance from 1 to the next number of the dtype."""
    return {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10}.get(x.dtype.name, 2.0**-7)


def tiny(x: Tensor) -> float:
    """The least normal number of the dtype."""
    return {"float64": 2.0**-1022, "float16": 2.0**-14}.get(x.dtype.name, 2.0**-126)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities away from 0 and 1, by the precision of the dtype."""
    return probs.clamp(epsilon(probs), 1 - epsilon(probs))


def uniform_like(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Uniform numbers above 0 and below 1, of the dtype and on the device of a tensor."""
    return rand(shape, dtype=x.dtype, device=x.device).clamp(tiny(x), 1 - epsilon(x) / 2)


def exponential_like(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Exponentially distributed numbers above 0."""
    return -(-uniform_like(x, shape)).log1p()


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities: by the sigmoid function, or by softmax along the last dimension."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Logits; probabilities 0 and 1 are replaced by the next numbers."""
    return special.logit(clamp_probs(probs)) if is_binary else clamp_probs(probs).log()


def sum_rightmost(value: Tensor, dims: int) -> Tensor:
    """The sum over the last ``dims`` dimensions."""
    return value if dims == 0 else value.reshape(*value.shape[: value.ndim - dims], -1).sum(-1)


def exactly_one(name: str, **given: Any) -> tuple[str, Any]:
    """The only argument that is not None, and its name."""
    found = [(key, value) for key, value in given.items() if value is not None]
    if len(found) != 1:
        raise ValueError(f"{name}: pass exactly one of {', '.join(given)}, got {len(found)}")
    return found[0]
