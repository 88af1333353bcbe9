"""The factorisation of symmetric matrices that need not be positive definite: ``A = L D L.T`` with exchanges of rows,
by the pivoting of Bunch and Kaufman ("Some stable methods for calculating inertia and solving symmetric linear
systems", 1977), in LAPACK's layout. Gradients flow; the choice of pivots is constant.
"""

from __future__ import annotations

import builtins
import math

from . import _engine
from ._arguments import guard as _guard
from ._engine import Tensor, where
from ._linear_algebra import LinAlgError
from ._factorizations import _rows, solve_triangular
from ._results import LDLFactorExResult, LDLFactorResult

__all__ = ["ldl_factor", "ldl_factor_ex", "ldl_solve"]

_ALPHA = (1 + math.sqrt(17)) / 8


def _checked(name: str, x: Tensor, hermitian: bool) -> None:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"{name}: expected square matrices, got shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise TypeError(f"{name}: expected floats, got {x.dtype.name}")


def _at(x: Tensor, rows: Tensor) -> Tensor:
    """One row of each matrix: (..., N)."""
    return x.gather(-2, rows.unsqueeze(-1).broadcast_to((*x.shape[:-2], 1, x.shape[-1]))).squeeze(-2)


def _swapped(numbers: Tensor, one: Tensor, two: Tensor) -> Tensor:
    """The numbers with two of them exchanged."""
    return where(numbers == one, two, where(numbers == two, one, numbers))


