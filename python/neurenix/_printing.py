"""How tensors are printed, and the settings of it. The engine prints real tensors with the settings as they begin; here
are the other settings, and complex tensors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

from . import _engine
from ._engine import Tensor
from ._manipulation import cat

__all__ = ["get_printoptions", "printoptions", "set_printoptions"]

OPENING = "tensor("
"""The text before the first bracket; further lines are indented to its width."""


@dataclasses.dataclass(frozen=True)
class _Options:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES = {
    "default": _Options(),
    "short": _Options(precision=2, edgeitems=2),
    "full": _Options(threshold=math.inf),
}
_options = _Options()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets how tensors are printed, in the whole process. What is not given stays as it is, except ``sci_mode``.

    Args:
        precision: the number of decimals of floats (4).
        threshold: tensors with more elements are summarised (1000).
        edgeitems: the number of elements at either end of a summarised dimension (3).
        linewidth: the number of characters in a line (80).
        profile: ``"default"``, ``"short"`` or ``"full"``: settings to begin with.
        sci_mode: whether floats are printed in scientific notation; ``None`` decides from their values.

    >>> import neurenix as nx
    >>> nx.set_printoptions(precision=2)
    >>> nx.tensor([1.12345])
    tensor([1.12])
    >>> nx.set_printoptions(profile="default")
    """
    global _options
    if profile is not None and profile not in _PROFILES:
        raise ValueError(f"set_printoptions: profile is {profile!r}, it must be 'default', 'short' or 'full'")
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for name, value in changes.items():
        whole = isinstance(value, int) or name == "threshold" and isinstance(value, float) and not math.isnan(value)
        if not whole or value < 0:
            raise ValueError(f"set_printoptions: {name} is {value!r}, it must be a number that is not negative")
    start = _options if profile is None else _PROFILES[profile]
    _options = dataclasses.replace(start, **changes, sci_mode=sci_mode)


def get_printoptions() -> dict[str, Any]:
    """The settings of ``set_printoptions``, as its arguments."""
    return dataclasses.asdict(_options)


@contextlib.contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """A context with other settings: the arguments are those of ``set_printoptions``."""
    before = get_printoptions()
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        set_printoptions(**before)


_engine_text = Tensor.__repr__


def shown(self: Tensor) -> str:
    """The values, then dtype, device and ``requires_grad`` unless they are the defaults."""
    is_complex = self.dtype.is_complex
    if not is_complex and (_options == _PROFILES["default"] or _engine.is_recording()):
        return _engine_text(self)
    ending = f", shape={tuple(self.shape)}" if self.numel() == 0 and self.ndim > 1 or _engine.is_recording() else ""
    if self.dtype.name not in ("float32", "int64", "bool"):
        ending += f", dtype={self.dtype.name}"
    if self.device.name != "cpu":
        ending += f", device={self.device.name}"
    if self.requires_grad:
        ending += ", requires_grad=True"
    if _engine.is_recording():
        return f"{OPENING}<recorded>{ending})"
    return f"{OPENING}{_values(self.detach())}{ending})"


def _values(tensor: Tensor) -> str:
    if tensor.numel() == 0:
        return "[]"
    shape = list(tensor.shape)
    if tensor.numel() > _options.threshold:
        for dim, size in enumerate(shape):
            if size > 2 * _options.edgeitems:
                ends = tensor.narrow(dim, 0, _options.edgeitems), tensor.narrow(dim, size - _options.edgeitems, _options.edgeitems)
                tensor = cat(ends, dim)
    values = tensor.cpu()
    numbers = values.flatten().tolist()
    write = _style(numbers)
    texts = [write(number) for number in numbers]
    width = max(map(len, texts), default=0)
    rows: Any = [text.rjust(width) for text in texts]
    for size in reversed(values.shape[1:]):
        rows = [rows[start : start + size] for start in range(0, len(rows), size)] if size else []
    return _written(rows, shape, len(OPENING), width) if shape else rows[0]


def _written(rows: list[Any], shape: list[int], indent: int, width: int) -> str:
    """The text of nested lists of texts; where they are shorter than the shape says, only the ends are there."""
    size, *inner = shape
    parts = [_written(row, inner, indent + 1, width) for row in rows] if inner else list(rows)
    if len(parts) < size:
        after = parts[_options.edgeitems :]
        parts[_options.edgeitems :] = ["...", *after] if inner or not after else [f"..., {after[0]}", *after[1:]]
    margin = " " * (indent + 1)
    if inner:
        return "[" + f",{chr(10) * len(inner)}{margin}".join(parts) + "]"
    count = max((_options.linewidth - indent) // (width + 2), 1)
    lines = (", ".join(parts[start : start + count]) for start in range(0, len(parts), count))
    return "[" + f",\n{margin}".join(lines) + "]"


def _style(numbers: list[Any]) -> Callable[[Any], str]:
    """How the numbers are written: floats as whole numbers, with decimals, or in scientific notation."""
    if numbers and isinstance(numbers[0], complex):
        return _complex_style(numbers)
    if not (numbers and isinstance(numbers[0], float)):
        return str
    sizes = [abs(x) for x in numbers if math.isfinite(x) and x]
    greatest, least = max(sizes, default=0.0), min(sizes, default=math.inf)
    is_whole = all(size.is_integer() for size in sizes)
    scientific = greatest > 1e8 if is_whole else greatest > 1e8 or greatest > 1000 * least or least < 1e-4
    if scientific if _options.sci_mode is None else _options.sci_mode:
        return lambda x: f"{x:.{_options.precision}e}"
    if is_whole:
        return lambda x: f"{x:.0f}." if math.isfinite(x) else f"{x}"
    return lambda x: f"{x:.{_options.precision}f}"


def _complex_style(numbers: list[complex]) -> Callable[[complex], str]:
    """Both parts are written alike, with as few decimals as represent them."""
    parts = (abs(part) for z in numbers for part in (z.real, z.imag))
    sizes = [part for part in parts if math.isfinite(part) and part]
    is_wide = bool(sizes) and (max(sizes) >= 1e5 or max(sizes) < 1e-4)
    if is_wide if _options.sci_mode is None else _options.sci_mode:
        style = f".{_options.precision}e"
    else:
        exact = (d for d in range(1, _options.precision) if all(abs(x - round(x, d)) <= 1e-6 * x for x in sizes))
        style = f".{next(exact, _options.precision)}f"
    return lambda z: f"{z.real:{style}}{z.imag:+{style}}j"


_engine_format = Tensor.__format__


def _formatted(self: Tensor, format_spec: str) -> str:
    """The only number of a tensor without dimensions by itself, as in PyTorch; other tensors as ``str`` gives them."""
    is_number = not format_spec and self.ndim == 0 and type(self) is Tensor and not _engine.is_recording()
    return format(self.item()) if is_number else _engine_format(self, format_spec)


def attach() -> None:
    """Makes tensors print with the settings."""
    setattr(Tensor, "__repr__", shown)
    setattr(Tensor, "__format__", _formatted)
