"""Comparison of tensors: ``torch.testing``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import neurenix as nx

from .._engine import Tensor

_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
"""Relative and absolute tolerances, as PyTorch documents them."""


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raises ``AssertionError`` unless two tensors, numbers, or containers of them agree within
    ``atol + rtol * abs(expected)``. By default the tolerances follow from the dtype.
    """
    def fail(text: str) -> None:
        raise AssertionError(msg(text) if callable(msg) else msg or text)

    if (rtol is None) != (atol is None):
        raise ValueError("assert_close: pass both rtol and atol, or neither")
    options: dict[str, Any] = dict(rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=check_device, check_dtype=check_dtype, msg=msg)
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if set(actual) != set(expected):
            fail(f"The keys differ: {sorted(actual)} and {sorted(expected)}")
        for key in actual:
            assert_close(actual[key], expected[key], **options)
        return
    if isinstance(actual, Sequence) and isinstance(expected, Sequence):
        if len(actual) != len(expected):
            fail(f"The lengths differ: {len(actual)} and {len(expected)}")
        for one, other in zip(actual, expected):
            assert_close(one, other, **options)
        return
    a, b = (each if isinstance(each, Tensor) else nx.tensor(each, device="cpu") for each in (actual, expected))
    if tuple(a.shape) != tuple(b.shape):
        fail(f"The shapes differ: {tuple(a.shape)} and {tuple(b.shape)}")
    if check_dtype and a.dtype != b.dtype:
        fail(f"The dtypes differ: {a.dtype} and {b.dtype}")
    if check_device and a.device != b.device:
        fail(f"The devices differ: {a.device} and {b.device}")
    if rtol is None or atol is None:
        pairs = [_TOLERANCES.get(each.dtype.name, (0.0, 0.0)) for each in (a, b)]
        rtol, atol = max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    a, b = a.detach().cpu(), b.detach().cpu()
    if a.dtype != b.dtype:
        kind = nx.promote_types(a.dtype, b.dtype)
        a, b = a.to(kind), b.to(kind)
    close = nx.isclose(a, b, rtol, atol, equal_nan) if a.is_floating_point() else a == b
    wrong = int((~close).sum().item())
    if wrong:
        difference = (a.to("float64") - b.to("float64")).abs()
        fail(
            f"{wrong} of {a.numel()} elements differ: the greatest difference is {difference.max().item()}, the tolerances are "
            f"atol {atol} and rtol {rtol}"
        )
