"""Recurrent layers and their cells, with PyTorch's order of gates."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

from .. import _engine
from .._engine import Tensor
from . import functional as F
from . import init
from ._precision import low
from .container import check_layers
from .linear import new
from .module import Module
from .utils.rnn import PackedSequence

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"LSTM": 4, "GRU": 3, "tanh": 1, "relu": 1}
State = Tensor | tuple[Tensor, Tensor] | None


def _check_nonlinearity(kind: str) -> None:
    if kind not in ("tanh", "relu"):
        raise ValueError(f'nonlinearity is {kind!r}, it must be "tanh" or "relu"')


def _one_state(kind: str, hx: Any) -> Tensor | None:
    """The state of a layer without cells."""
    if hx is None or isinstance(hx, Tensor):
        return hx
    raise TypeError(f"{kind}: expected a tensor h as the state, got {type(hx).__name__}; only LSTM takes a pair (h, c)")


def _two_states(kind: str, hx: Any) -> tuple[Tensor | None, Tensor | None]:
    """The hidden state and the cell state of an LSTM."""
    if hx is None:
        return None, None
    is_sequence = isinstance(hx, (tuple, list))
    if is_sequence and len(hx) == 2:
        return hx[0], hx[1]
    given = f"{type(hx).__name__} of {len(hx)}" if is_sequence else type(hx).__name__
    raise TypeError(f"{kind}: expected a pair (h, c) as the state, got {given}")


def _ordered(state: Any, order: Tensor | None) -> Any:
    """A state (cells, N, hidden_size) in another order of the batch."""
    return state if state is None or order is None else state.index_select(1, order)


def _layer(
    kind: str, x: Tensor, weights: list[Any], h: Tensor | None, c: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """One layer in one direction over (T, N, features)."""
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    return _engine.recurrent_layer(kind, x, w_ih, w_hh, b_ih, b_hh, w_hr, h, c, reverse)


def _packed_layer(
    kind: str, x: Tensor, weights: list[Any], h: Any, c: Any, reverse: bool, counts: list[int]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """One layer in one direction over packed data (rows, features), with ``counts`` rows at each step.

    Steps with the same count are one call on the sequences that have them: the first ones, as lengths descend. The
    states of the others are kept. Forwards, those have ended; in reverse, they have not begun.
    """
    blocks = [(len(list(steps)), count) for count, steps in groupby(counts)]
    # A projected state has fewer features than there are units.
    batch, state, units = counts[0], weights[1].shape[1], weights[1].shape[0] // _GATES[kind]
    h = x.new_zeros(batch, state) if h is None else h
    if kind == "LSTM" and c is None:
        c = x.new_zeros(batch, units)
    parts = list(zip(x.split([steps * count for steps, count in blocks]), blocks, strict=True))
    outputs = []
    for part, (steps, count) in reversed(parts) if reverse else parts:
        part = part.reshape(steps, count, x.shape[1])
        now_h, now_c = (None if state is None else state.narrow(0, 0, count) for state in (h, c))
        output, *now = _layer(kind, part, weights, now_h, now_c, reverse)
        outputs.append(output.reshape(steps * count, state))
        h, c = (_replaced(before, after) for before, after in zip((h, c), now, strict=True))
    return _engine.cat(outputs[::-1] if reverse else outputs), h, c


def _replaced(before: Any, after: Any) -> Any:
    """The states of a batch, with new ones for the first sequences."""
    if after is None or after.shape[0] == before.shape[0]:
        return after
    count = after.shape[0]
    return _engine.cat([after, before.narrow(0, count, before.shape[0] - count)])


class _Weights(Module):
    hidden_size: int
    proj_size = 0

    def _add_weights(self, kind: str, inputs: int, suffix: str, bias: bool, place: dict[str, Any]) -> None:
        size = _GATES[kind] * self.hidden_size
        self.register_parameter(f"weight_ih{suffix}", new(size, inputs, **place))
        self.register_parameter(f"weight_hh{suffix}", new(size, self.proj_size or self.hidden_size, **place))
        self.register_parameter(f"bias_ih{suffix}", new(size, **place) if bias else None)
        self.register_parameter(f"bias_hh{suffix}", new(size, **place) if bias else None)
        if self.proj_size:
            self.register_parameter(f"weight_hr{suffix}", new(self.proj_size, self.hidden_size, **place))

    def _weights(self, suffix: str) -> list[Any]:
        """The weights; within ``autocast``, in its dtype."""
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return list(low(*(getattr(self, f"{name}{suffix}", None) for name in names)))

    def reset_parameters(self) -> None:
        """Draws new values, uniform in +-1 / sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)


