"""The engine's functions of matrices, which take complex matrices too. They compute when a value is read, and then a
singular matrix is a ``RuntimeError``; or within the call, as PyTorch does, after ``raise_within_calls``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from . import _engine
from ._complex import with_complex
from ._engine import Tensor


class LinAlgError(RuntimeError):
    """A matrix is singular, or not positive definite, or an iteration did not converge."""


LinAlgError.__module__ = "neurenix.linalg"

_CAUSES = ("a matrix is singular", "a matrix is not positive definite", "the rotations did not converge")

_within_calls = False


def raise_within_calls() -> None:
    """From now on matrices without a result are a ``LinAlgError`` within the call."""
    global _within_calls
    _within_calls = True


def _of(name: str) -> Callable[..., Any]:
    either = with_complex(name, getattr(_engine, name))

    @functools.wraps(either)
    def function(*args: Any) -> Any:
        result = either(*args)
        # A function that is recorded has no values yet.
        if _within_calls and not _engine.is_recording():
            try:
                _engine.evaluate([result] if isinstance(result, Tensor) else list(result))
            except RuntimeError as error:
                if any(cause in str(error) for cause in _CAUSES):
                    raise LinAlgError(str(error)) from None
                raise
        return result

    return function


inv, solve, cholesky, eigh, svd, pinv, matrix_rank = map(
    _of, ("inv", "solve", "cholesky", "eigh", "svd", "pinv", "matrix_rank")
)
# These have a result for every matrix.
det, slogdet, qr = (with_complex(name, getattr(_engine, name)) for name in ("det", "slogdet", "qr"))
