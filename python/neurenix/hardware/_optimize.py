"""Quantised models: integer weights, and computation in lower precision."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from .. import _engine
from .._engine import Tensor
from ..nn import Module
from ..nn import functional as F

#: The greatest integer of each weight precision; ``None`` if weights stay floating-point.
PRECISIONS_OF_INTEGERS: dict[str, int | None] = {"int8": 127, "int16": 32767, "float16": None, "bfloat16": None}


def _rounded(x: Tensor, scale: Tensor, most: int) -> Tensor:
    """``x`` as multiples of ``scale``, between ``-most`` and ``most``."""
    return (x / scale).round().clamp(-most, most)


def scales(x: Tensor, dims: Any, most: int) -> Tensor:
    """The scale of each part of ``x`` along ``dims``, which keeps its greatest number within ``most``."""
    greatest = x.abs().amax(dims, True)
    return _engine.where(greatest == 0, 1.0, greatest / most)


#: The most products of two ``int8`` numbers whose sum an ``int32`` holds, whatever they are.
_MOST_TERMS = (2**31 - 1) // 127**2


def integer_product(left: Tensor, left_scale: Tensor, right: Tensor, right_scale: Tensor) -> Tensor:
    """The product of matrices that are rounded to ``int8``, as ``float32``; sums are exact. A right factor of ``int8`` is
    one that was rounded before. Rows and columns with NaN give NaN.
    """
    _refuse_gradients(left, right)
    missing = left.isnan().any(-1, keepdim=True)
    rounded = _rounded(left.float(), left_scale.float(), 127).to("int8")
    if right.dtype.is_floating_point:
        missing = missing | right.isnan().any(-2, keepdim=True)
        right = _rounded(right.float(), right_scale.float(), 127).to("int8")
    if left.shape[-1] <= _MOST_TERMS:
        sums = rounded.matmul(right, out_dtype="int32").float()
    else:
        sums = rounded.float() @ right.float()
    return _engine.where(missing, math.nan, sums * left_scale.float() * right_scale.float())


def _refuse_gradients(*tensors: Tensor) -> None:
    if _engine.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise RuntimeError(
            "numbers that are rounded to integers have no gradients: a model that was quantised is for inference, "
            "within no_grad(); train the original model"
        )


class QuantizedLayer(Module):
    """A linear layer or a convolution with an integer weight and a scale for each output. A linear layer of ``int8``
    whose inputs are rounded, by a scale from calibration or by their own, multiplies integers.
    """

    def __init__(self, layer: Module, precision: str, rounds_inputs: bool = False) -> None:
        super().__init__()
        most = PRECISIONS_OF_INTEGERS[precision]
        assert most is not None
        self.precision = precision
        self.rounds_inputs = rounds_inputs
        self._most = most
        weight = layer.weight.detach()
        scale = scales(weight, tuple(range(1, weight.ndim)), most)
        self.register_buffer("weight_quantized", _rounded(weight, scale, most).to(precision))
        self.register_buffer("weight_scale", scale)
        self.register_buffer("input_scale", None)
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach().clone())
        self._options = {
            name: getattr(layer, name) for name in ("stride", "padding", "dilation", "groups") if hasattr(layer, name)
        }
        # Padding other than zeros is applied to the input before the convolution.
        self._borders: tuple[tuple[int, ...], str] | None = None
        if getattr(layer, "padding_mode", "zeros") != "zeros" and layer.padding != "valid":
            self._borders = (tuple(layer._borders()), layer.padding_mode)
            self._options["padding"] = 0
        self._seen = 0.0
        self._watching = False

    @property
    def weight(self) -> Tensor:
        """The weight as floating-point numbers."""
        return self.weight_quantized.to(self.weight_scale.dtype) * self.weight_scale

    def forward(self, x: Tensor) -> Tensor:
        if self._watching and x.numel():
            self._seen = max(self._seen, float(x.abs().amax().item()))
        if not self._options and self.precision == "int8" and (self.rounds_inputs or self.input_scale is not None):
            x = _engine.with_features(x, self.weight_quantized.shape[1])
            rows = x if x.ndim > 1 else x.unsqueeze(0)
            scale = scales(rows, -1, self._most) if self.input_scale is None else self.input_scale
            product = integer_product(rows, scale, self.weight_quantized.T, self.weight_scale.T)
            product = (product if x.ndim > 1 else product.squeeze(0)).to(x.dtype)
            return product if self.bias is None else product + self.bias
        if self.input_scale is not None:
            _refuse_gradients(x)
            x = _rounded(x, self.input_scale, self._most) * self.input_scale
        if not self._options:
            return F.linear(x, self.weight, self.bias)
        if self._borders is not None:
            x = F.pad(x, self._borders[0], mode=self._borders[1])
        convolution = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[self.weight_quantized.ndim]
        return convolution(x, self.weight, self.bias, **self._options)

    def extra_repr(self) -> str:
        shape = "x".join(map(str, self.weight_quantized.shape))
        rounded = self.input_scale is not None or (self.rounds_inputs and not self._options)
        return f"{shape}, precision={self.precision!r}, inputs={'rounded' if rounded else 'as they are'}"


def quantized(
    model: Module, precision: str, calibration_data: Iterable[Any] | None = None, rounds_inputs: bool = False
) -> Module:
    """``model`` with its linear layers and convolutions replaced by quantised ones; subclasses of these, which may
    compute something else, are unchanged. With ``rounds_inputs``, linear layers round inputs by scales of their own.
    """
    from ..nn import Conv1d, Conv2d, Conv3d, Linear

    kinds = (Linear, Conv1d, Conv2d, Conv3d)
    if type(model) in kinds:
        model = QuantizedLayer(model, precision, rounds_inputs)
    made: dict[int, QuantizedLayer] = {}
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            if child is not None and type(child) in kinds:
                # A layer registered under two names stays one layer.
                if id(child) not in made:
                    made[id(child)] = QuantizedLayer(child, precision, rounds_inputs)
                module._modules[name] = made[id(child)]
    if calibration_data is None:
        return model
    layers = [module for module in model.modules() if isinstance(module, QuantizedLayer)]
    for layer in layers:
        layer._watching = True
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    batches = 0
    with _engine.GradientMode(False):
        for batch in calibration_data:
            batches += 1
            # A batch of inputs, or inputs and labels as returned by a data loader.
            model(batch[0] if isinstance(batch, (list, tuple)) else batch)
    for module, training in modes:
        module.training = training
    if batches == 0:
        raise ValueError("optimize_model: calibration_data has no batches")
    for layer in layers:
        layer._watching = False
        if layer._seen > 0:
            scale = layer.weight_scale
            layer.input_scale = _engine.full((), layer._seen / layer._most, dtype=scale.dtype, device=scale.device)
    return model
