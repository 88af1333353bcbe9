"""Layers that learn the size of their input from the first one.

>>> import neurenix as nx
>>> model = nx.nn.Sequential(nx.nn.LazyConv2d(4, 3), nx.nn.Flatten(), nx.nn.LazyLinear(2))
>>> model(nx.zeros(1, 3, 5, 5)).shape
torch.Size([1, 2])
>>> model[2]
Linear(in_features=36, out_features=2, bias=True)
"""

from __future__ import annotations

from typing import Any

from .. import _engine
from .._engine import Tensor
from . import conv, linear, normalization
from . import init as _init
from .module import Module
from .parameter import UninitializedParameter, is_lazy

__all__ = [
    *(f"LazyBatchNorm{dims}d" for dims in (1, 2, 3)),
    *(f"LazyConv{dims}d" for dims in (1, 2, 3)),
    *(f"LazyConvTranspose{dims}d" for dims in (1, 2, 3)),
    *(f"LazyInstanceNorm{dims}d" for dims in (1, 2, 3)),
    "LazyLinear",
]


class LazyModuleMixin:
    """For lazy layers of your own, as the first base class. The layer has an :class:`UninitializedParameter` or
    :class:`UninitializedBuffer`, to which ``initialize_parameters``, called with the arguments of the first call, gives
    a shape. The layer then becomes a ``cls_to_become``, if there is one. A state that is loaded gives shapes too.

    >>> import neurenix as nx
    >>> class Scale(nx.nn.lazy.LazyModuleMixin, nx.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight = nx.nn.UninitializedParameter()
    ...     def initialize_parameters(self, input):
    ...         self.weight.materialize(input.shape[-1:])
    ...         nx.nn.init.ones_(self.weight)
    ...     def forward(self, input):
    ...         return input * self.weight
    >>> scale = Scale()
    >>> scale(nx.tensor([[2.0, 3.0]])).tolist(), scale.has_uninitialized_params()
    ([[2.0, 3.0]], False)
    """

    cls_to_become: type[Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own: Any = self
        object.__setattr__(
            self, "_until_known",
            [
                own.register_forward_pre_hook(LazyModuleMixin._infer_parameters, prepend=True, with_kwargs=True),
                own.register_load_state_dict_pre_hook(LazyModuleMixin._take_shapes),
            ],
        )  # fmt: skip

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Gives shapes and values to the parameters and buffers, by the arguments of the first call."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether the shapes of parameters or buffers are not known yet."""
        own: Any = self
        return any(map(is_lazy, (*own._parameters.values(), *own._buffers.values())))

    def _unknown(self) -> list[tuple[str, Any]]:
        """The names and tensors without a shape, which know where to replace themselves."""
        own: Any = self
        found = []
        for members in (own._parameters, own._buffers):
            for name, tensor in members.items():
                if is_lazy(tensor):
                    tensor._places = [(members, name)]
                    found.append((name, tensor))
        return found

    def _infer_parameters(self, args: Any, kwargs: Any) -> None:
        self._unknown()
        self.initialize_parameters(*args, **kwargs)
        if self.has_uninitialized_params():
            name = type(self).__name__
            raise RuntimeError(f"module {name} has not been fully initialized: initialize_parameters left a shape unknown")
        for handle in vars(self).pop("_until_known"):
            handle.remove()
        if self.cls_to_become is not None:
            self.__class__ = self.cls_to_become

    def _take_shapes(self, state_dict: Any, prefix: str, *_: Any) -> None:
        for name, tensor in self._unknown():
            if prefix + name in state_dict and not is_lazy(state_dict[prefix + name]):
                tensor.materialize(tuple(state_dict[prefix + name].shape))


class Lazy(LazyModuleMixin, Module):
    """The base class of the layers: the first call, or a state that is loaded, makes it the layer, with new parameters.
    Make the optimiser after that.
    """

    _becomes: Any
    #: The setting that is learnt.
    _learnt: str

    def __init__(self, *args: Any, device: Any = None, dtype: Any = None, **kwargs: Any) -> None:
        Module.__init__(self)
        with _init._skipped():
            layer = self._becomes(0, *args, **kwargs, device=device, dtype=dtype)
        for name, value in vars(layer).items():
            if name not in vars(self):
                object.__setattr__(self, name, value)
        for name, parameter in layer._parameters.items():
            if parameter is not None:
                parameter = UninitializedParameter(device=parameter.device, dtype=parameter.dtype)
            self._parameters[name] = parameter
        self._buffers.update(layer._buffers)
        self._arguments, self._text = (args, kwargs), layer.extra_repr()

    def extra_repr(self) -> str:
        return self._text

    def has_uninitialized_params(self) -> bool:
        """Whether the shapes of parameters are not known yet."""
        return True

    def _size(self, input: Tensor) -> int:
        """What an input's size says."""
        raise NotImplementedError

    def _size_in_state(self, state: Any, prefix: str) -> int | None:
        """What a state says, unless the layer of the state is lazy too."""
        weight = state.get(f"{prefix}weight")
        return None if weight is None or tuple(weight.shape) == (0,) else self._size_of_weight(weight.shape)

    def _size_of_weight(self, shape: Any) -> int:
        return int(shape[0])

    def _become(self, size: int) -> None:
        """Makes this the layer, for inputs of a size."""
        args, kwargs = self._arguments
        own = next((each for each in (*self._parameters.values(), *self._buffers.values()) if each is not None), None)
        dtype = own.dtype if own is not None and own.is_floating_point() else None
        place = {} if own is None else {"device": own.device, "dtype": dtype}
        layer = self._becomes(size, *args, **kwargs, **place)
        self._parameters.update(layer._parameters)
        self._buffers.update(layer._buffers)
        object.__setattr__(self, self._learnt, size)
        del self._arguments, self._text
        self.__class__ = self._becomes

    def _called(self, *args: Any, **kwargs: Any) -> Any:
        input = args[0] if args else next(iter(kwargs.values()), None)
        if not isinstance(input, Tensor):
            raise TypeError(f"{type(self).__name__}: expected a tensor as first argument, got {type(input).__name__}")
        self._become(self._size(input))
        return self._called(*args, **kwargs)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:  # pyright: ignore
        size = self._size_in_state(state_dict, prefix)
        if size is not None:
            self._become(size)
        # That of the layer, if it is one now.
        if size is None:
            super()._load_from_state_dict(state_dict, prefix, *rest)
        else:
            self._load_from_state_dict(state_dict, prefix, *rest)


class LazyLinear(Lazy):
    """:class:`Linear` whose ``in_features`` is the last size of the first input."""

    _becomes, _learnt = linear.Linear, "in_features"

    def _size(self, input: Tensor) -> int:
        return input.shape[-1]

    def _size_of_weight(self, shape: Any) -> int:
        return int(shape[1])


class _Channels(Lazy):
    """A layer that learns its number of channels: of (N, C, ...), or of (C, ...) where the layer accepts that."""

    #: The dimensions of an input with N.
    _rank: int

    def _size(self, input: Tensor) -> int:
        if input.ndim not in (self._rank, self._rank - 1):
            shapes = f"{self._rank - 1} or {self._rank} dimensions"
            raise ValueError(f"{type(self).__name__}: expected an input of {shapes}, got shape {tuple(input.shape)}")
        return input.shape[1 if input.ndim == self._rank or "BatchNorm" in type(self).__name__ else 0]


class _LazyConvolution(_Channels):
    _learnt = "in_channels"

    def _size_of_weight(self, shape: Any) -> int:
        return int(shape[1]) * int(self.groups)


class _LazyTransposed(_Channels):
    _learnt = "in_channels"


class _LazyNorm(_Channels):
    _learnt = "num_features"

    def _size_in_state(self, state: Any, prefix: str) -> int | None:
        known = super()._size_in_state(state, prefix)
        mean = state.get(f"{prefix}running_mean")
        return known if known is not None or mean is None else int(mean.shape[0])


class _LazyInstanceNorm(_LazyNorm):
    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        # These have weights and running statistics by default, unlike the layers that they become.
        super().__init__(eps, momentum, affine, track_running_stats, device=device, dtype=dtype)


def _made(name: str, base: type[Lazy], module: Any, dims: int) -> type[Lazy]:
    layer = getattr(module, f"{name}{dims}d")
    doc = f":class:`{layer.__name__}` whose ``{base._learnt}`` is that of the first input."
    names = {"_becomes": layer, "_rank": dims + 2, "__doc__": doc, "__module__": __name__}
    return type(f"Lazy{layer.__name__}", (base,), names)


LazyConv1d, LazyConv2d, LazyConv3d = (_made("Conv", _LazyConvolution, conv, dims) for dims in (1, 2, 3))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    _made("ConvTranspose", _LazyTransposed, conv, dims) for dims in (1, 2, 3)
)
LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = (
    _made("BatchNorm", _LazyNorm, normalization, dims) for dims in (1, 2, 3)
)
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = (
    _made("InstanceNorm", _LazyInstanceNorm, normalization, dims) for dims in (1, 2, 3)
)
