"""The base class of all distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from .. import _engine
from .._autograd import no_grad
from .._engine import Tensor
from .._size import Size
from . import constraints
from .utils import lazy_property, tensors

Self = TypeVar("Self", bound="Distribution")


class Distribution:
    """A distribution over events of shape ``event_shape``, one for each element of ``batch_shape``.

    A subclass declares ``arg_constraints`` and ``support``, passes its parameters to ``_set`` and implements what it
    has of ``_draw``, ``_log_prob``, ``_cdf`` and ``_icdf``, which get checked arguments; or overrides the public
    methods.
    """

    has_rsample = False
    has_enumerate_support = False
    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support: Any = None
    _validate_args = __debug__
    # The names of the attributes that were passed as parameters.
    _parameters: tuple[str, ...] = ()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check their arguments by default, which reads them."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: expected True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(
        self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape, self._event_shape = tuple(batch_shape), tuple(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args and not _engine.is_recording():
            self._check_parameters()

    def _set(self, validate_args: bool | None, event_shape: Sequence[int] | None = None, **parameters: Any) -> None:
        """Broadcasts parameters against each other, stores them as attributes, and checks them. By default the first
        parameter has the events' dimensions."""
        given = tensors(parameters)
        dims = {name: self._dims(name) for name in given}
        for name, value in given.items():
            if value.ndim < dims[name]:
                raise ValueError(f"{type(self).__name__}: {name} must have at least {dims[name]} dimensions, got {value.ndim}")
        batch = _engine.broadcast_shapes(*(tuple(value.shape[: value.ndim - dims[name]]) for name, value in given.items()))
        if event_shape is None:
            first = next(iter(given))
            event_shape = given[first].shape[given[first].ndim - dims[first] :]
        self._parameters = tuple(given)
        for name, value in given.items():
            setattr(self, name, value.expand((*batch, *value.shape[value.ndim - dims[name] :])))
        Distribution.__init__(self, batch, event_shape, validate_args)

    def _dims(self, name: str) -> int:
        """The number of last dimensions of a parameter that are not of the batch."""
        constraint = self.arg_constraints.get(name)
        return 0 if constraint is None or constraints.is_dependent(constraint) else int(constraint.event_dim)

    def _check_parameters(self) -> None:
        checks = {}
        for name, constraint in self.arg_constraints.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in vars(self) and isinstance(getattr(type(self), name, None), lazy_property):
                continue
            if isinstance(value := getattr(self, name), Tensor):
                checks[name] = constraint.check(value.detach()).all()
        # One read for all of them.
        _engine.evaluate(list(checks.values()))
        for name, passed in checks.items():
            if not bool(passed):
                value, constraint = getattr(self, name), self.arg_constraints[name]
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    def expand(self: Self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        """The same distribution with its parameters expanded to another batch shape."""
        shape = tuple(batch_shape)
        new = self._copied(_instance)
        for name in self._parameters:
            value = getattr(self, name)
            setattr(new, name, value.expand((*shape, *value.shape[value.ndim - self._dims(name) :])))
        new._batch_shape = shape
        return new

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """What ``expand`` of a subclass written for PyTorch fills: ``_instance``, or an empty one of this class."""
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(f"{type(self).__name__} has its own __init__ and must have its own expand")
        return type(self).__new__(type(self)) if _instance is None else _instance

    def _copied(self: Self, instance: Any = None) -> Self:
        """A copy without what lazy properties have computed."""
        new = type(self).__new__(type(self)) if instance is None else instance
        for name, value in vars(self).items():
            if name in self._parameters or not isinstance(getattr(type(self), name, None), lazy_property):
                vars(new)[name] = value
        return new

    @property
    def batch_shape(self) -> Size:
        """The shape over which parameters are batched."""
        return Size(self._batch_shape)

    @property
    def event_shape(self) -> Size:
        """The shape of one event."""
        return Size(self._event_shape)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def mode(self) -> Tensor:
        """The event of greatest probability."""
        raise NotImplementedError(f"{type(self).__name__} has no mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws ``sample_shape + batch_shape + event_shape`` numbers, without gradients."""
        with no_grad():
            if self.has_rsample:
                return self.rsample(sample_shape).detach()
            return self._draw(self._extended_shape(sample_shape)).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws numbers that are differentiable functions of the parameters."""
        if not self.has_rsample:
            raise NotImplementedError(f"{type(self).__name__} has no reparameterized samples: use sample")
        return self._draw(self._extended_shape(sample_shape))

    def sample_n(self, n: int) -> Tensor:
        """``sample((n,))``."""
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, of ``value``."""
        return self._log_prob(self._checked(value))

    def cdf(self, value: Tensor) -> Tensor:
        """The distribution function: the probability of at most ``value``."""
        return self._cdf(self._checked(value))

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of the distribution function."""
        return self._icdf(value)

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy in closed form")

    def perplexity(self) -> Tensor:
        """``exp`` of the entropy."""
        return self.entropy().exp()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All events, along a new first dimension; with ``expand=False`` not repeated for the batch."""
        raise NotImplementedError(f"{type(self).__name__} has no finite support")

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} cannot be sampled")

    def _log_prob(self, value: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def _cdf(self, value: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def _icdf(self, value: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no icdf")

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        """Scalar events along a new first dimension."""
        values = values.reshape(-1, *(1,) * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _checked(self, value: Any) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _validate_sample(self, value: Any) -> None:
        """Raises ``ValueError`` if ``value`` does not have the shape of a sample, or is not in the support."""
        if not isinstance(value, Tensor):
            raise ValueError(f"expected a tensor as value, got {type(value).__name__}")
        dims = len(self._event_shape)
        if tuple(value.shape[value.ndim - dims :]) != self._event_shape:
            raise ValueError(
                f"the last dimensions of the value must have the event shape {self._event_shape}, got {tuple(value.shape)}"
            )
        expected = self._batch_shape + self._event_shape
        for ours, given in zip(reversed(expected), reversed(value.shape)):
            if ours != 1 and given != 1 and ours != given:
                raise ValueError(f"the value's shape {tuple(value.shape)} cannot be broadcast with {expected}")
        if _engine.is_recording() or self.support is None:
            return
        if not bool(self.support.check(value).all()):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support "
                f"({self.support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        names = [name for name in self.arg_constraints if name in vars(self)]
        shown = [f"{name}: {v.item() if (v := vars(self)[name]).ndim == 0 else v.shape}" for name in names]
        return f"{type(self).__name__}({', '.join(shown)})"
