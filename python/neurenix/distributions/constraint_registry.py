"""From a constraint to a transform of unconstrained numbers to its region.

``biject_to`` gives bijections, and ``transform_to`` transforms that are simpler or apply to more regions.

>>> import neurenix as nx
>>> from neurenix.distributions import constraints, transform_to
>>> bool(transform_to(constraints.positive)(nx.tensor(-3.0)) > 0)
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._engine import Tensor
from . import constraints, transforms
from .constraints import Constraint
from .transforms import Transform

Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """A table of factories of transforms, by class of the constraint."""

    def __init__(self) -> None:
        self._registry: dict[type[Constraint], Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Registers a factory for a class of constraints, or for the class of an instance. Without ``factory`` it is a
        decorator."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, Constraint):
            raise TypeError(f"register: expected a constraint or its class, got {constraint!r}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """The transform for a constraint."""
        if type(constraint) not in self._registry:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return self._registry[type(constraint)](constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _to_interval(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if not isinstance(low, Tensor) and not isinstance(high, Tensor) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


def _to_half_line(constraint: Any, bound: Any, sign: int) -> Transform:
    if constraint in (constraints.positive, constraints.nonnegative):
        return transforms.ExpTransform()
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(bound, sign)])


def _register_both(registry: ConstraintRegistry) -> None:
    """What is the same in both tables, for parts by the same table."""
    add = registry.register
    add(constraints.real, lambda constraint: transforms.identity_transform)
    for lower in (constraints.greater_than, constraints.greater_than_eq):
        add(lower, lambda constraint: _to_half_line(constraint, constraint.lower_bound, 1))
    add(constraints.less_than, lambda constraint: _to_half_line(constraint, constraint.upper_bound, -1))
    for both in (constraints.interval, constraints.half_open_interval):
        add(both, _to_interval)
    add(constraints.corr_cholesky, lambda constraint: transforms.CorrCholeskyTransform())
    add(
        constraints.independent,
        lambda constraint: transforms.IndependentTransform(
            registry(constraint.base_constraint), constraint.reinterpreted_batch_ndims
        ),
    )
    add(
        constraints.cat,
        lambda constraint: transforms.CatTransform(
            [registry(each) for each in constraint.cseq], constraint.dim, constraint.lengths
        ),
    )
    add(
        constraints.stack,
        lambda constraint: transforms.StackTransform([registry(each) for each in constraint.cseq], constraint.dim),
    )


_register_both(biject_to)
_register_both(transform_to)
biject_to.register(constraints.simplex, lambda constraint: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda constraint: transforms.LowerCholeskyTransform())
for _matrix in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_matrix, lambda constraint: transforms.PositiveDefiniteTransform())
