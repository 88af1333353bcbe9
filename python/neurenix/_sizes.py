"""Sizes that vary in exports: their symbols, and examples of other sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _engine
from ._engine import Tensor

_Named = list[tuple[str, Tensor]]
Recorded = tuple[_Named, _Named, _Named]
"""Inputs, outputs and weights of a recorded model."""


def symbols_of(
    names: list[str], examples: list[Tensor], axes: Mapping[str, Any], outputs: Sequence[str] | None
) -> list[tuple[int, int, str]]:
    """For each axis that varies the place of its input, the axis, and its symbol. Sizes of outputs follow from them."""
    symbols = []
    if not isinstance(axes, Mapping):
        raise TypeError('export: dynamic_axes is a dictionary such as {"x": {0: "batch"}}')
    for name, varying in axes.items():
        if name not in names and (name in (outputs or ()) or re.fullmatch(r"output(_\d+)?", name)):
            continue
        if name not in names:
            raise ValueError(f"export: dynamic_axes names {name!r}, but the inputs are {', '.join(names)}")
        place = names.index(name)
        if isinstance(varying, str) or not all(isinstance(axis, int) for axis in varying):
            raise TypeError('export: dynamic_axes has the axes of an input as {0: "batch"} or [0]')
        named = varying if isinstance(varying, Mapping) else {axis: f"{name}_{axis}" for axis in varying}
        for axis, symbol in named.items():
            rank = examples[place].dim()
            if not -rank <= axis < rank:
                raise IndexError(f"export: dynamic_axes has axis {axis} of {name!r}, which has {rank} dimensions")
            symbols.append((place, axis % rank, symbol))
    sizes: dict[str, int] = {}
    for place, axis, symbol in symbols:
        size = examples[place].shape[axis]
        if sizes.setdefault(symbol, size) != size:
            raise ValueError(
                f"export: dynamic_axes has the name {symbol!r} for sizes that differ, {sizes[symbol]} and {size} in "
                "the example: give each a name of its own"
            )
    return symbols


def sized(
    examples: list[Tensor], symbols: list[tuple[int, int, str]], record: Callable[[list[Tensor]], Recorded]
) -> tuple[Recorded, Recorded | None, list[Tensor]]:
    """The model recorded for two sizes, and inputs of a third one to compare. No two symbols change by the same number or
    factor. Multiples of the example's sizes suit models that need multiples; smaller sizes suit models with a greatest
    size.
    """
    if not symbols:
        return record(examples), None, examples
    found: dict[str, int] = {}
    for place, axis, symbol in symbols:
        found.setdefault(symbol, max(examples[place].shape[axis], 2))
    larger = [_spread(found, 1, 1), _spread(found, 1, 2)]
    base = {symbol: max(size, 4 + 2 * k) for k, (symbol, size) in enumerate(found.items())}
    smaller = [_spread(base, -1, 1), _spread(base, -1, 2)]
    refusal: Exception | None = None
    shapes = ""
    for sizes in ([found, *larger], [base, *smaller]):
        tried = [[_resized(example, place, symbols, each) for place, example in enumerate(examples)] for each in sizes]
        try:
            first, second, _ = (record(given) for given in tried)
        except Exception as error:  # noqa: BLE001
            if refusal is None:
                refusal = error
                shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tried[1])
            continue
        return first, second, tried[2]
    assert refusal is not None
    refusal.args = (f"{refusal} (export called the model with sizes that vary, such as {shapes})",)
    raise refusal


def _spread(sizes: dict[str, int], direction: int, turn: int) -> dict[str, int]:
    """Another size for each symbol, multiples or smaller ones, with steps such that no two symbols change by the same
    number or factor.
    """
    changed: dict[str, int] = {}
    for symbol, size in sizes.items():
        new, step = size, 0
        known = [(value - sizes[other], value / sizes[other]) for other, value in changed.items()]
        while new == size or any(new - size == number or new / size == factor for number, factor in known):
            step += 1
            new = size * (step + turn) if direction > 0 else max(size - turn * step, 1)
            if step > size + len(sizes):
                break
        changed[symbol] = new
    return changed


def _resized(example: Tensor, place: int, symbols: list[tuple[int, int, str]], sizes: dict[str, int]) -> Tensor:
    """The example with these sizes on the axes that vary."""
    for own, axis, symbol in symbols:
        if own == place:
            index = _engine.arange(sizes[symbol], device=example.device) % max(example.shape[axis], 1)
            example = example.index_select(axis, index)
    return example.detach().clone().evaluate()
