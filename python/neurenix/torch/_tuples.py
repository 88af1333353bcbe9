"""Numbers as tuples, which layers outside this package import from ``torch.nn.modules.utils``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(itertools.repeat(x, n))

    parse.__name__ = name
    return parse


_single, _pair, _triple, _quadruple = (_ntuple(n) for n in (1, 2, 3, 4))
