"""Activations as modules."""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._engine import Tensor
from . import functional as F
from .module import Module
from .parameter import Parameter

__all__ = [
    "Activation",
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SELU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class Activation(Module):
    """The base class of activations: a function of ``functional`` with settings. Except for :class:`GLU`, the shape is
    unchanged. ``inplace`` is accepted for compatibility with PyTorch and has no effect.

    ``_settings`` names the settings and their defaults, in the order of the arguments.
    """

    _function = ""
    _settings: dict[str, Any] = {}
    _inplace = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        settings = {**self._settings, **({"inplace": False} if self._inplace else {})}
        if len(args) > len(settings):
            raise TypeError(f"{type(self).__name__} takes at most {len(settings)} arguments, got {len(args)}")
        given = dict(zip(settings, args, strict=False))
        for name, value in kwargs.items():
            if name not in settings or name in given:
                raise TypeError(f"{type(self).__name__}: the argument {name!r} is unknown or given twice")
            given[name] = value
        missing = [name for name in settings if settings[name] is ... and name not in given]
        if missing:
            raise TypeError(f"{type(self).__name__}: the argument {missing[0]!r} is missing")
        for name, default in settings.items():
            setattr(self, name, given.get(name, default))

    def forward(self, input: Tensor) -> Tensor:
        settings = [getattr(self, name) for name in self._settings]
        return getattr(F, self._function)(input, *settings)

    def extra_repr(self) -> str:
        parts = [f"{name}={getattr(self, name)!r}" for name in self._settings]
        return ", ".join(parts + (["inplace=True"] if self._inplace and self.inplace else []))


class ReLU(Activation):
    """The greater of 0 and each element.

    >>> import neurenix as nx
    >>> nx.nn.ReLU()(nx.Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    _function, _inplace = "relu", True


class ReLU6(Activation):
    """Each element clamped to [0, 6].

    >>> import neurenix as nx
    >>> nx.nn.ReLU6()(nx.Tensor([-1.0, 2.0, 8.0])).tolist()
    [0.0, 2.0, 6.0]
    """

    _function, _inplace = "relu6", True


class Sigmoid(Activation):
    """``1 / (1 + exp(-x))``."""

    _function = "sigmoid"


class Tanh(Activation):
    """The hyperbolic tangent."""

    _function = "tanh"


class LeakyReLU(Activation):
    """``x`` where positive, else ``negative_slope * x``.

    >>> import neurenix as nx
    >>> nx.nn.LeakyReLU(0.5)(nx.Tensor([-2.0, 4.0])).tolist()
    [-1.0, 4.0]
    """

    _function, _settings, _inplace = "leaky_relu", {"negative_slope": 0.01}, True


class ELU(Activation):
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""

    _function, _settings, _inplace = "elu", {"alpha": 1.0}, True


class CELU(Activation):
    """``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``."""

    _function, _settings, _inplace = "celu", {"alpha": 1.0}, True


class SELU(Activation):
    """``scale * elu(x, alpha)`` with ``scale`` 1.0507 and ``alpha`` 1.6733: activations stay normalised (Klambauer et
    al., 2017)."""

    _function, _inplace = "selu", True


class GELU(Activation):
    """``x * Phi(x)`` with the normal distribution's ``Phi`` (Hendrycks and Gimpel, 2016); ``approximate`` is ``"none"``
    or ``"tanh"``, or ``False`` or ``True``."""

    _function, _settings = "gelu", {"approximate": "none"}


class SiLU(Activation):
    """``x * sigmoid(x)``."""

    _function, _inplace = "silu", True


class Mish(Activation):
    """``x * tanh(softplus(x))``."""

    _function, _inplace = "mish", True


class Hardswish(Activation):
    """``x * relu6(x + 3) / 6``."""

    _function, _inplace = "hardswish", True


class Hardsigmoid(Activation):
    """``relu6(x + 3) / 6``."""

    _function, _inplace = "hardsigmoid", True


class Hardtanh(Activation):
    """Each element clamped to [``min_val``, ``max_val``].

    >>> import neurenix as nx
    >>> nx.nn.Hardtanh()(nx.Tensor([-3.0, 0.5])).tolist()
    [-1.0, 0.5]
    """

    _function, _settings, _inplace = "hardtanh", {"min_val": -1.0, "max_val": 1.0}, True


class Hardshrink(Activation):
    """``x`` outside ``[-lambd, lambd]``, else 0.

    >>> import neurenix as nx
    >>> nx.nn.Hardshrink()(nx.Tensor([0.25, -2.0])).tolist()
    [0.0, -2.0]
    """

    _function, _settings = "hardshrink", {"lambd": 0.5}


class Softshrink(Activation):
    """``x`` shrunk towards 0 by ``lambd``, and 0 within that distance.

    >>> import neurenix as nx
    >>> nx.nn.Softshrink()(nx.Tensor([0.25, -2.0])).tolist()
    [0.0, -1.5]
    """

    _function, _settings = "softshrink", {"lambd": 0.5}


class Tanhshrink(Activation):
    """``x - tanh(x)``."""

    _function = "tanhshrink"


class Softplus(Activation):
    """``log(1 + exp(beta * x)) / beta``; ``x`` where ``beta * x`` exceeds ``threshold``."""

    _function, _settings = "softplus", {"beta": 1.0, "threshold": 20.0}


class Softsign(Activation):
    """``x / (1 + |x|)``.

    >>> import neurenix as nx
    >>> nx.nn.Softsign()(nx.Tensor([1.0, -3.0])).tolist()
    [0.5, -0.75]
    """

    _function = "softsign"


class LogSigmoid(Activation):
    """``log(1 / (1 + exp(-x)))``, without its overflow."""

    _function = "logsigmoid"


class Threshold(Activation):
    """``x`` where greater than ``threshold``, else ``value``.

    >>> import neurenix as nx
    >>> nx.nn.Threshold(1.0, 9.0)(nx.Tensor([0.5, 2.0])).tolist()
    [9.0, 2.0]
    """

    _function, _settings, _inplace = "threshold", {"threshold": ..., "value": ...}, True


class GLU(Activation):
    """The first half of ``dim`` times the sigmoid of the second: (..., 2 * n, ...) to (..., n, ...).

    >>> import neurenix as nx
    >>> nx.nn.GLU()(nx.zeros(3, 8)).shape
    torch.Size([3, 4])
    """

    _function, _settings = "glu", {"dim": -1}


class Softmax(Activation):
    """``exp(x) / sum(exp(x))`` along ``dim``; by default the first of 1 or 3 dimensions, otherwise the second, with a
    warning, as in PyTorch.
    """

    _function, _settings = "softmax", {"dim": None}


class LogSoftmax(Activation):
    """The logarithm of ``Softmax``."""

    _function, _settings = "log_softmax", {"dim": None}


class Softmin(Activation):
    """``Softmax`` of ``-x``."""

    _function, _settings = "softmin", {"dim": None}


class Softmax2d(Module):
    """``Softmax`` over the channels at each position of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected an input of 3 or 4 dimensions, got shape {tuple(input.shape)}")
        return F.softmax(input, -3)


class RReLU(Module):
    """``x`` where not negative, else ``x`` times a slope: drawn between ``lower`` and ``upper`` in training, else their mean.
    Any shape to the same shape."""

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class PReLU(Module):
    """``x`` where positive, else ``weight * x``, with a learnable weight: (N, C, ...) to the same shape. ``weight`` is
    (num_parameters): one for each channel, or one.

    >>> import neurenix as nx
    >>> nx.nn.PReLU()(nx.Tensor([-4.0, 2.0])).tolist()
    [-1.0, 2.0]
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(_engine.full(num_parameters, float(init), device=device, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
