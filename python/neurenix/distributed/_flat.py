"""Parameters as one vector, of which each rank keeps a part."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _engine
from .._autograd import no_grad
from .._engine import ProcessGroup, Tensor
from ..nn._lent import Loan
from ..nn.module import Module
from ..nn.parameter import Parameter
from ._gradient import with_gradient, with_hook
from ._memory import copied
from ._shard import Part, Shard
from ._split import groups_of, held, split_over


@dataclass(frozen=True)
class MixedPrecision:
    """The dtypes in which a sharded network computes. ``param_dtype`` is that of gathered weights, and of the inputs of
    the network (``cast_root_forward_inputs``) or of every unit (``cast_forward_inputs``); ``reduce_dtype`` that in
    which gradients are summed, by default ``param_dtype``; ``buffer_dtype`` that of buffers. The shards keep their
    dtype, and so does the optimiser.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True

    def __post_init__(self) -> None:
        if self.keep_low_precision_grads:
            raise NotImplementedError(
                "MixedPrecision: keep_low_precision_grads=True is not supported: gradients have the dtype of their shards"
            )


class FlatParameter(Parameter):
    """This rank's part of the parameters of a unit, as a vector."""

    # The sum of the whole gradients of passes that were not synchronised. It is part of the gradient, so who sets or
    # removes that removes this, too.
    _waiting: Tensor | None = None

    @property
    def grad(self) -> Tensor | None:
        """This rank's part of the gradient, without passes that were not synchronised."""
        return super().grad

    @grad.setter
    def grad(self, gradient: Tensor | None) -> None:
        self._waiting = None
        Parameter.grad.__set__(self, gradient)  # type: ignore[attr-defined]

    def _clear_grad(self) -> None:
        self._waiting = None
        super()._clear_grad()


@dataclass(frozen=True)
class Item:
    """A parameter of the network: where it is, its shape, its first element in the vector, and which part of the
    network's parameter it is. A shared parameter has several places; the name is that of the first.
    """

    name: str
    places: list[tuple[Module, str]]
    shape: tuple[int, ...]
    start: int
    part: Part

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def _settle(gradient: Tensor) -> None:
    """Computes a gradient now, so that the whole gradients of several units are not in memory together."""
    _engine.evaluate([gradient])


