"""Arguments of ``neurenix.quantize``, checked before a network is recorded: an error names the argument."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .. import _engine

_FORMATS = ("uint8", "int8", "uint16", "int16", "int4", "uint4", "float8_e4m3", "float8_e5m2")
_CALIBRATORS = ("minmax", "percentile", "entropy", "mse")


def settings(
    activations: str | _engine.dtype,
    weights: str | _engine.dtype,
    per_channel: bool,
    symmetric: bool,
    calibrator: str,
    percentile: float,
    excluded: Sequence[str],
    operators: Sequence[str] | None,
    equalize: bool,
    smooth: float | None,
    bias_correction: bool,
    adaptive_rounding: bool | int,
) -> dict[str, Any]:
    """The settings of static quantization as the engine takes them."""
    learned = isinstance(adaptive_rounding, (bool, np.bool_))
    steps = (1000 if adaptive_rounding else 0) if learned else count("adaptive_rounding", adaptive_rounding)
    types = None if operators is None else names("operators", operators)
    if types == []:
        raise ValueError("operators is empty, so nothing would be quantized; None quantizes all operators that can be")
    return {
        "activations": format_name("activations", activations),
        "weights": format_name("weights", weights),
        "per_channel": flag("per_channel", per_channel),
        "symmetric": flag("symmetric", symmetric),
        "calibrator": _one_of("calibrator", calibrator, _CALIBRATORS),
        "percentile": number("percentile", percentile),
        "excluded": names("excluded", excluded),
        "operators": types,
        "equalize": flag("equalize", equalize),
        "smooth": None if smooth is None else number("smooth", smooth),
        "bias_correction": flag("bias_correction", bias_correction),
        "adaptive_rounding": steps or None,
    }


def format_name(argument: str, value: Any) -> str:
    """The name of a format, which may be given as a dtype."""
    return _one_of(argument, value.name.removesuffix("fn") if isinstance(value, _engine.dtype) else value, _FORMATS)


def _one_of(argument: str, value: Any, known: tuple[str, ...]) -> str:
    expected = ", ".join(f'"{each}"' for each in known)
    if not isinstance(value, str):
        raise TypeError(f"{argument}: expected one of {expected}, got {type(value).__name__}")
    if value not in known:
        raise ValueError(f'{argument} is "{value}", it must be one of {expected}')
    return value


def flag(argument: str, value: Any) -> bool:
    """``True`` or ``False``."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{argument}: expected True or False, got {value!r}")
    return bool(value)


def number(argument: str, value: Any) -> float:
    """A real number."""
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except TypeError:
        pass
    raise TypeError(f"{argument}: expected a number, got {type(value).__name__}")


def count(argument: str, value: Any) -> int:
    """An integer that counts something."""
    try:
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"{argument}: expected an integer, got {type(value).__name__}") from None
    if found < 0:
        raise ValueError(f"{argument} is {found}, it must not be negative")
    if found >= 2**63:
        raise ValueError(f"{argument} is {found}, it must be less than 2**63")
    return found


def names(argument: str, value: Any) -> list[str]:
    """Names, of which a single one may be given as it is."""
    found = [value] if isinstance(value, str) else list(value) if isinstance(value, Iterable) else None
    if found is None or not all(isinstance(name, str) for name in found):
        raise TypeError(f"{argument}: expected names of operators or nodes as a list of strings, got {value!r}")
    return found
