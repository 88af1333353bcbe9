"""Writes definitions.txt: functions of one and two floats, correctly rounded to float64 by mpmath.

Run it with a Python that has mpmath: `python make_definitions.py`. A line is a function's name, or one point: the bits
of the operands and of the result in hexadecimal, without the zeros at the end. Every result is computed with 800 and
with 1600 digits, which must round to the same float64; 800 digits keep x^3 beside a subnormal x. Results at infinities,
at zeros and outside the domain are those of C's Annex F, of IEEE 754 for `rsqrt`, and of the Python array API standard
for `floor_divide` and `remainder`.
"""

import math
import pathlib
import random
import struct
import sys
from fractions import Fraction

import mpmath
from mpmath import mp, mpf

INF, NAN, PI = math.inf, math.nan, math.pi
LARGEST, NORMAL, LEAST = sys.float_info.max, sys.float_info.min, 5e-324


def bits(x):
    """In hexadecimal, from the sign on, without zeros at the end."""
    digits = "7ff8" if math.isnan(x) else struct.pack(">d", x).hex()
    return digits.rstrip("0") or "0"


def single(x):
    """The nearest float32 within its range."""
    return struct.unpack("f", struct.pack("f", x))[0]


def rounded(value):
    """A finite mpf as the nearest float64, halves to even."""
    sign, mantissa, exponent, size = value._mpf_
    if size + exponent > 1100:
        magnitude = INF
    elif size + exponent < -1100:
        magnitude = 0.0
    else:
        try:
            # Python rounds quotients of integers, and integers, correctly.
            magnitude = float(mantissa << exponent) if exponent >= 0 else mantissa / (1 << -exponent)
        except OverflowError:
            magnitude = INF
    return -magnitude if sign else magnitude


def correctly(function, *operands):
    """The function at finite operands inside its domain."""
    results = []
    for digits in (800, 1600):
        mp.dps = digits
        results.append(rounded(mpf(function(*map(mpf, operands)))))
    assert results[0] == results[1], (function, operands)
    return results[0]


def nearest(exact):
    """A rational number as the nearest float64."""
    try:
        return float(exact)
    except OverflowError:
        return INF if exact > 0 else -INF


def one(function, domain=lambda x: True, limits=(), keeps_zero=False):
    """A function of one element: `limits` has pairs of an operand and the result there, zeros and infinities among them."""
    limits = {bits(x): result for x, result in limits}

    def compute(x):
        if bits(x) in limits:
            return limits[bits(x)]
        if keeps_zero and x == 0.0:
            return x
        if not math.isfinite(x) or not domain(x):
            return NAN
        result = correctly(function, x)
        # A result that is too small for float64 keeps the operand's sign, too.
        return math.copysign(result, x) if keeps_zero and result == 0.0 else result

    return compute


def odd(function, at_infinity, domain=lambda x: True):
    """A function with f(-x) = -f(x) and f(0) = 0, also for the signs of zeros."""
    return one(function, domain, [(INF, at_infinity), (-INF, -at_infinity)], keeps_zero=True)


def even(function, at_infinity):
    return one(function, limits=[(INF, at_infinity), (-INF, at_infinity)])


def whole(function):
    """A function that rounds to whole numbers and keeps the sign of its operand in a zero."""

    def compute(x):
        if not math.isfinite(x) or x == 0.0:
            return x
        result = float(function(Fraction(x)))
        return math.copysign(result, x) if result == 0.0 else result

    return compute


def power(x, y):
    """C's `pow` (Annex F)."""
    if x == 1.0 or y == 0.0:
        return 1.0
    if math.isnan(x) or math.isnan(y):
        return NAN
    if math.isinf(y):
        if x == -1.0:
            return 1.0
        return INF if (abs(x) > 1.0) == (y > 0.0) else 0.0
    is_odd = y == math.floor(y) and math.fmod(y, 2.0) != 0.0
    sign = -1.0 if is_odd and math.copysign(1.0, x) < 0.0 else 1.0
    if x == 0.0:
        return math.copysign(0.0 if y > 0.0 else INF, sign)
    if math.isinf(x):
        return math.copysign(INF if y > 0.0 else 0.0, sign)
    if x < 0.0 and y != math.floor(y):
        return NAN
    if y == math.floor(y) and abs(y) <= 400.0:
        # Exactly: 10 to the power 23 lies halfway between two float64.
        return math.copysign(nearest(Fraction(abs(x)) ** int(y)), sign)
    return math.copysign(correctly(lambda a, b: mp.exp(b * mp.log(a)), abs(x), y), sign)


