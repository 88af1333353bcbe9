"""Writes neurenix/_coefficients.py and crates/phynexus/src/op/gamma/coefficients.rs: polynomials for the special functions,
one for each precision.

Each is a Chebyshev interpolation, cut where its terms are below the precision and expanded in powers, computed with 40
digits. Run it with an interpreter that has mpmath: ``python make_coefficients.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath as mp

mp.mp.dps = 40
NODES = 64
CUT = {"float32": mp.mpf(2) ** -28, "float64": mp.mpf(2) ** -57}


def chebyshev(function: Callable[[Any], Any]) -> list[Any]:
    """The Chebyshev coefficients of a function on [-1, 1]."""
    angles = [mp.pi * (k + mp.mpf(1) / 2) / NODES for k in range(NODES)]
    values = [function(mp.cos(angle)) for angle in angles]
    series = [2 * mp.fsum(v * mp.cos(j * a) for v, a in zip(values, angles)) / NODES for j in range(NODES)]
    return [series[0] / 2, *series[1:]]


def powers(series: list[Any]) -> list[Any]:
    """A Chebyshev series as a polynomial, from the highest power down."""
    before, current = [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]
    total = [mp.mpf(0)] * len(series)
    for coefficient in series:
        for power, value in enumerate(before):
            total[power] += coefficient * value
        following = [mp.mpf(0)] + [2 * value for value in current]
        for power, value in enumerate(before):
            following[power] -= value
        before, current = current, following
    return total[::-1]


def cut(series: list[Any], below: Any) -> list[Any]:
    largest = max(abs(value) for value in series)
    kept = max(place for place, value in enumerate(series) if abs(value) > below * largest)
    return series[: kept + 1]


def lgamma_near(t: Any) -> Any:
    x = t + 2
    return mp.loggamma(x) / ((x - 1) * (x - 2))


def lgamma_middle(t: Any) -> Any:
    x = mp.mpf("5.5") + t * mp.mpf("2.5")
    return mp.loggamma(x) / (x - 2)


with mp.workdps(80):
    ROOT = mp.findroot(mp.digamma, 1.46)


def digamma_near(t: Any) -> Any:
    return mp.digamma(t + 2) / (t + 2 - ROOT)


def digamma_middle(t: Any) -> Any:
    return mp.digamma(mp.mpf("5.5") + t * mp.mpf("2.5"))


def bessel_far(order: int) -> Callable[[Any], Any]:
    def scaled(t: Any) -> Any:
        x = 16 / (t + 1)
        return mp.sqrt(x) * mp.exp(-x) * mp.besseli(order, x)

    return scaled


def erfcx(t: Any) -> Any:
    x = mp.mpf("3.75") * (1 + t) / (1 - t)
    # exp(x * x) has as many digits as its argument leaves.
    with mp.workdps(60):
        small = mp.exp(x * x) * mp.erfc(x) if x < 100 else mp.mpf(0)
    if x >= 100:
        small = mp.fsum((-1) ** k * mp.fac2(2 * k - 1) / (2 * x * x) ** k for k in range(12)) / (x * mp.sqrt(mp.pi))
    return (1 + 2 * x) * small


ENGINE = {
    "LGAMMA_NEAR": (lgamma_near, "`lgamma(x) / ((x - 1) (x - 2))` for x from 1 to 3, in `x - 2`"),
    "LGAMMA_MIDDLE": (lgamma_middle, "`lgamma(x) / (x - 2)` for x from 3 to 8, in `(x - 5.5) / 2.5`"),
    "DIGAMMA_NEAR": (digamma_near, "`digamma(x) / (x - root)` for x from 1 to 3, in `x - 2`"),
    "DIGAMMA_MIDDLE": (digamma_middle, "`digamma(x)` for x from 3 to 8, in `(x - 5.5) / 2.5`"),
}
TABLES = {
    "I0_FAR": (bessel_far(0), "sqrt(x) exp(-x) i0(x) for x from 8, in 16 / x - 1."),
    "I1_FAR": (bessel_far(1), "sqrt(x) exp(-x) i1(x) for x from 8, in 16 / x - 1."),
    "ERFCX": (erfcx, "(1 + 2 x) erfcx(x) for x from 0, in (x - 3.75) / (x + 3.75)."),
}


def python() -> str:
    lines = ['"""Polynomials from the highest power down. Made by make_coefficients.py: do not edit."""', ""]
    for name, (function, meaning) in TABLES.items():
        series = chebyshev(function)
        lines += [f"# {meaning}", f"{name} = {{"]
        for dtype, below in CUT.items():
            terms = [repr(float(value)) for value in powers(cut(series, below))]
            lines += [f'    "{dtype}": (', *(f"        {', '.join(terms[at : at + 4])}," for at in range(0, len(terms), 4)), "    ),"]
        lines += ["}", ""]
    return "\n".join(lines[:-1]) + "\n"


def rust() -> str:
    lines = ["//! Polynomials from the lowest power up. Made by `python/make_coefficients.py`: do not edit.", ""]
    # The sum has the digits that cancel near the root.
    lines += ["/// Where digamma is 0: a sum of numbers of 20, 24, 24 and 53 bits."]
    parts, rest = [], ROOT
    for size in (20, 24, 24, 53):
        unit = mp.mpf(2) ** (mp.floor(mp.log(rest, 2)) + 1 - size)
        parts.append(mp.floor(rest / unit) * unit)
        rest -= parts[-1]
    lines += [f"pub const DIGAMMA_ROOT: [f64; 4] = [{', '.join(repr(float(part)) for part in parts)}];"]
    for name, (function, meaning) in ENGINE.items():
        series = chebyshev(function)
        for dtype, below in CUT.items():
            terms = [repr(float(value)) for value in powers(cut(series, below))][::-1]
            lines += ["", f"/// {meaning}, to the precision of `{dtype}`."]
            lines += [f"pub const {name}_{dtype[-2:]}: [f64; {len(terms)}] = ["]
            lines += [*(f"    {term}," for term in terms), "];"]
    return "\n".join(lines) + "\n"


def main() -> None:
    here = Path(__file__).parent
    (here / "neurenix" / "_coefficients.py").write_text(python())
    (here.parent / "crates/phynexus/src/op/gamma/coefficients.rs").write_text(rust())


if __name__ == "__main__":
    main()
