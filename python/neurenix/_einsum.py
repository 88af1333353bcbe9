"""Sums of products over named dimensions."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from . import _engine
from ._arguments import guarded as _guarded
from ._engine import Tensor

_einsum = _guarded(_engine.einsum, "einsum", {"equation": "str", "operands": "Sequence[Tensor]"})


def einsum(equation: Any, *operands: Any) -> Tensor:
    """A sum of products over dimensions that letters name: ``einsum("ij,jk->ik", x, y)``. Numbers from 0 to 51, in lists
    after each tensor and at the end, may name them too: ``einsum(x, [0, 1], y, [1, 2], [0, 2])``.

    >>> import neurenix as nx
    >>> nx.einsum(nx.ones(2, 3), [0, 1], nx.ones(3), [1], [0]).tolist()
    [3.0, 3.0]
    """
    if not isinstance(equation, Tensor):
        return _einsum(equation, *operands)
    given = (equation, *operands)
    count = len(given) // 2
    terms = ",".join(_letters(dims) for dims in given[1 : 2 * count : 2])  # pyright: ignore[reportArgumentType]
    return _einsum(f"{terms}->{_letters(given[-1])}" if len(given) % 2 else terms, *given[: 2 * count : 2])


def _letters(dims: Sequence[Any]) -> str:
    for dim in dims:
        if dim is not Ellipsis and not 0 <= dim < 52:
            raise ValueError(f"einsum: a dimension is named {dim}, the numbers must be from 0 to 51")
    letters = string.ascii_uppercase + string.ascii_lowercase
    return "".join("..." if dim is Ellipsis else letters[dim] for dim in dims)
