"""How complex tensors are printed."""

from __future__ import annotations

from typing import Any

from . import _engine
from ._engine import Tensor


def shown(tensor: Tensor) -> str:
    """The values with at most four decimals, then dtype, device and ``requires_grad``."""
    ending = f", dtype={tensor.dtype.name}"
    if tensor.device.name != "cpu":
        ending += f", device={tensor.device.name}"
    if tensor.requires_grad:
        ending += ", requires_grad=True"
    if _engine.is_recording():
        return f"tensor(<recorded>, shape={list(tensor.shape)}{ending})"
    if tensor.numel() == 0:
        shape = f", shape={list(tensor.shape)}" if tensor.ndim > 1 else ""
        return f"tensor([]{shape}{ending})"
    import numpy

    values = tensor.detach().cpu().numpy()
    parts = numpy.stack([values.real, values.imag])
    sizes = numpy.abs(parts[numpy.isfinite(parts) & (parts != 0)])
    is_wide = sizes.size > 0 and (sizes.max() >= 1e5 or sizes.max() < 1e-4)
    exact = (d for d in range(1, 4) if numpy.all(numpy.abs(sizes - sizes.round(d)) <= 1e-6 * sizes))
    style = ".4e" if is_wide else f".{next(exact, 4)}f"

    def written(z: complex) -> str:
        return f"{z.real:{style}}{z.imag:+{style}}j"

    width = max(map(len, map(written, values.ravel().tolist()))) if values.size <= 1000 else 0
    formatter: Any = {"complexfloat": lambda z: written(z).rjust(width)}
    with numpy.printoptions(threshold=1000, linewidth=80, formatter=formatter):
        text = numpy.array2string(values, separator=", ", prefix="tensor(")
    return f"tensor({text}{ending})"