def atan2(y, x):
    """C's `atan2` (Annex F)."""
    if math.isnan(x) or math.isnan(y):
        return NAN
    if math.isinf(y):
        angle = correctly(lambda: mp.pi / 4 if x == INF else 3 * mp.pi / 4 if x == -INF else mp.pi / 2)
    elif y == 0.0 or math.isinf(x):
        angle = 0.0 if math.copysign(1.0, x) > 0.0 else correctly(lambda: mp.pi)
    else:
        angle = abs(correctly(mp.atan2, y, x))
    return math.copysign(angle, y)


def floor_divide(a, b):
    """The floor of the exact quotient; with an infinity, or of a zero, the quotient itself."""
    if math.isnan(a) or math.isnan(b) or (a == 0.0 and b == 0.0) or (math.isinf(a) and math.isinf(b)):
        return NAN
    sign = math.copysign(1.0, a) * math.copysign(1.0, b)
    if math.isinf(a) or b == 0.0:
        return math.copysign(INF, sign)
    if math.isinf(b) or a == 0.0:
        return math.copysign(0.0, sign)
    return nearest(math.floor(Fraction(a) / Fraction(b)))


def remainder(a, b):
    """a less the multiple of b below: with the sign of b, also in a zero."""
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0.0:
        return NAN
    if a == 0.0:
        return math.copysign(0.0, b)
    if math.isinf(b):
        return a if (a < 0.0) == (b < 0.0) else b
    exact = Fraction(a) - Fraction(b) * math.floor(Fraction(a) / Fraction(b))
    return math.copysign(nearest(exact), b)


def log_gamma(x):
    """The logarithm of the gamma function's magnitude."""
    if x > 0:
        return mp.loggamma(x)
    return mp.log(mp.pi / abs(mp.sinpi(x))) - mp.loggamma(1 - x)


def with_poles(function, value, limits):
    """A function with this value at 0, -1, -2 and so on, where `limits` does not say otherwise."""
    compute = one(function, limits=limits)
    given = {bits(x) for x, _ in limits}
    return lambda x: value if bits(x) not in given and math.isfinite(x) and x <= 0 and x == math.floor(x) else compute(x)


UNARY = {
    "neg": lambda x: -x,
    "abs": abs,
    "sign": lambda x: x if math.isnan(x) else float((x > 0) - (x < 0)),
    "reciprocal": one(lambda x: 1 / x, limits=[(0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, -0.0)]),
    "sqrt": one(mp.sqrt, lambda x: x >= 0, [(INF, INF)], keeps_zero=True),
    "rsqrt": one(lambda x: 1 / mp.sqrt(x), lambda x: x > 0, [(0.0, INF), (-0.0, -INF), (INF, 0.0)]),
    "exp": one(mp.exp, limits=[(INF, INF), (-INF, 0.0)]),
    "exp2": one(lambda x: mpf(2) ** x, limits=[(INF, INF), (-INF, 0.0)]),
    "expm1": one(mp.expm1, limits=[(INF, INF), (-INF, -1.0)], keeps_zero=True),
    "log": one(mp.log, lambda x: x > 0, [(0.0, -INF), (-0.0, -INF), (INF, INF)]),
    "log2": one(lambda x: mp.log(x, 2), lambda x: x > 0, [(0.0, -INF), (-0.0, -INF), (INF, INF)]),
    "log1p": one(mp.log1p, lambda x: x > -1, [(-1.0, -INF), (INF, INF)], keeps_zero=True),
    "sin": odd(mp.sin, NAN),
    "cos": even(mp.cos, NAN),
    "tan": odd(mp.tan, NAN),
    "asin": odd(mp.asin, NAN, lambda x: abs(x) <= 1),
    "acos": one(mp.acos, lambda x: abs(x) <= 1),
    "atan": odd(mp.atan, correctly(lambda: mp.pi / 2)),
    "sinh": odd(mp.sinh, INF),
    "cosh": even(mp.cosh, INF),
    "tanh": odd(mp.tanh, 1.0),
    "asinh": odd(mp.asinh, INF),
    "acosh": one(mp.acosh, lambda x: x >= 1, [(INF, INF)]),
    "atanh": one(mp.atanh, lambda x: abs(x) < 1, [(1.0, INF), (-1.0, -INF)], keeps_zero=True),
    "erf": odd(mp.erf, 1.0),
    # NaN at infinities, as NumPy and PyTorch have it.
    "sinc": even(mp.sincpi, NAN),
    "lgamma": with_poles(log_gamma, INF, [(INF, INF), (-INF, INF)]),
    "digamma": with_poles(mp.digamma, NAN, [(0.0, -INF), (-0.0, INF), (INF, INF)]),
    "floor": whole(math.floor),
    "ceil": whole(math.ceil),
    "trunc": whole(math.trunc),
    "round": whole(round),
    "isnan": lambda x: float(math.isnan(x)),
    "isinf": lambda x: float(math.isinf(x)),
}
BINARY = {"floor_divide": floor_divide, "remainder": remainder, "pow": power, "atan2": atan2}