class RNNBase(_Weights):
    """The base class of :class:`RNN`, :class:`LSTM` and :class:`GRU`."""

    def __init__(
        self,
        kind: str,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        device: Any,
        dtype: Any,
        proj_size: int = 0,
    ) -> None:
        super().__init__()
        self.proj_size = proj_size
        if hidden_size < 1 or num_layers < 1:
            raise ValueError(f"{type(self).__name__}: hidden_size and num_layers must be at least 1")
        if not 0.0 <= dropout <= 1.0:
            raise ValueError(f"{type(self).__name__}: dropout is {dropout}, it must be a probability between 0 and 1")
        self._kind, self.input_size, self.hidden_size, self.num_layers = kind, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, dropout, bidirectional
        self._directions = 2 if bidirectional else 1
        for layer in range(check_layers(type(self).__name__, num_layers)):
            inputs = input_size if layer == 0 else (self.proj_size or hidden_size) * self._directions
            for direction in range(self._directions):
                suffix = f"_l{layer}" + ("_reverse" if direction else "")
                self._add_weights(kind, inputs, suffix, bias, {"device": device, "dtype": dtype})
        self.reset_parameters()

    def flatten_parameters(self) -> None:
        """Has no effect: the engine reads the weights where they are."""

    def _run(self, input: Any, h_0: Tensor | None, c_0: Tensor | None) -> tuple[Any, Tensor, Tensor | None]:
        if isinstance(input, PackedSequence):
            return self._run_packed(input, h_0, c_0)
        name = type(self).__name__
        if not isinstance(input, Tensor):
            raise TypeError(
                f"{name}: expected a tensor, got {type(input).__name__}, in input: convert it with nx.asarray(x) or "
                "nx.Tensor(x), or pass a PackedSequence"
            )
        if input.ndim not in (2, 3):
            raise ValueError(f"{name}: expected an input of 2 or 3 dimensions, got shape {tuple(input.shape)}")
        single = input.ndim == 2
        x = input
        if single:
            x = x.unsqueeze(1)
            h_0, c_0 = (None if state is None else state.unsqueeze(1) for state in (h_0, c_0))
        elif self.batch_first:
            x = x.transpose(0, 1)
        self._check_states(x.shape[1], h_0, c_0)
        x, h_n, c_n = self._layers(x, h_0, c_0)
        if single:
            return x.squeeze(1), h_n.squeeze(1), None if c_n is None else c_n.squeeze(1)
        return (x.transpose(0, 1) if self.batch_first else x), h_n, c_n

    def _run_packed(
        self, input: PackedSequence, h_0: Tensor | None, c_0: Tensor | None
    ) -> tuple[PackedSequence, Tensor, Tensor | None]:
        if input.data.ndim != 2:
            name = type(self).__name__
            raise ValueError(f"{name}: expected packed data of 2 dimensions, got shape {tuple(input.data.shape)}")
        counts = input._counts()
        self._check_states(counts[0], h_0, c_0)
        # States are in the order of the batch; the data, in descending order of lengths.
        h_0, c_0 = (_ordered(state, input.sorted_indices) for state in (h_0, c_0))
        x, h_n, c_n = self._layers(input.data, h_0, c_0, counts)
        return input._with_data(x), _ordered(h_n, input.unsorted_indices), _ordered(c_n, input.unsorted_indices)

    def _check_states(self, batch: int, *states: Tensor | None) -> None:
        for state, size in zip(states, (self.proj_size or self.hidden_size, self.hidden_size), strict=True):
            needed = (self.num_layers * self._directions, batch, size)
            if state is not None and tuple(state.shape) != needed:
                raise ValueError(f"{type(self).__name__}: expected a state of shape {needed}, got {tuple(state.shape)}")

    def _layers(
        self, x: Tensor, h_0: Tensor | None, c_0: Tensor | None, counts: list[int] | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """All layers over (T, N, features), or over packed data (rows, features) with ``counts`` rows at each step."""
        h_0, c_0 = low(h_0, c_0)
        x = x.to(self._weights("_l0")[0].dtype)
        last_h, last_c = [], []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            outputs = []
            for direction in range(self._directions):
                cell = layer * self._directions + direction
                suffix = f"_l{layer}" + ("_reverse" if direction else "")
                h, c = (None if state is None else state[cell] for state in (h_0, c_0))
                weights, reverse = self._weights(suffix), direction == 1
                if counts is None:
                    output, h, c = _layer(self._kind, x, weights, h, c, reverse)
                else:
                    output, h, c = _packed_layer(self._kind, x, weights, h, c, reverse, counts)
                outputs.append(output)
                last_h.append(h)
                last_c.append(c)
            x = outputs[0] if len(outputs) == 1 else _engine.cat(outputs, -1)
        return x, _engine.stack(last_h), _engine.stack(last_c) if self._kind == "LSTM" else None

    def forward(self, input: Tensor | PackedSequence, hx: Any = None) -> Any:
        output, h_n, _ = self._run(input, _one_state(type(self).__name__, hx), None)
        return output, h_n

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        defaults = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        defaults["bidirectional"] = False
        changed = [(name, getattr(self, name)) for name in defaults if getattr(self, name) != defaults[name]]
        return text + "".join(f", {name}={value}" for name, value in changed)


class RNN(RNNBase):
    """``h = tanh(W_ih x + b_ih + W_hh h + b_hh)`` over a sequence (T, N, input_size), (N, T, input_size) with
    ``batch_first``, or (T, input_size).

    ``output, h = layer(x, h_0)``: the output has the input's shape with ``directions * hidden_size`` as its last
    dimension, ``h`` is (num_layers * directions, N, hidden_size), as ``h_0`` is (default: zeros), whatever
    ``batch_first``; ``directions`` is 2 with ``bidirectional``, else 1. ``dropout`` acts between layers, in training.
    For a ``PackedSequence`` (see ``nn.utils.rnn``), the output is one too, and ``h`` is the state after the last step
    of each sequence, in the order of the batch before packing.

    >>> import neurenix as nx
    >>> output, h = nx.nn.RNN(4, 8)(nx.zeros(5, 2, 4))
    >>> output.shape, h.shape
    (torch.Size([5, 2, 8]), torch.Size([1, 2, 8]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        _check_nonlinearity(nonlinearity)
        super().__init__(
            nonlinearity, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype
        )
        self.nonlinearity = nonlinearity


class GRU(RNNBase):
    """Gated recurrent units over a sequence (T, N, input_size), (N, T, input_size) with ``batch_first``, or (T,
    input_size); gates in the order r, z, n. Arguments, results and shapes are those of :class:`RNN`.

    >>> import neurenix as nx
    >>> output, h = nx.nn.GRU(4, 8, num_layers=2, bidirectional=True)(nx.zeros(5, 2, 4))
    >>> output.shape, h.shape
    (torch.Size([5, 2, 16]), torch.Size([4, 2, 8]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype
        )


class LSTM(RNNBase):
    """Long short-term memory over a sequence (T, N, input_size), (N, T, input_size) with ``batch_first``, or (T,
    input_size); gates in the order i, f, g, o.

    ``output, (h, c) = layer(x, (h_0, c_0))``: shapes as of :class:`RNN`; ``c``, the cells, has that of ``h``. With
    ``proj_size``, the hidden state is projected to so many features (``weight_hr``), which then are the last dimension
    of ``output`` and ``h``; the projection is multiplied into ``weight_hh``, so it saves parameters, not time.

    >>> import neurenix as nx
    >>> output, (h, c) = nx.nn.LSTM(4, 8, batch_first=True)(nx.zeros(2, 5, 4))
    >>> output.shape, h.shape
    (torch.Size([2, 5, 8]), torch.Size([1, 2, 8]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if not 0 <= proj_size < max(hidden_size, 1):
            raise ValueError(f"LSTM: proj_size is {proj_size}, it must be at least 0 and less than hidden_size")
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device,
            dtype,
            proj_size,
        )

    def forward(self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None) -> Any:
        h_0, c_0 = _two_states(type(self).__name__, hx)
        output, h_n, c_n = self._run(input, h_0, c_0)
        return output, (h_n, c_n)


class RNNCellBase(_Weights):
    """The base class of :class:`RNNCell`, :class:`LSTMCell` and :class:`GRUCell`."""

    def __init__(
        self, kind: str, input_size: int, hidden_size: int, bias: bool, device: Any, dtype: Any
    ) -> None:
        super().__init__()
        self._kind, self.input_size, self.hidden_size, self.bias = kind, input_size, hidden_size, bias
        self._add_weights(kind, input_size, "", bias, {"device": device, "dtype": dtype})
        self.reset_parameters()

    def _step(self, input: Tensor, h: Tensor | None, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if input.ndim not in (1, 2):
            raise ValueError(f"{type(self).__name__}: expected an input of 1 or 2 dimensions, got shape {tuple(input.shape)}")
        single = input.ndim == 1
        if single:
            input = input.unsqueeze(0)
            h, c = (None if state is None else state.unsqueeze(0) for state in (h, c))
        weights = self._weights("")
        h, c = low(h, c)
        _, h, c = _layer(self._kind, input.unsqueeze(0).to(weights[0].dtype), weights, h, c, False)
        if single:
            return h.squeeze(0), None if c is None else c.squeeze(0)
        return h, c

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        return self._step(input, _one_state(type(self).__name__, hx), None)[0]

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """One step of an :class:`RNN`: (N, input_size), or (input_size), and a hidden state (N, hidden_size), or
    (hidden_size), zeros if not given, to the next one.

    >>> import neurenix as nx
    >>> nx.nn.RNNCell(4, 8)(nx.zeros(2, 4)).shape
    torch.Size([2, 8])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        _check_nonlinearity(nonlinearity)
        super().__init__(nonlinearity, input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity


class GRUCell(RNNCellBase):
    """One step of a :class:`GRU`; shapes as of :class:`RNNCell`.

    >>> import neurenix as nx
    >>> nx.nn.GRUCell(4, 8)(nx.zeros(4)).shape
    torch.Size([8])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__("GRU", input_size, hidden_size, bias, device, dtype)


class LSTMCell(RNNCellBase):
    """One step of an :class:`LSTM`: (N, input_size), or (input_size), and the hidden and the cell state, zeros if not
    given, to the next two; shapes as of :class:`RNNCell`.

    >>> import neurenix as nx
    >>> h, c = nx.nn.LSTMCell(4, 8)(nx.zeros(2, 4))
    >>> h.shape, c.shape
    (torch.Size([2, 8]), torch.Size([2, 8]))
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__("LSTM", input_size, hidden_size, bias, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> Any:
        h, c = _two_states(type(self).__name__, hx)
        return self._step(input, h, c)
