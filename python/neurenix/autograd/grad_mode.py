"""Gradient modes."""

from .._autograd import (
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
)

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]