def around(*centres, steps=(1,)):
    """The numbers, and for each of `steps` the two that are so many float64 away."""
    points = []
    for x in centres:
        (place,) = struct.unpack(">q", struct.pack(">d", x))
        points += [struct.unpack(">d", struct.pack(">q", place + n))[0] for s in steps for n in (-s, s)] + [x]
    return points


def signed(points):
    return [s * x for x in points for s in (1.0, -1.0)]


# Every function is computed here: the ends of float16, bfloat16, float32 and float64, and numbers of every size.
EVERYWHERE = signed([
    0.0, LEAST, NORMAL, math.nextafter(NORMAL, 0.0), 3e-311, 1e-200, 2.0**-149, 2.0**-126, 1e-40, 1e-20, 2.0**-53,
    2.0**-27, 2.0**-24, 2.0**-14, 1e-5, 0.01, 0.125, 0.3, 0.5, 0.75, 0.999, math.nextafter(1.0, 0.0), 1.0,
    math.nextafter(1.0, 2.0), 1.0078125, 1.5, 2.0, 2.5, 3.0, 4.0, 5.75, 8.0, 11.3, 17.5, 23.1, 40.0, 88.5, 200.0, 350.3,
    1000.0, 65504.0, 1e6 + 0.5, 2.0**31, 2.0**52 + 0.5, 2.0**53, 1e22, single(3.3895314e38), single(3.4028235e38),
    1e100, 1e154, 2e154, 1e300, LARGEST, INF,
]) + [NAN]
FEW = signed([0.0, LEAST, 0.3, 0.5, 1.0, 1.5, 2.5, 65504.0, 2.0**52 + 0.5, LARGEST, INF]) + [NAN]
ROUNDINGS = signed(around(0.5, 1.0, 1.5, 2.0, 2.5, 3.5, 2.0**51 + 0.5, 2.0**52 - 0.5, 2.0**52 + 1, 2.0**53)
                   + [0.0, LEAST, 0.3, 7.75, 1023.5, 65503.5, 1e22, 1e300, LARGEST, INF]) + [NAN]
# Multiples of pi / 2, some of which float64 has to an unusual number of digits.
QUADRANTS = signed([single(PI / 2), single(PI), 6381956970095103.0 * 2.0**797, 6411027962775774.0 * 2.0**-48,
                    39.2699081698724, 1e9 + 0.25, 1e16]
                   + [n * (PI / 2) for n in (1, 2, 3, 4, 7, 11, 1001, 636619, 636620, 10**7, 10**12 + 1)])

