"""The functions of the engine's tables. Made by make_stubs.py: do not edit."""

from ._operands import _binary, _unary

__all__ = [
    "abs",
    "reciprocal",
    "sqrt",
    "rsqrt",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "sinc",
    "lgamma",
    "digamma",
    "floor",
    "ceil",
    "trunc",
    "isnan",
    "isinf",
    "maximum",
    "minimum",
    "atan2",
]

abs = _unary("abs", "The absolute value. The least signed integer stays as it is.")
reciprocal = _unary("reciprocal", "``1 / x``; infinite where x is 0.")
sqrt = _unary("sqrt", "The square root; NaN below 0.")
rsqrt = _unary("rsqrt", "``1 / sqrt(x)``; infinite where x is 0, NaN below.")
exp = _unary("exp", "e to the power x.")
exp2 = _unary("exp2", "2 to the power x.")
expm1 = _unary("expm1", "``exp(x) - 1``, accurate near 0.")
log = _unary("log", "The natural logarithm; -infinity where x is 0, NaN below.")
log2 = _unary("log2", "The logarithm to base 2.")
log1p = _unary("log1p", "``log(1 + x)``, accurate near 0.")
sin = _unary("sin", "The sine of radians.")
cos = _unary("cos", "The cosine of radians.")
tan = _unary("tan", "The tangent of radians.")
asin = _unary("asin", "The arc sine in radians; NaN outside -1 to 1.")
acos = _unary("acos", "The arc cosine in radians; NaN outside -1 to 1.")
atan = _unary("atan", "The arc tangent in radians.")
sinh = _unary("sinh", "The hyperbolic sine.")
cosh = _unary("cosh", "The hyperbolic cosine.")
tanh = _unary("tanh", "The hyperbolic tangent.")
asinh = _unary("asinh", "The inverse hyperbolic sine.")
acosh = _unary("acosh", "The inverse hyperbolic cosine; NaN below 1.")
atanh = _unary("atanh", "The inverse hyperbolic tangent; infinite at -1 and 1, NaN outside.")
erf = _unary("erf", "The error function, ``2 / sqrt(pi)`` times the integral of ``exp(-t^2)`` from 0 to x.")
sinc = _unary("sinc", "``sin(pi x) / (pi x)``; 1 where x is 0.")
lgamma = _unary("lgamma", "The logarithm of the absolute value of the gamma function; infinite at 0, -1, -2 and so on.")
digamma = _unary("digamma", "The derivative of ``lgamma``: minus infinity at 0, NaN at -1, -2 and so on.")
floor = _unary("floor", "The greatest whole number not above x.")
ceil = _unary("ceil", "The least whole number not below x.")
trunc = _unary("trunc", "x without its fraction.")
isnan = _unary("isnan", "True (``bool``) where the element is NaN; false everywhere for integers and ``bool``.")
isinf = _unary("isinf", "True (``bool``) where the element is infinite; false everywhere for integers and ``bool``.")
maximum = _binary("maximum", "maximum", "The greater of each pair; NaN if either is NaN.")
minimum = _binary("minimum", "minimum", "The lesser of each pair; NaN if either is NaN.")
atan2 = _binary("atan2", "atan2", "The angle in radians of the point (other, input), from -pi to pi. Integers give ``float32``.")
