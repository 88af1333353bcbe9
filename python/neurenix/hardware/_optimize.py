"""Models in other precisions; products of ``int8`` numbers on Tensor Cores, and layers that compute with them."""

from __future__ import annotations

import math
from typing import Any

from .. import _engine
from .._engine import Device, Tensor
from ..nn import Module
from ..nn import functional as F

_MOST = 127


def computing_in(model: Module, way: tuple[str, str] | None, device: Device) -> None:
    """Moves the model, which computes in this way from now on: see ``Module.computation_dtype``. Dtypes of inputs are
    also those of the weights; other ways have weights of ``float32``. If it fails, the model is as it was.
    """
    model.to(device=device, dtype=way[1] if way is not None and way[0] == "inputs" else "float32")
    model.computation_dtype = way


def _rounded(x: Tensor, scale: Tensor) -> Tensor:
    """``x`` as multiples of ``scale``, between -127 and 127."""
    return (x / scale).round().clamp(-_MOST, _MOST).to("int8")


def scales(x: Tensor, dims: Any) -> Tensor:
    """The scale of each part of ``x`` along ``dims``, which keeps its greatest number within 127."""
    greatest = x.abs().amax(dims, True)
    return _engine.where(greatest == 0, 1.0, greatest / _MOST)


#: The most products of two ``int8`` numbers whose sum an ``int32`` holds, whatever they are.
_MOST_TERMS = (2**31 - 1) // _MOST**2


def integer_product(left: Tensor, left_scale: Tensor, right: Tensor, right_scale: Tensor) -> Tensor:
    """The product of matrices that are rounded to ``int8``, as ``float32``; sums are exact. A right factor of ``int8``
    is one that was rounded before. Rows and columns with NaN give NaN.
    """
    _refuse_gradients(left, right)
    missing = left.isnan().any(-1, keepdim=True)
    rounded = _rounded(left.float(), left_scale.float())
    if right.dtype.is_floating_point:
        missing = missing | right.isnan().any(-2, keepdim=True)
        right = _rounded(right.float(), right_scale.float())
    if left.shape[-1] <= _MOST_TERMS:
        sums = rounded.matmul(right, out_dtype="int32").float()
    else:
        sums = rounded.float() @ right.float()
    return _engine.where(missing, math.nan, sums * left_scale.float() * right_scale.float())


def _refuse_gradients(*tensors: Tensor) -> None:
    if _engine.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise RuntimeError(
            "numbers that are rounded to integers have no gradients: a model that was quantized is for inference, "
            "within no_grad(); train the original model"
        )


class QuantizedLayer(Module):
    """A linear layer or a convolution with a weight of ``int8`` and a scale for each output. A linear layer rounds its
    inputs, each row by a scale of its own, and multiplies integers.
    """

    def __init__(self, layer: Module) -> None:
        super().__init__()
        weight = layer.weight.detach()
        scale = scales(weight, tuple(range(1, weight.ndim)))
        self.register_buffer("weight_quantized", _rounded(weight, scale))
        self.register_buffer("weight_scale", scale)
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach().clone())
        self._options = {
            name: getattr(layer, name) for name in ("stride", "padding", "dilation", "groups") if hasattr(layer, name)
        }
        # Padding other than zeros is applied to the input before the convolution.
        self._borders: tuple[tuple[int, ...], str] | None = None
        if getattr(layer, "padding_mode", "zeros") != "zeros" and layer.padding != "valid":
            self._borders = (tuple(layer._borders()), layer.padding_mode)
            self._options["padding"] = 0

    @property
    def weight(self) -> Tensor:
        """The weight as floating-point numbers."""
        return self.weight_quantized.to(self.weight_scale.dtype) * self.weight_scale

    def forward(self, x: Tensor) -> Tensor:
        if not self._options:
            x = _engine.with_features(x, self.weight_quantized.shape[1])
            rows = x if x.ndim > 1 else x.unsqueeze(0)
            product = integer_product(rows, scales(rows, -1), self.weight_quantized.T, self.weight_scale.T)
            product = (product if x.ndim > 1 else product.squeeze(0)).to(x.dtype)
            return product if self.bias is None else product + self.bias
        if self._borders is not None:
            x = F.pad(x, self._borders[0], mode=self._borders[1])
        convolution = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[self.weight_quantized.ndim]
        return convolution(x, self.weight, self.bias, **self._options)

    def extra_repr(self) -> str:
        shape = "x".join(map(str, self.weight_quantized.shape))
        return f"{shape}, int8, inputs={'as they are' if self._options else 'rounded'}"


def quantized(model: Module) -> Module:
    """``model`` with its linear layers and convolutions replaced by quantized ones; subclasses of these, which may
    compute something else, are unchanged.
    """
    from ..nn import Conv1d, Conv2d, Conv3d, Linear

    kinds = (Linear, Conv1d, Conv2d, Conv3d)
    if type(model) in kinds:
        return QuantizedLayer(model)
    made: dict[int, QuantizedLayer] = {}
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            if child is not None and type(child) in kinds:
                # A layer registered under two names stays one layer.
                if id(child) not in made:
                    made[id(child)] = QuantizedLayer(child)
                module._modules[name] = made[id(child)]
    return model
