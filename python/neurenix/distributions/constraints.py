"""Regions in which parameters and samples lie, with the names of ``torch.distributions.constraints``.

>>> import neurenix as nx
>>> from neurenix.distributions import constraints
>>> constraints.positive.check(nx.tensor([-1.0, 2.0])).tolist()
[False, True]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import _engine, linalg
from .._engine import Tensor


class Constraint:
    """A region. ``event_dim`` is the number of last dimensions that together make one event."""

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Tensor) -> Tensor:
        """Whether each event lies in the region."""
        raise NotImplementedError

    def __repr__(self) -> str:
        bounds = ", ".join(f"{name}={value}" for name, value in vars(self).items() if name.endswith("_bound"))
        return f"{type(self).__name__.lstrip('_')}({bounds})"


class _Dependent(Constraint):
    """The support of a distribution whose region depends on its parameters."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:
        if self._is_discrete is NotImplemented:
            raise NotImplementedError("is_discrete cannot be determined without an instance")
        return bool(self._is_discrete)

    @property
    def event_dim(self) -> int:
        if self._event_dim is NotImplemented:
            raise NotImplementedError("event_dim cannot be determined without an instance")
        return int(self._event_dim)

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("a dependent constraint cannot be checked without an instance of the distribution")


class _DependentProperty(property, _Dependent):
    """A property of instances that is a dependent constraint of the class."""

    def __init__(
        self, fn: Callable[..., Any] | None = None, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented
    ) -> None:
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[..., Any]) -> _DependentProperty:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def is_dependent(constraint: Constraint) -> bool:
    """Whether the region depends on the parameters of a distribution."""
    return isinstance(constraint, _Dependent)


def _all_of_last(result: Tensor, dims: int) -> Tensor:
    return result.reshape(*result.shape[: result.ndim - dims], -1).all(-1) if dims else result


class _IndependentConstraint(Constraint):
    """A constraint whose last ``reinterpreted_batch_ndims`` batch dimensions belong to the event."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:
        return bool(self.base_constraint.is_discrete)

    @property
    def event_dim(self) -> int:
        return int(self.base_constraint.event_dim) + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        result = self.base_constraint.check(value)
        if result.ndim < self.reinterpreted_batch_ndims:
            raise ValueError(f"expected a value of at least {self.event_dim} dimensions, got {value.ndim}")
        return _all_of_last(result, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """The support of ``MixtureSameFamily``: that of every component."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:
        return bool(self.base_constraint.is_discrete)

    @property
    def event_dim(self) -> int:
        return int(self.base_constraint.event_dim)

    def check(self, value: Tensor) -> Tensor:
        if value.ndim < self.event_dim:
            raise ValueError(f"expected a value of at least {self.event_dim} dimensions, got {value.ndim}")
        result = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return _all_of_last(result, result.ndim - (value.ndim - self.event_dim))


class _Boolean(Constraint):
    """0 or 1."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    """Vectors with one 1, and 0 elsewhere."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return boolean.check(value).all(-1) & (value.sum(-1) == 1)


class _Bounded(Constraint):
    """A range, closed or open at each bound."""

    whole = False
    closed_below, closed_above = True, True

    def __init__(self, lower_bound: Any = None, upper_bound: Any = None) -> None:
        if lower_bound is not None:
            self.lower_bound = lower_bound
        if upper_bound is not None:
            self.upper_bound = upper_bound

    @property
    def is_discrete(self) -> bool:
        return self.whole

    def check(self, value: Tensor) -> Tensor:
        result = value % 1 == 0 if self.whole else value == value
        bounds = vars(self)
        if "lower_bound" in bounds:
            low = bounds["lower_bound"]
            result = result & (value >= low if self.closed_below else value > low)
        if "upper_bound" in bounds:
            high = bounds["upper_bound"]
            result = result & (value <= high if self.closed_above else value < high)
        return result


class _Interval(_Bounded):
    """From ``lower_bound`` to ``upper_bound``, both included."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__(lower_bound, upper_bound)


class _HalfOpenInterval(_Interval):
    """From ``lower_bound`` to below ``upper_bound``."""

    closed_above = False


class _IntegerInterval(_Interval):
    """Whole numbers from ``lower_bound`` to ``upper_bound``."""

    whole = True


class _GreaterThanEq(_Bounded):
    """From ``lower_bound`` on."""

    def __init__(self, lower_bound: Any) -> None:
        super().__init__(lower_bound=lower_bound)


class _GreaterThan(_GreaterThanEq):
    """Above ``lower_bound``."""

    closed_below = False


class _IntegerGreaterThan(_GreaterThanEq):
    """Whole numbers from ``lower_bound`` on."""

    whole = True


class _LessThan(_Bounded):
    """Below ``upper_bound``."""

    closed_above = False

    def __init__(self, upper_bound: Any) -> None:
        super().__init__(upper_bound=upper_bound)


class _Real(_Bounded):
    """All numbers except NaN."""


class _Simplex(Constraint):
    """Vectors of numbers from 0 on whose sum is 1."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    """Counts whose sum is at most ``upper_bound``."""

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    """Lower triangular matrices."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return _all_of_last(value.tril() == value, 2)


class _LowerCholesky(_LowerTriangular):
    """Lower triangular, with a positive diagonal."""

    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    """In addition, with rows of length 1."""

    def check(self, value: Tensor) -> Tensor:
        precision = {"float64": 2.0**-52, "float32": 2.0**-23}.get(value.dtype.name, 2.0**-7)
        length = (value.detach() * value.detach()).sum(-1).sqrt()
        return super().check(value) & ((length - 1).abs() <= precision * value.shape[-1] * 10).all(-1)


class _Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        square = value.shape[-2] == value.shape[-1]
        return _engine.full(tuple(value.shape[:-2]), square, dtype="bool", device=value.device)


class _Symmetric(_Square):
    """Symmetric matrices."""

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return _all_of_last((value - value.mT).abs() <= 1e-6 + 1e-5 * value.mT.abs(), 2)


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices whose eigenvalues are not negative."""

    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return symmetric
        return symmetric & self._accepts(linalg.eigvalsh(value.detach())).all(-1)

    def _accepts(self, eigenvalues: Tensor) -> Tensor:
        return eigenvalues >= 0


class _PositiveDefinite(_PositiveSemidefinite):
    """Symmetric matrices whose eigenvalues are positive."""

    def _accepts(self, eigenvalues: Tensor) -> Tensor:
        return eigenvalues > 0


class _Parts(Constraint):
    """Constraints of parts along a dimension."""

    def __init__(self, cseq: Sequence[Constraint], dim: int) -> None:
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> bool:
        return any(each.is_discrete for each in self.cseq)

    @property
    def event_dim(self) -> int:
        return max(int(each.event_dim) for each in self.cseq)


class _Cat(_Parts):
    """Constraints of parts of the sizes ``lengths`` along ``dim``."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise ValueError(f"cat: {len(self.lengths)} lengths for {len(self.cseq)} constraints")

    def check(self, value: Tensor) -> Tensor:
        parts = value.split(self.lengths, self.dim)
        return _engine.cat([each.check(part) for each, part in zip(self.cseq, parts)], self.dim)


class _Stack(_Parts):
    """A constraint for each position along ``dim``."""

    @property
    def event_dim(self) -> int:
        dims = max(int(each.event_dim) for each in self.cseq)
        return dims + 1 if self.dim + dims < 0 else dims

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        super().__init__(cseq, dim)

    def check(self, value: Tensor) -> Tensor:
        parts = value.unbind(self.dim)
        return _engine.stack([each.check(part) for each, part in zip(self.cseq, parts)], self.dim)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