def _pivot(x: Tensor, step: int, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The row (..., 1) that is exchanged in this step, and whether the pivot is a block of two rows."""
    size = x.detach().abs()
    here = numbers[step : step + 1].broadcast_to((*x.shape[:-2], 1))
    if step == x.shape[-1] - 1:
        return here, _engine.full_like(here, 0) != 0
    first = where(numbers > step, size.select(-1, step), 0)
    greatest, row = first.amax(-1, True), first.argmax(-1, True)
    own = size.select(-1, step).narrow(-1, step, 1)
    along = _at(size, row)
    beside = where((numbers >= step) & (numbers != row), along, 0).amax(-1, True)
    stays = (own >= _ALPHA * greatest) | (own * beside >= _ALPHA * greatest * greatest)
    is_single = stays | (along.gather(-1, row) >= _ALPHA * beside)
    return where(stays, here, row), ~is_single


def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> LDLFactorExResult:
    """Same as ``ldl_factor``, and ``info``: the number, from 1, of the first zero among the pivots, or 0."""
    _checked("ldl_factor", A, hermitian)
    count, batch = A.shape[-1], tuple(A.shape[:-2])
    numbers = _engine.arange(count, device=A.device)
    whole = A.tril() + A.tril(-1).mT
    packed = _engine.zeros(tuple(A.shape), dtype=A.dtype, device=A.device)
    none = _engine.zeros((*batch, 1), dtype="int64", device=A.device)
    pivots: list[Tensor] = []
    info, second, before = none, none != 0, none
    for step in range(count):
        row, is_block = _pivot(whole, step, numbers)
        # The second row of a block was eliminated with the first.
        row, is_block = where(second, before, row), is_block & ~second
        target = where(is_block, step + 1, step)
        order = _swapped(numbers.broadcast_to((*batch, count)), target, where(second, target, row))
        whole = _rows(_rows(whole, order).mT, order).mT
        column = whole.narrow(-1, step, 1)
        last = step == count - 1
        beside = column if last else whole.narrow(-1, step + 1, 1)
        below = (numbers > step).unsqueeze(-1)
        head = column.narrow(-2, step, 1)
        block = is_block.unsqueeze(-1)
        is_zero = (head == 0) & ~block
        info = where((info == 0) & is_zero.squeeze(-1) & ~second, step + 1, info)
        # One row: l = a / d, and the rest loses l d l.T.
        single = where(below, column / where(is_zero | block, 1, head), 0)
        rest = whole - single @ where(below, column, 0).mT
        stored = where(numbers.unsqueeze(-1) == step, head, where(is_zero, column * below, single))
        new = where(numbers == step, stored, 0)
        if not last:
            # Two rows: L = A D^-1 for their block D.
            inner = (numbers > step + 1).unsqueeze(-1)
            corner, edge, end = head, beside.narrow(-2, step, 1), beside.narrow(-2, step + 1, 1)
            divisor = where(block, corner * end - edge * edge, 1)
            left = where(inner, (column * end - beside * edge) / divisor, 0)
            right = where(inner, (beside * corner - column * edge) / divisor, 0)
            pair = whole - left @ where(inner, column, 0).mT - right @ where(inner, beside, 0).mT
            top, lower = (numbers == step).unsqueeze(-1), (numbers == step + 1).unsqueeze(-1)
            one = where(top, corner, where(lower, edge, left))
            two = where(lower, end, right)
            both = where(numbers == step, one, where(numbers == step + 1, two, 0))
            new, rest = where(block, both, new), where(block, pair, rest)
        skipped = second.unsqueeze(-1)
        packed = where(skipped, packed, packed + new)
        whole = where(skipped | is_zero, whole, rest)
        negative = is_block | second
        pivots.append(where(negative, -1 - row, row + 1))
        second, before = is_block, row
        if step % 8 == 7:
            # A graph of all steps would take longer to plan than to compute.
            _engine.evaluate([whole, packed, row])
    places = _engine.cat(pivots, -1) if pivots else _engine.zeros((*batch, 0), dtype="int64", device=A.device)
    if check_errors and builtins.bool((info != 0).any()):
        raise LinAlgError("ldl_factor_ex: a matrix is singular")
    return LDLFactorExResult(packed.tril(), places.to("int32"), info.reshape(batch).to("int32"))


def ldl_factor(A: Tensor, *, hermitian: bool = False) -> LDLFactorResult:
    """The factors of symmetric matrices (..., N, N), of which the lower triangle is read: ``LD`` holds the blocks of D,
    of one or two rows, and L below them. ``pivots`` (..., N) count from 1: with a positive number row ``i`` was
    exchanged with that row; two equal negative numbers are a block, whose second row was exchanged. ``hermitian`` makes
    no difference for real matrices; complex ones are not supported.

    >>> import neurenix as nx
    >>> LD, pivots = nx.linalg.ldl_factor(nx.Tensor([[4.0, 2.0], [2.0, 5.0]]))
    >>> LD.tolist(), pivots.tolist()
    ([[4.0, 0.0], [0.5, 4.0]], [1, 2])
    """
    found = ldl_factor_ex(A, hermitian=hermitian)
    if builtins.bool((found.info != 0).any()):
        raise LinAlgError("ldl_factor: a matrix is singular")
    return LDLFactorResult(found.LD, found.pivots)


def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """The solutions X (..., N, K) of ``A @ X = B``, from ``LD, pivots = ldl_factor(A)``.

    >>> import neurenix as nx
    >>> A = nx.Tensor([[0.0, 2.0], [2.0, 0.0]])
    >>> nx.linalg.ldl_solve(*nx.linalg.ldl_factor(A), nx.Tensor([[2.0], [4.0]])).tolist()
    [[2.0], [1.0]]
    """
    _checked("ldl_solve", LD, hermitian)
    if B.ndim < 2 or B.shape[-2] != LD.shape[-1]:
        raise ValueError(f"ldl_solve: expected B of shape (..., {LD.shape[-1]}, K), got {tuple(B.shape)}")
    batch = _engine.broadcast_shapes(tuple(LD.shape[:-2]), tuple(B.shape[:-2]))
    count = LD.shape[-1]
    if count == 0:
        return _engine.zeros((*batch, *B.shape[-2:]), dtype=B.dtype, device=B.device)
    LD, B = LD.broadcast_to((*batch, count, count)), B.broadcast_to((*batch, *B.shape[-2:]))
    pivots = pivots.to("int64").broadcast_to((*batch, count))
    numbers = _engine.arange(count, device=LD.device)
    # The blocks: a row with a negative pivot begins one if an even number of them is before it.
    is_block = pivots < 0
    begins = is_block & (is_block.to("int64").cumsum(-1) % 2 == 1)
    edge = where(begins, LD.diagonal(-1, -2, -1).pad((0, 1)), 0)
    unit = LD.tril(-1) - (edge.unsqueeze(-1) * (numbers.unsqueeze(-1) == numbers)).roll(1, -2)
    order = numbers.broadcast_to((*batch, count))
    for step in range(count):
        # A later exchange also moves the rows of L before it.
        place = pivots.narrow(-1, step, 1)
        target = where(begins.narrow(-1, step, 1), step + 1, step)
        other = where(is_block.narrow(-1, step, 1) & ~begins.narrow(-1, step, 1), target, place.abs() - 1)
        moved = _swapped(numbers.broadcast_to((*batch, count)), target, other)
        order = order.gather(-1, moved)
        unit = where(numbers < step, _rows(unit, moved), unit)
    found = solve_triangular(unit, _rows(B, order), upper=False, unitriangular=True)
    main = LD.diagonal(0, -2, -1)
    after = where(begins, main.roll(-1, -1), 1)
    divisor = where(begins, main * after - edge * edge, 1)
    next_rows, ending = found.roll(-1, -2), begins.roll(1, -1)
    first = (found * after.unsqueeze(-1) - next_rows * edge.unsqueeze(-1)) / divisor.unsqueeze(-1)
    second = (next_rows * main.unsqueeze(-1) - found * edge.unsqueeze(-1)) / divisor.unsqueeze(-1)
    alone = found / where(is_block, 1, main).unsqueeze(-1)
    found = where(begins.unsqueeze(-1), first, where(ending.unsqueeze(-1), second.roll(1, -2), alone))
    found = solve_triangular(unit.mT, found, upper=True, unitriangular=True)
    return _rows(found, order.argsort(-1))


_guard(globals())