# Where a function has a zero, a branch point, an end of its domain or range, or where its definition changes.
SPECIAL = {
    "neg": [], "abs": [], "sign": [], "isnan": [], "isinf": [],
    "floor": [], "ceil": [], "trunc": [], "round": [],
    "reciprocal": around(2.0**-1024, 1 / LARGEST, 2.0**1022) + [3.0, 7.0, -0.1],
    "sqrt": around(2.0, 4.0, 1e-310) + [3.0, 10.0],
    "rsqrt": around(2.0, 4.0, 1e-310) + [3.0, 10.0],
    "exp": around(709.782712893384, -708.3964185322641, -744.4400719213812, -745.1332191019411, -745.1332191019412)
    + [single(88.72283), single(88.72284), single(-87.33655), single(-103.97207), single(-103.97208), -710.0, 11.09],
    "exp2": around(1024.0, -1022.0, -1074.0, -1075.0, 0.5) + [127.99999, 128.0, -126.5, -149.0, -150.0, 1023.7, -1060.3],
    "expm1": around(709.782712893384, -37.42994775023705, -36.7368005696771, 0.6931471805599453)
    + [single(88.72283), single(88.72284), 1e-8, -1e-8, -0.2876820724517809],
    "log": around(0.7071067811865476, 1.4142135623730951, math.e, steps=(1, 1000)) + around(1.0, steps=(2, 9, 10**6, 10**12)),
    "log2": around(0.7071067811865476, 1.4142135623730951, steps=(1, 1000)) + around(1.0, steps=(2, 9, 10**6, 10**12))
    + [2.0**-1074, 2.0**-1030, 2.0**60, 2.0**1023, 1024.5],
    "log1p": around(-1.0, steps=(1, 2, 10**6)) + around(-0.2928932188134524, 0.4142135623730950) + [-0.9, 1e-8, -1e-8],
    "sin": QUADRANTS, "cos": QUADRANTS, "tan": QUADRANTS + [PI / 4, -PI / 4],
    "asin": signed(around(1.0, 0.5, 0.7071067811865476, steps=(1, 1000, 10**9)) + [1e-8]),
    "acos": signed(around(1.0, 0.5, 0.7071067811865476, steps=(1, 1000, 10**9)) + [1e-8]),
    "atan": signed(around(0.4375, 0.6875, 1.1875, 2.4375) + [1e-8, 1e16, 1e17]),
    "sinh": signed(around(710.4758600739439, 709.782712893384, 22.0) + [single(89.415985), single(89.41599), 1e-8]),
    "cosh": signed(around(710.4758600739439, 709.782712893384, 22.0) + [single(89.415985), single(89.41599), 1e-8]),
    "tanh": signed(around(19.061547465398498, 22.0, 0.5493061443340549) + [single(9.010913), 1e-8]),
    "asinh": signed(around(1e100, 1.3407807929942596e154) + [1e-8, 6.7e7, 1e8, 2.0**28]),
    "acosh": around(1.0, steps=(2, 9, 10**6, 10**9, 10**12)) + around(2.0, 1e100, 1.3407807929942596e154)
    + [single(1.0000001), 6.7e7, 1e8, 2.0**28],
    "atanh": signed(around(1.0, steps=(2, 10**6)) + around(0.5) + [1e-8, 0.6180339887498949]),
    "erf": signed(around(0.84375, 2.0, 5.921587195794507, 6.0) + [1e-8, 1.25, 2.857142857142857, 3.83]),
    "sinc": signed(around(1.0, 2.0, 3.0, 100.0, 1000.0, steps=(1, 10**6, 10**11)) + [1e-8, 4503599627370495.5, 1.4303]),
    "lgamma": around(1.0, 2.0, steps=(1, 10**6, 10**11)) + around(3.0, 8.0, 0.5, 2.5563481638716906e305)
    + [single(4.085e36), -2.457024738220801, -10.5, -150.3, -171.5, -1e-8, 170.6],
    "digamma": around(1.0, 2.0, 3.0, 8.0, 0.5) + around(1.4616321449683622, steps=(1, 10**6, 10**11))
    + [-0.504083008264455, -10.5, -150.3, -1e-8, 170.6],
}
# Where a function's graph is drawn: random numbers of these ranges are added.
RANGES = {
    "reciprocal": (-3, 3), "sqrt": (0, 4), "rsqrt": (0, 4), "exp": (-20, 20), "exp2": (-20, 20), "expm1": (-3, 3),
    "log": (0, 4), "log2": (0, 4), "log1p": (-1, 3), "sin": (-10, 10), "cos": (-10, 10), "tan": (-10, 10),
    "asin": (-1, 1), "acos": (-1, 1), "atan": (-5, 5), "sinh": (-5, 5), "cosh": (-5, 5), "tanh": (-3, 3),
    "asinh": (-5, 5), "acosh": (1, 5), "atanh": (-1, 1), "erf": (-4, 4), "sinc": (-6, 6), "lgamma": (-6, 12),
    "digamma": (-6, 12),
}
TWO = {
    "floor_divide": (
        [0.0, -0.0, 1.0, -1.0, 3.0, -7.0, 0.5, 1e-320, -1e-320, 1e308, -1e308, INF, -INF, NAN],
        [(1.0, 0.1), (-1.0, 0.1), (0.3, 0.1), (0.6, 0.2), (6.0, 0.1), (1e17, 3.0), (-1e17, 3.0), (LEAST, -3.0), (9.0, 3.0),
         (7.5, -2.5), (2.0**53, 1.0000000000000002), (2.0**53 - 1, -2.0), (1e300, 1e-10), (65504.0, 3.0), (1e22, 0.7)],
        (-30, 30),
    ),
    "remainder": (
        [0.0, -0.0, 1.0, -1.0, 3.0, -7.0, 0.5, 1e-320, -1e-320, 1e308, -1e308, INF, -INF, NAN],
        [(1.0, 0.1), (-1.0, 0.1), (0.3, 0.1), (0.6, 0.2), (6.0, 0.1), (1e17, 3.0), (-1e17, 3.0), (LEAST, -3.0), (9.0, 3.0),
         (7.5, -2.5), (-1e-20, 1.0), (1e-20, -1.0), (LARGEST, LEAST), (-LARGEST, 3.0), (1e300, 0.7), (65504.0, 3.0)],
        (-30, 30),
    ),
    "pow": (
        [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, -1.5, 1e300, -1e300, LEAST, INF, -INF, NAN],
        [(2.0, 1023.9999999999999), (2.0, -1074.0), (2.0, -1075.0), (2.0, -1074.5), (-2.0, -1074.0), (10.0, 308.25),
         (10.0, -323.3), (10.0, 22.0), (-10.0, 23.0), (1.0000000000000002, 3e18), (0.9999999999999999, 6e18),
         (1.0000000000000002, 1e10), (0.9999999999999999, -4e18), (1.5, 1700.0), (1.5, 1750.0), (-0.7, 2001.0),
         (-0.7, 2.0**53), (7.0, 1 / 3), (1e-310, 0.3), (1e-310, -0.99), (LARGEST, 0.999), (LARGEST, -1.02), (LARGEST, 1.0),
         (4.0, 0.5), (1.1, 1e-20), (LEAST, 1e-300), (300.5, 2.0), (-1.25, 4.0), (single(1.7), 166.0), (single(0.3), 84.0)],
        (0, 5),
    ),
    "atan2": (
        [0.0, -0.0, 1.0, -1.0, 3.0, -0.5, LEAST, -LEAST, 1e-300, -1e300, LARGEST, INF, -INF, NAN],
        [(1.0, 1.0000000000000002), (1e-8, -1.0), (-1e-17, -1.0), (1.0, 1e-17), (1.0, -1e-17), (1e-310, 3e-310), (-1e-310, 1.0),
         (3e-308, 2.0), (1e-200, 1e200), (7.0, 16.0), (11.0, 16.0), (-19.0, 16.0), (39.0, -16.0)],
        (-3, 3),
    ),
}


