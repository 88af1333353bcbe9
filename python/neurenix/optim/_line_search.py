"""A line search for the strong Wolfe conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from .._engine import Tensor


class Point(NamedTuple):
    """A point on a line: its distance, the loss, the gradient, and the slope along the line."""

    length: float
    loss: float
    gradient: Tensor
    slope: float


def _cubic_minimum(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic with the losses and slopes of two points is least, within bounds (by default the points)."""
    a, b = (a, b) if a.length <= b.length else (b, a)
    least, most = bounds or (a.length, b.length)
    width = b.length - a.length
    mean = a.slope + b.slope + 3.0 * (a.loss - b.loss) / width if width else math.nan
    square = mean * mean - a.slope * b.slope
    if not square >= 0.0:
        return (least + most) / 2.0
    root = math.sqrt(square)
    divisor = b.slope - a.slope + 2.0 * root
    place = b.length - width * ((b.slope + root - mean) / divisor) if divisor else math.nan
    return (least + most) / 2.0 if math.isnan(place) else min(max(place, least), most)


def strong_wolfe(
    at: Callable[[float], Point],
    start: Point,
    length: float,
    greatest: float,
    decrease: float = 1e-4,
    curvature: float = 0.9,
    tolerance: float = 1e-9,
    limit: int = 25,
) -> tuple[Point, int]:
    """A point whose loss is less than at the start by ``decrease`` of what its slope promises, and whose slope is at
    most ``curvature`` of the start's (Nocedal and Wright, Numerical Optimization, algorithms 3.5 and 3.6, with the
    safeguards of Schmidt's minFunc). ``at`` evaluates a length; ``greatest`` is the greatest element of the direction.
    Returns the point, and how many lengths were evaluated; after ``limit`` of them, the best point so far.
    """

    def is_too_high(point: Point) -> bool:
        return not point.loss <= start.loss + decrease * point.length * start.slope

    def is_flat(point: Point) -> bool:
        return abs(point.slope) <= -curvature * start.slope

    # Lengths grow until two points enclose a minimum.
    before, point = start, at(length)
    evaluations, tries = 1, 0
    enclosing: tuple[Point, Point] | None = None
    while tries < limit:
        if is_too_high(point) or (tries > 1 and point.loss >= before.loss):
            enclosing = (before, point)
            break
        if is_flat(point):
            return point, evaluations
        if point.slope >= 0.0:
            enclosing = (before, point)
            break
        bounds = (point.length + 0.01 * (point.length - before.length), point.length * 10.0)
        before, point = point, at(_cubic_minimum(before, point, bounds))
        evaluations, tries = evaluations + 1, tries + 1
    if enclosing is None:
        enclosing = (start, point)
    low, high = enclosing if enclosing[0].loss <= enclosing[1].loss else enclosing[::-1]
    has_stalled = False
    while tries < limit and abs(high.length - low.length) * greatest >= tolerance:
        left, right = min(low.length, high.length), max(low.length, high.length)
        length, margin = _cubic_minimum(low, high), 0.1 * (right - left)
        # Near an end of the interval there is too little progress: the second time, or outside, keep a distance.
        if min(right - length, length - left) < margin:
            if has_stalled or length >= right or length <= left:
                length = right - margin if abs(length - right) < abs(length - left) else left + margin
                has_stalled = False
            else:
                has_stalled = True
        else:
            has_stalled = False
        point = at(length)
        evaluations, tries = evaluations + 1, tries + 1
        if is_too_high(point) or point.loss >= low.loss:
            high = point
            if high.loss < low.loss:
                low, high = high, low
        else:
            if is_flat(point):
                return point, evaluations
            if point.slope * (high.length - low.length) >= 0.0:
                high = low
            low = point
    return low, evaluations
