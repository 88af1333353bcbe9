"""The operations that every backend has, by the names and arguments of ``nn.functional``."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _engine
from .._engine import Tensor
from ..nn import functional as F
from ..nn._windows import Sizes
from ._backend import Backend, check_operands


class HardwareBackend(Backend):
    """Operations on one kind of hardware. What it does not compute runs on the CPU, with a warning and an entry in the
    report.
    """

    def apply(self, function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
        """Any function of tensors that returns a tensor, or a tuple of tensors, and leaves its operands as they are.

        >>> import warnings
        >>> import neurenix as nx
        >>> backend = nx.hardware.DirectMLBackend()
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     backend.apply(lambda x: x.relu().sum(), nx.Tensor([1.0, -2.0, 3.0])).item()
        4.0
        """
        if not callable(function):
            raise TypeError(f"apply: expected a function as the first argument, got {type(function).__name__}")
        if not operands:
            raise TypeError("apply: expected a tensor after the function, got none")
        name = getattr(function, "__name__", type(function).__name__)

        def checked(*tensors: Tensor) -> Any:
            result = function(*tensors)
            for each in result if isinstance(result, tuple) else (result,):
                if not isinstance(each, Tensor):
                    kind = type(each).__name__
                    raise TypeError(f"apply: expected {name} to return a tensor or a tuple of them, got {kind}")
            return result

        return self._computed(name, checked, *operands, attributes=(function,))

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of two matrices, or batches of matrices. The result is on the device that computed it."""
        return self._computed("matmul", lambda left, right: left.matmul(right), a, b)

    def linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """``input @ weight.T + bias``."""
        return self._computed("linear", F.linear, input, weight, bias)

    def conv2d(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | tuple[int, int] = (1, 1),
        padding: int | tuple[int, int] | str = (0, 0),
        dilation: int | tuple[int, int] = (1, 1),
        groups: int = 1,
    ) -> Tensor:
        """A convolution of ``(N, C, H, W)`` with ``weight`` of ``(out, C / groups, kernel height, kernel width)``.
        ``padding`` may be ``"same"`` or ``"valid"``.
        """

        def convolve(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
            return F.conv2d(x, w, b, stride, padding, dilation, groups)

        attributes = (stride, padding, dilation, groups)
        return self._computed("conv2d", convolve, input, weight, bias, attributes=attributes)

    def max_pool2d(
        self,
        input: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        """The greatest element of each window."""
        attributes = (kernel_size, stride, padding, dilation, ceil_mode)
        return self._computed("max_pool2d", lambda x: F.max_pool2d(x, *attributes), input, attributes=attributes)

    def avg_pool2d(
        self,
        input: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        """The mean of each window, or with ``divisor_override`` its sum divided by that."""
        attributes = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return self._computed("avg_pool2d", lambda x: F.avg_pool2d(x, *attributes), input, attributes=attributes)

    def adaptive_max_pool2d(self, input: Tensor, output_size: int | tuple[int | None, ...] | None) -> Tensor:
        """The greatest element of each window, one window per output position."""
        return self._computed(
            "adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, output_size), input, attributes=(output_size,)
        )

    def adaptive_avg_pool2d(self, input: Tensor, output_size: int | tuple[int | None, ...] | None) -> Tensor:
        """The mean of each window, one window per output position."""
        return self._computed(
            "adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, output_size), input, attributes=(output_size,)
        )

    def batch_norm(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """Normalises over the batch. In training the running statistics are updated in place, wherever they are, once
        the result is computed.
        """
        if not training:

            def normalize(
                x: Tensor, mean: Tensor | None, variance: Tensor | None, w: Tensor | None, b: Tensor | None
            ) -> Tensor:
                return _engine.batch_norm(x, mean, variance, w, b, False, momentum, eps)

            operands = (input, running_mean, running_var, weight, bias)
            return self._computed("batch_norm", normalize, *operands, attributes=(eps,))

        check_operands("batch_norm", (input, running_mean, running_var, weight, bias))
        places = () if running_mean is None or running_var is None else (running_mean, running_var)
        if _engine.is_grad_enabled() and any(each.requires_grad and each.is_leaf for each in places):
            raise RuntimeError(
                "a leaf that requires gradients cannot be changed in place: change it under `with neurenix.no_grad():`"
            )

        def train(x: Tensor, w: Tensor | None, b: Tensor | None, *statistics: Tensor) -> tuple[Tensor, ...]:
            moved = [each.detach().clone() for each in statistics]
            mean, variance = moved or (None, None)
            return _engine.batch_norm(x, mean, variance, w, b, True, momentum, eps), *moved

        result, *moved = self._on_device("batch_norm", train, input, weight, bias, *places)
        for place, value in zip(places, moved, strict=True):
            place.copy_(value)
        return result

    def layer_norm(
        self,
        input: Tensor,
        normalized_shape: Sizes,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        eps: float = 1e-5,
    ) -> Tensor:
        """Normalises over the last dimensions."""

        def normalize(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
            return F.layer_norm(x, normalized_shape, w, b, eps)

        return self._computed("layer_norm", normalize, input, weight, bias, attributes=(normalized_shape, eps))

    def softmax(self, input: Tensor, dim: int = -1) -> Tensor:
        """``exp(x) / sum(exp(x))`` along ``dim``."""
        return self._computed("softmax", lambda x: F.softmax(x, dim), input, attributes=(dim,))

    def log_softmax(self, input: Tensor, dim: int = -1) -> Tensor:
        """The logarithm of ``softmax``."""
        return self._computed("log_softmax", lambda x: F.log_softmax(x, dim), input, attributes=(dim,))

    def relu(self, input: Tensor) -> Tensor:
        """The greater of 0 and each element."""
        return self._computed("relu", F.relu, input)

    def leaky_relu(self, input: Tensor, negative_slope: float = 0.01) -> Tensor:
        """``x`` where positive, else ``negative_slope * x``."""
        slope = negative_slope
        return self._computed("leaky_relu", lambda x: F.leaky_relu(x, slope), input, attributes=(slope,))

    def elu(self, input: Tensor, alpha: float = 1.0) -> Tensor:
        """``x`` where positive, else ``alpha * (exp(x) - 1)``."""
        return self._computed("elu", lambda x: F.elu(x, alpha), input, attributes=(alpha,))

    def gelu(self, input: Tensor, approximate: bool | str = "none") -> Tensor:
        """The Gaussian error linear unit; ``approximate`` is ``"none"`` or ``"tanh"``, or ``False`` or ``True``."""
        return self._computed("gelu", lambda x: F.gelu(x, approximate), input, attributes=(approximate,))

    def silu(self, input: Tensor) -> Tensor:
        """``x * sigmoid(x)``."""
        return self._computed("silu", F.silu, input)

    def softplus(self, input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
        """``log(1 + exp(beta * x)) / beta``; ``x`` where ``beta * x`` exceeds ``threshold``."""
        attributes = (beta, threshold)
        return self._computed("softplus", lambda x: F.softplus(x, beta, threshold), input, attributes=attributes)

    def sigmoid(self, input: Tensor) -> Tensor:
        """``1 / (1 + exp(-x))``."""
        return self._computed("sigmoid", F.sigmoid, input)

    def tanh(self, input: Tensor) -> Tensor:
        """The hyperbolic tangent."""
        return self._computed("tanh", F.tanh, input)

    def add(self, a: Tensor, b: Tensor | float) -> Tensor:
        """``a + b``."""
        return self._combined("add", lambda left, right: left + right, a, b)

    def sub(self, a: Tensor, b: Tensor | float) -> Tensor:
        """``a - b``."""
        return self._combined("sub", lambda left, right: left - right, a, b)

    def mul(self, a: Tensor, b: Tensor | float) -> Tensor:
        """``a * b``."""
        return self._combined("mul", lambda left, right: left * right, a, b)

    def div(self, a: Tensor, b: Tensor | float) -> Tensor:
        """``a / b``."""
        return self._combined("div", lambda left, right: left / right, a, b)

    def maximum(self, a: Tensor, b: Tensor | float) -> Tensor:
        """The greater of two elements."""
        return self._combined("maximum", Tensor.maximum, a, b)

    def minimum(self, a: Tensor, b: Tensor | float) -> Tensor:
        """The lesser of two elements."""
        return self._combined("minimum", Tensor.minimum, a, b)

    def _combined(self, operation: str, function: Any, a: Tensor, b: Tensor | float) -> Tensor:
        """A function of two tensors, or of a tensor and a number."""
        if isinstance(b, (int, float, numbers.Real, np.bool_)):
            return self._computed(operation, lambda left: function(left, b), a, attributes=(b,))
        return self._computed(operation, function, a, b)