def table():
    random.seed(20260101)
    lines = []
    for name, function in UNARY.items():
        points = {"floor": ROUNDINGS, "ceil": ROUNDINGS, "trunc": ROUNDINGS, "round": ROUNDINGS}.get(name, EVERYWHERE)
        points = FEW if name in ("neg", "abs", "sign", "isnan", "isinf") else points + SPECIAL[name]
        drawn = [random.uniform(*RANGES[name]) for _ in range(24)] if name in RANGES else []
        # Every third as a float32, for which the test has more to say.
        points = points + [single(x) if i % 3 == 0 else x for i, x in enumerate(drawn)]
        lines.append(name)
        for x in {bits(x): x for x in points}.values():
            lines.append(f"{bits(x)} {bits(function(x))}")
    for name, function in BINARY.items():
        numbers, pairs, limits = TWO[name]
        pairs = [(a, b) for a in numbers for b in numbers] + pairs
        drawn = [(random.uniform(*limits), random.uniform(-9, 9)) for _ in range(60)]
        pairs += [(single(a), single(b)) if i % 3 == 0 else (a, b) for i, (a, b) in enumerate(drawn)]
        lines.append(name)
        for a, b in {(bits(a), bits(b)): (a, b) for a, b in pairs}.values():
            lines.append(f"{bits(a)} {bits(b)} {bits(function(a, b))}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    pathlib.Path(__file__).with_name("definitions.txt").write_text(table())
