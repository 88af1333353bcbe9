"""Writes golden/special.json: special functions and their first two derivatives, by mpmath with 40 digits.

Run it with an interpreter that has mpmath: ``python tests/make_golden_special.py``. The tests do not need it.
"""

import json
import pathlib
import random
import struct

import mpmath as mp

mp.mp.dps = 40
random.seed(0)


def single(x):
    """The nearest float32, so that both precisions get the same numbers."""
    return struct.unpack("f", struct.pack("f", x))[0]


POSITIVE = [random.uniform(0.01, 12) for _ in range(24)] + [10 ** random.uniform(-6, 6) for _ in range(12)]
NEAR = [1 + 1e-4, 1 - 1e-4, 2 + 1e-4, 2 - 1e-4, 1.4616, 1.0, 2.0, 3.0, 8.0]
NEGATIVE = [-random.uniform(0.05, 20) for _ in range(16)]
REAL = [random.uniform(-9, 9) for _ in range(24)] + [-1e-3, 1e-3, 20.0, -20.0, 60.0]
UNIT = [random.random() for _ in range(16)] + [1e-6, 1e-20, 0.5001, 0.9999]
ROUND = [0.25, 1.0, 3.5, 30.0]


def entr(x):
    return -x * mp.log(x)


def log_ndtr(x):
    return mp.log1p(-mp.ncdf(-x)) if x > 0 else mp.log(mp.ncdf(x))


def ndtri(p):
    x = -mp.sqrt(2) * mp.erfinv(1 - 2 * p) if p > 1e-9 else mp.mpf(-9)
    for _ in range(12):
        x -= (mp.ncdf(x) - p) / mp.npdf(x)
    return x


FUNCTIONS = {
    "lgamma": (lambda x: mp.log(abs(mp.gamma(x))), POSITIVE + [x for x in NEAR if x not in (1.0, 2.0)] + NEGATIVE),
    "digamma": (mp.digamma, POSITIVE + NEAR + NEGATIVE),
    "polygamma1": (lambda x: mp.polygamma(1, x), POSITIVE + NEGATIVE),
    "polygamma2": (lambda x: mp.polygamma(2, x), POSITIVE + NEGATIVE),
    "polygamma5": (lambda x: mp.polygamma(5, x), [x for x in POSITIVE if 0.01 < x < 1000]),
    "zeta": (lambda x: mp.zeta(mp.mpf(2.5), x), [x for x in POSITIVE if x < 1e4]),
    "i0": (lambda x: mp.besseli(0, x), REAL),
    "i1": (lambda x: mp.besseli(1, x), REAL),
    "i0e": (lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), REAL),
    "i1e": (lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), REAL),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), [x for x in REAL if x > -9]),
    "ndtr": (mp.ncdf, [x for x in REAL if -10 < x < 10]),
    "log_ndtr": (log_ndtr, [x for x in REAL if x < 10]),
    "ndtri": (ndtri, UNIT),
    "logit": (lambda x: mp.log(x / (1 - x)), UNIT),
    "entr": (entr, POSITIVE),
    "xlog1py": (lambda x: x * mp.log1p(x), [x for x in REAL if x > -1]),
    **{
        f"gammainc{a}": (lambda x, a=a: mp.gammainc(a, 0, x, regularized=True), [a * s for s in (0.2, 0.6, 0.95, 1.05, 2.0, 3.0)])
        for a in ROUND
    },
    **{
        f"gammaincc{a}": (lambda x, a=a: mp.gammainc(a, x, regularized=True), [a * s for s in (0.6, 0.95, 1.05, 2.0, 3.0)])
        for a in ROUND[1:]
    },
}


def main():
    rows = []
    for name, (function, points) in FUNCTIONS.items():
        xs = [single(x) for x in points]
        values = [[float(mp.diff(function, mp.mpf(x), order) if order else function(mp.mpf(x))) for x in xs] for order in range(3)]
        rows.append({"name": name, "x": xs, "values": values})
    (pathlib.Path(__file__).parent / "golden" / "special.json").write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
