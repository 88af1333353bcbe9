"""Parameters that modules have for some time only."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .._engine import Tensor
from .module import Module

Loan = Sequence[tuple[Module, str, Tensor]]
"""Modules, and their parameters by name."""


class _Loans(threading.local):
    def __init__(self) -> None:
        self.now: tuple[Loan, ...] = ()


_LOANS = _Loans()


def loans() -> tuple[Loan, ...]:
    """What is lent in this thread now, the innermost last. A function that is called again later needs it again."""
    return _LOANS.now


@contextmanager
def lent(loan: Loan) -> Iterator[None]:
    """Gives modules parameters, as long as it lasts."""
    before = [(module, name, module._parameters[name]) for module, name, _ in loan]
    outside = _LOANS.now
    for module, name, value in loan:
        module._parameters[name] = value
    _LOANS.now = (*outside, loan)
    try:
        yield
    finally:
        _LOANS.now = outside
        for module, name, old in reversed(before):
            module._parameters[name] = old
