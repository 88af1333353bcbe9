"""Special functions, with the names of ``torch.special``.

All are differentiable, also twice, on every device. They are computed in the dtype of the input; 16-bit floats in
``float32``. Errors are a few units in the last place, except where a docstring says otherwise.

>>> import neurenix as nx
>>> nx.special.expit(nx.tensor(0.0)).item()
0.5
"""

from __future__ import annotations

from typing import Any

from ._arguments import guard as _guard
from ._bessel import i0e, i1, i1e
from ._derivative import elementwise as _elementwise
from ._derivative import select as _select
from ._elementwise import sigmoid as expit
from ._engine import Tensor, where as _where
from ._gamma import mvlgamma as multigammaln, zeta
from ._gaussian import erfcx, log_ndtr, ndtr, ndtri
from ._incomplete import igamma as gammainc, igammac as gammaincc
from ._special import _tensors, erfc, erfinv, i0, logit, polygamma, xlogy
from ._table import digamma, erf, exp2, expm1, lgamma as gammaln, log1p, sinc

psi, modified_bessel_i0, modified_bessel_i1 = digamma, i0, i1
"""PyTorch's other names."""

__all__ = [
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "sinc",
    "softmax",
    "xlog1py",
    "xlogy",
    "zeta",
]


@_elementwise(lambda x: -x.log() - 1)
def entr(input: Tensor) -> Tensor:
    """``-x * log(x)``; 0 at 0, minus infinity below.

    >>> import neurenix as nx
    >>> nx.special.entr(nx.tensor([0.0, 1.0, -1.0])).tolist()
    [0.0, 0.0, -inf]
    """
    return _select(-xlogy(input, input) + 0.0, [(input < 0, -float("inf"))])


def xlog1py(input: Any, other: Any) -> Tensor:
    """``x * log1p(y)``; 0 where ``x`` is 0 and ``y`` is not NaN."""
    x, y = _tensors("xlog1py", input, other)
    unbounded = (x == 0) & ((y <= -1) | (y == float("inf")))
    return x * _where(unbounded, 0.0, y).log1p()


def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest whole number, or multiple of ``10 ** -decimals``; halves to even."""
    return input.round(decimals)


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """``exp(x)`` divided by its sum along ``dim``."""
    return (input if dtype is None else input.to(dtype)).softmax(dim)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of ``softmax``."""
    return (input if dtype is None else input.to(dtype)).log_softmax(dim)


def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of ``exp(x)`` along ``dim``."""
    return input.logsumexp(dim, keepdim)


_guard(globals())