class Flat:
    """Parameters of one dtype as one vector, of which each rank keeps an equal part. Zeros fill up the last one."""

    def __init__(
        self,
        found: Sequence[tuple[str, list[tuple[Module, str]], Tensor]],
        group: ProcessGroup,
        is_sharded: bool,
        precision: MixedPrecision,
        is_from_rank_0: bool,
    ) -> None:
        self.group, self.precision = group, precision
        self.parts = group.size() if is_sharded else 1
        self.synchronizes = True
        # Whether the outermost unit's call has used it.
        self.is_used = False
        # New values of items, until all of them are there.
        self.loaded: dict[int, Tensor] = {}
        self.items: list[Item] = []
        start = 0
        for name, places, parameter in found:
            self.items.append(Item(name, places, tuple(parameter.shape), start, held(parameter)))
            start += parameter.numel()
        self.total = start
        self.length = math.ceil(start / self.parts)
        tensors = [parameter for _, _, parameter in found]
        with no_grad():
            part = self.part_of([parameter.detach() for parameter in tensors], is_from_rank_0)
        self.parameter = FlatParameter(part, requires_grad=tensors[0].requires_grad)
        split_over(self.parameter, *groups_of(tensors[0]), *([group] if self.parts > 1 else []))

    @property
    def first(self) -> int:
        """The first element of this rank's part."""
        return self.group.rank() * self.length if self.parts > 1 else 0

    def part_of(self, values: Sequence[Tensor], is_from_rank_0: bool = False) -> Tensor:
        """This rank's part of these values of the items, in memory of its own."""
        pieces = [value.reshape(-1) for value in values]
        fill = self.length * self.parts - self.total
        if fill:
            pieces.append(_engine.zeros((fill,), dtype=pieces[0].dtype, device=pieces[0].device))
        whole = _engine.cat(pieces, 0)
        if is_from_rank_0 and self.group.size() > 1:
            whole = _engine.collective(whole, "broadcast", self.group)
        return copied(whole.narrow(0, self.first, self.length))

    def _low(self, tensor: Tensor) -> Tensor:
        return tensor if self.precision.param_dtype is None else tensor.to(self.precision.param_dtype)

    def whole(self, again: bool) -> Tensor:
        """All elements, gathered when they are needed. The gradient is the mean over the ranks. With ``again`` the backward
        pass gathers them for itself, and what is gathered here is freed.
        """
        parameter, n = self.parameter, self.group.size()
        self.is_used = True
        if self.parts == 1:
            low = self._low(parameter)
            return low if n == 1 else with_hook(low, self._averaged)
        if not (parameter.requires_grad and _engine.is_grad_enabled()):
            return self._gathered(parameter.detach(), again)
        reduce_dtype = self.precision.reduce_dtype
        if self.synchronizes and (reduce_dtype is None or _engine.dtype(reduce_dtype) == self._low(parameter).dtype):
            gathered = self._gathered(parameter if again else with_hook(parameter, _settle), again)
            # Divided first, so that a sum of 16-bit numbers stays in their range.
            gathered.register_hook(lambda gradient: self._with_waiting(gradient) / n)
            return gathered
        with no_grad():
            values = self._gathered(parameter.detach(), again)
        return with_gradient(values, parameter, self._reduced)

    def _gathered(self, part: Tensor, again: bool) -> Tensor:
        return _engine.collective(self._low(part), "all_gather", self.group, again=again, lazily=True)

    def _with_waiting(self, gradient: Tensor) -> Tensor:
        waiting, self.parameter._waiting = self.parameter._waiting, None  # pyright: ignore
        return gradient if waiting is None else gradient + waiting.to(gradient.dtype)

    def _summand(self, gradient: Tensor) -> Tensor | None:
        """This rank's share of the mean; None if gradients only accumulate, which are then kept."""
        dtype = self.precision.reduce_dtype
        total = self._with_waiting(gradient if dtype is None else gradient.to(dtype))
        if self.synchronizes:
            return total / self.group.size()
        _engine.evaluate([total])
        self.parameter._waiting = total  # pyright: ignore
        return None

    def _reduced(self, gradient: Tensor) -> Tensor:
        """The gradient of this rank's part, given that of the whole."""
        share = self._summand(gradient)
        if share is None:
            return _engine.full_like(self.parameter.detach(), 0)
        return _engine.collective(share, "reduce_scatter", self.group, lazily=True).to(self.parameter.dtype)

    def _averaged(self, gradient: Tensor) -> Tensor:
        """The mean over the ranks of the gradient of parameters that are not divided."""
        share = self._summand(gradient)
        if share is None:
            return _engine.full_like(gradient, 0)
        return _engine.collective(share, "all_reduce", self.group).to(gradient.dtype)

    def settle_unused(self) -> None:
        """Reduces what waits for a pass that is synchronised, if that pass does not use the parameters."""
        is_used, self.is_used = self.is_used, False
        waiting = self.parameter._waiting  # pyright: ignore
        if is_used or waiting is None or not self.synchronizes:
            return
        with no_grad():
            kind = "reduce_scatter" if self.parts > 1 else "all_reduce"
            mean = _engine.collective(waiting / self.group.size(), kind, self.group).to(self.parameter.dtype)
            before = self.parameter.grad
            self.parameter.grad = mean if before is None else before + mean

    def views(self, whole: Tensor) -> Iterator[tuple[Item, Tensor]]:
        """The items' parts of the whole vector, in their shapes."""
        for item in self.items:
            yield item, whole.narrow(0, item.start, item.size).reshape(item.shape)

    def ranges(self) -> Iterator[tuple[Item, Part]]:
        """What this rank has of each item, one after the other. Most items are on one rank or two; the others get empty
        parts.
        """
        for item in self.items:
            first = min(max(self.first - item.start, 0), item.size)
            last = min(max(self.first + self.length - item.start, first), item.size)
            yield item, item.part.range(first, last - first)

    def own_parts(self, vector: Tensor) -> Iterator[tuple[Item, Shard]]:
        """The parts of a vector that is divided like the parameters."""
        start = 0
        for item, part in self.ranges():
            yield item, Shard(vector.narrow(0, start, part.length).clone(), part)
            start += part.length

    # Loading.
    def put(self, number: int, value: Tensor) -> None:
        """Keeps the new value of an item until :meth:`take_up`."""
        self.loaded[number] = value.detach().to(self.parameter.dtype).to(self.parameter.device)

    def take_up(self) -> None:
        """Stores the new values of items in this rank's part."""
        if not self.loaded:
            return
        with no_grad():
            pieces = []
            for number, (_, old) in enumerate(self.own_parts(self.parameter.detach())):
                new, part = self.loaded.get(number), old.part
                if part.length:
                    pieces.append(old.tensor if new is None else new.reshape(-1).narrow(0, part.start, part.length))
            self.loaded = {}
            self.parameter.data = self.part_from(pieces)

    def part_from(self, pieces: Sequence[Tensor]) -> Tensor:
        """This rank's part, from what it has of the items, as :meth:`own_parts` gives it."""
        place: dict[str, Any] = {"dtype": self.parameter.dtype, "device": self.parameter.device}
        given = [piece.detach().reshape(-1).to(**place) for piece in pieces]
        fill = self.length - sum(piece.numel() for piece in given)
        if fill:
            given.append(_engine.zeros((fill,), **place))
        return copied(_engine.cat(given, 0))


class Gathered(Tensor):
    """The values of an item, in a state: new ``data`` goes to the flat parameter."""

    _flat: Flat
    _number: int

    @property
    def data(self) -> Tensor:
        """The values without gradients."""
        return super().data

    @data.setter
    def data(self, value: Tensor) -> None:
        self._flat.put(self._number, value)


def places(views: Sequence[tuple[Item, Tensor]]) -> Loan:
    """The views of items with the modules that have them."""
    return [(module, name, view) for item, view in views for module, name in item.places]
