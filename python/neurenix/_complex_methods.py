"""The methods of complex tensors that are made of those of real ones; ``attach`` adds them to the class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _complex, _complex_shapes, _engine
from ._complex import ComplexTensor, as_complex, axis_of, combined, implementation, unwrap, wrap
from ._engine import NoComplexNumbers, Tensor
from ._floating import common_dtype

_of = _engine.Pair.of
_UNARY = (
    "conj sign square reciprocal exp expm1 log log1p log2 log10 sqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh "
    "atanh sigmoid"
).split()
_TO_REAL = "abs angle isnan isinf isfinite".split()
_ALIASES = {"absolute": "abs", "sgn": "sign", "conj_physical": "conj", "resolve_conj": "clone", "arcsin": "asin"}
#: Methods that act on each part, whose arguments are numbers, or real or complex tensors.
_BY_PARTS = (
    "roll flip repeat tile repeat_interleave tril triu diag gather take_along_dim index_select take scatter scatter_add "
    "index_add index_copy masked_select trace fliplr flipud rot90 diff diag_embed round"
).split()
#: Those of them that store other values.
_STORING = ("scatter", "scatter_add", "index_add", "index_copy")
#: Methods whose pairs are views of this tensor's pairs, with arguments that mean the same for both.
_VIEWS = "narrow select split chunk unbind tensor_split".split()


def _pairs(name: str, *operands: Tensor, **options: Any) -> Any:
    return _engine.complex_function(name, *map(_of, operands), **options)


def _unary(name: str, is_real: bool) -> Callable[[Tensor], Tensor]:
    def method(self: Tensor) -> Tensor:
        found = _pairs(name, self)
        return found if is_real else wrap(found)

    method.__doc__ = f"``{name}`` of each element."
    return method


def _recombined(real: Any, imaginary: Any) -> Any:
    if isinstance(real, Tensor):
        return combined(real, imaginary)
    return type(real)(map(_recombined, real, imaginary))


def by_parts(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A linear function of the real and of the imaginary parts."""

    def part(value: Any, name: str) -> Any:
        if isinstance(value, (ComplexTensor, complex)):
            return getattr(value, name)
        # Real values have no imaginary part; integers and masks are indices.
        if name == "imag" and isinstance(value, Tensor) and value.dtype.is_floating_point:
            return value * 0
        return value

    def called(name: str) -> Any:
        named = {key: part(value, name) for key, value in kwargs.items()}
        return function(*(part(value, name) for value in args), **named)

    return _recombined(called("real"), called("imag"))


def _of_parts(name: str) -> Callable[..., Any]:
    real = getattr(Tensor, name)

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        dtype = kwargs.pop("dtype", None)
        z = self if dtype is None else self.to(dtype)
        if name in _STORING:
            # The last argument, which is stored, may be a number or integers.
            args = tuple(as_complex(x, self) if place == 2 and x is not None else x for place, x in enumerate(args))
            kwargs |= {key: complex(kwargs[key]) for key in ("value",) if kwargs.get(key) is not None}
            kwargs |= {key: as_complex(kwargs[key], self) for key in ("src", "source") if kwargs.get(key) is not None}
        return by_parts(real, z, *args, **kwargs)

    method.__doc__ = real.__doc__
    return method


def _along(name: str) -> Callable[..., Any]:
    """A view along an axis."""

    def method(self: Tensor, *args: Any, dim: Any = None, **kwargs: Any) -> Any:
        if name in ("narrow", "select"):
            dim, args = (args[0], args[1:]) if dim is None else (dim, args)
            found = getattr(_of(self), name)(axis_of(self, dim), *args, **kwargs)
        elif name == "unbind":
            dim = args[0] if args else 0 if dim is None else dim
            found = _of(self).unbind(axis_of(self, dim))
        else:
            dim = args[1] if len(args) > 1 else 0 if dim is None else dim
            found = getattr(_of(self), name)(*args[:1], dim=axis_of(self, dim), **kwargs)
        return wrap(found) if isinstance(found, Tensor) else type(found)(map(wrap, found))

    method.__doc__ = getattr(Tensor, name).__doc__
    return method


def diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonals over two dimensions, as the last dimension."""
    return by_parts(Tensor.diagonal, self, offset, dim1, dim2)


# Operators.
def _scaled(self: Tensor, other: Tensor, name: str) -> Tensor:
    """A product or quotient with real numbers, of which each belongs to both parts."""
    pair = _of(self).to(common_dtype(self, other).to_real())
    shape = _engine.broadcast_shapes(tuple(self.shape), tuple(other.shape))
    pair = pair.reshape(*(1,) * (len(shape) - self.ndim), *pair.shape)
    return wrap(getattr(pair, name)(other.to(pair.dtype).unsqueeze(-1)))


def _is_operand(x: Any) -> bool:
    return isinstance(x, (Tensor, int, float, complex)) or hasattr(x, "__array_interface__")


def _arithmetic(name: str, method: str) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    def forward(self: Tensor, other: Any) -> Any:
        if not _is_operand(other):
            return NotImplemented
        if name in ("mul", "div") and not isinstance(other, (ComplexTensor, complex)):
            if not hasattr(other, "dtype"):
                return wrap(getattr(_of(self), name)(other))
            if isinstance(other, Tensor):
                return _scaled(self, other, name)
        return wrap(_pairs(name, *_promoted(self, as_complex(other, self))))

    def backward(self: Tensor, other: Any) -> Any:
        if name in ("add", "mul"):
            return forward(self, other)
        if not _is_operand(other):
            return NotImplemented
        return wrap(_pairs(name, *_promoted(as_complex(other, self), self)))

    def function(self: Tensor, other: Any, *, alpha: Any = 1, rounding_mode: None = None) -> Tensor:
        if rounding_mode is not None:
            raise NoComplexNumbers(f"{method}: complex numbers cannot be rounded down")
        found = forward(self, other if alpha == 1 else other * alpha)
        if found is NotImplemented:
            raise TypeError(f"{method}: expected a tensor or a number, got {type(other).__name__}")
        return found

    return forward, backward, function


def _promoted(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    kind = common_dtype(first, second)
    return first.to(kind), second.to(kind)


def _power(self: Tensor, exponent: Any) -> Any:
    """``self ** exponent``."""
    if not _is_operand(exponent):
        return NotImplemented
    if not hasattr(exponent, "dtype"):
        z = complex(exponent)
        if z == 0.5:
            return self.sqrt()
        if z.imag == 0 and abs(z.real) <= 64 and z.real.is_integer():
            return wrap(_engine.complex_function("powi", _of(self), exponent=int(z.real)))
    return wrap(_pairs("pow", *_promoted(self, as_complex(exponent, self))))


def _power_of(self: Tensor, base: Any) -> Any:
    if not _is_operand(base):
        return NotImplemented
    return wrap(_pairs("pow", *_promoted(as_complex(base, self), self)))


def matmul(self: Tensor, other: Any, out_dtype: Any = None) -> Any:
    """The product of matrices, batches of matrices, and vectors."""
    if out_dtype is not None:
        raise NoComplexNumbers("matmul: out_dtype is not supported for complex numbers")
    if not isinstance(other, Tensor) and not hasattr(other, "__array_interface__"):
        return NotImplemented
    return wrap(_pairs("matmul", *_promoted(self, as_complex(other, self))))


def _matmul_of(self: Tensor, other: Any) -> Any:
    return matmul(as_complex(other, self), self)


def _equal(self: Tensor, other: Any) -> Any:
    if not _is_operand(other):
        return NotImplemented
    return _pairs("eq", *_promoted(self, as_complex(other, self)))


def _unequal(self: Tensor, other: Any) -> Any:
    found = _equal(self, other)
    return found if found is NotImplemented else found.logical_not()


def neg(self: Tensor) -> Tensor:
    """``-self``."""
    return wrap(-_of(self))


def where(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """The elements of this tensor where ``condition`` is true, and of ``other`` elsewhere."""
    return implementation("where")(condition, self, other)


def masked_fill(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    """A copy in which ``value`` replaces the elements where the mask is true."""
    return implementation("where")(mask, value, self)


# Reductions.
def _axes(self: Tensor, dim: Any) -> list[int]:
    if dim is None:
        return []
    return [axis_of(self, axis) for axis in ([dim] if hasattr(dim, "__index__") else dim)]


def _summed(name: str) -> Callable[..., Tensor]:
    real = getattr(Tensor, name)

    def method(
        self: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None, *, axis: Any = None, keepdims: bool = False
    ) -> Tensor:
        z = self if dtype is None else self.to(dtype)
        options = {"axis": axis, "keepdims": keepdims}
        return by_parts(real, z, dim, keepdim, **options) if z.dtype.is_complex else real(z, dim, keepdim, **options)

    method.__doc__ = real.__doc__
    return method


def cumsum(self: Tensor, dim: Any = None, dtype: Any = None, *, axis: Any = None) -> Tensor:
    """The cumulative sum along a dimension."""
    z = self if dtype is None else self.to(dtype)
    real = Tensor.cumsum
    return by_parts(real, z, dim, axis=axis) if z.dtype.is_complex else real(z, dim, axis=axis)


def prod(self: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The product over dimensions."""
    z = self if dtype is None else self.to(dtype)
    dim, keepdim = dim if axis is None else axis, keepdim or keepdims
    axes = _axes(self, dim)
    if dim is not None and not axes or self.ndim == 0:
        return z.clone()
    return wrap(_engine.complex_reduction("prod", _of(z), axes, keepdim))


def cumprod(self: Tensor, dim: Any = None, dtype: Any = None, *, axis: Any = None) -> Tensor:
    """The cumulative product along a dimension."""
    z = self if dtype is None else self.to(dtype)
    place = axis_of(self, dim if axis is None else axis)
    return wrap(_engine.complex_reduction("cumprod", _of(z), [place], False))


def _variance(name: str) -> Callable[..., Tensor]:
    real = getattr(Tensor, "var")

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        found = real(self.real, *args, **kwargs) + real(self.imag, *args, **kwargs)
        return found.sqrt() if name == "std" else found

    method.__doc__ = getattr(Tensor, name).__doc__
    return method


def _of_nonzero(name: str) -> Callable[..., Any]:
    real = getattr(Tensor, name)

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        others = (other._nonzero() if isinstance(other, ComplexTensor) else other for other in args)
        return real(self._nonzero(), *others, **kwargs)  # type: ignore[attr-defined]

    method.__doc__ = real.__doc__
    return method


def dot(self: Tensor, other: Tensor) -> Tensor:
    """The sum of products of two vectors; no number is conjugated."""
    return (self * other).sum()


def outer(self: Tensor, other: Tensor) -> Tensor:
    """The products of all elements of two vectors."""
    return self.unsqueeze(1) * other


def kron(self: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: blocks of ``other`` times each element."""
    rank = max(self.ndim, other.ndim)
    first, second = ((*(1,) * (rank - x.ndim), *x.shape) for x in (self, other))
    rows = self.reshape([size for each in first for size in (each, 1)])
    columns = as_complex(other, self).reshape([size for each in second for size in (1, each)])
    return (rows * columns).reshape([a * b for a, b in zip(first, second)])


def is_same(self: Tensor, other: Tensor) -> bool:
    """Whether both hold the same value."""
    return _of(self).is_same(unwrap(other))


def _searched(self: Tensor, *args: Any) -> Any:
    raise NoComplexNumbers("complex numbers have no order")


def _unique(self: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct elements by their real, then their imaginary parts, inverse indices, and counts."""
    flat = self.detach().reshape(-1)
    size = flat.numel()
    if size == 0:
        empty = _engine.zeros(0, dtype="int64", device=self.device)
        return flat, empty.reshape(tuple(self.shape)), empty
    order = flat.imag.argsort()
    order = order.index_select(0, flat.real.index_select(0, order).argsort())
    ordered = flat.index_select(0, order)
    differs = _unequal(ordered[1:], ordered[:-1]).to("int64")
    number = _engine.cat([_engine.zeros(1, dtype="int64", device=self.device), differs.cumsum(0)], 0)
    inverse = _engine.full((size,), 0, dtype="int64", device=self.device).scatter(0, order, number)
    counts = _engine.zeros(int(number[-1].item()) + 1, dtype="int64", device=self.device)
    counts = counts.scatter_add(0, number, number * 0 + 1)
    starts = counts.cumsum(0) - counts
    return ordered.index_select(0, starts), inverse.reshape(tuple(self.shape)), counts


def _in_place(name: str) -> Callable[..., Tensor]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        found = getattr(self, name)(*args, **kwargs)
        if tuple(found.shape) != tuple(self.shape):
            raise ValueError(f"{name}_: shapes {self.shape} and {found.shape}: an in-place operation cannot change the shape")
        return self.copy_(found)

    method.__doc__ = f"``{name}`` in place."
    return method


def _refused(name: str) -> Callable[..., Any]:
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return implementation(name)(self, *args, **kwargs)

    method.__doc__ = f"``{name}`` does not take complex numbers."
    return method


def pad(self: Tensor, padding: Any, value: Any = None) -> Tensor:
    """Pads with ``value``: pairs of widths from the last dimension to the first."""
    return by_parts(Tensor.pad, self, padding, complex(value or 0))


def rsqrt(self: Tensor) -> Tensor:
    """``1 / sqrt(self)``."""
    return self.sqrt().reciprocal()


def lerp(self: Tensor, end: Tensor, weight: Any) -> Tensor:
    """``self + weight * (end - self)``."""
    return self + (end - self) * weight


def uniform_(self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills both parts with uniform numbers in [a, b), in place."""
    _of(self).uniform_(a, b, generator=generator)
    return self


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills with complex normal numbers of this variance, half of which is that of each part; in place."""
    _of(self).normal_(0.0, std * 0.5**0.5, generator=generator)
    return self if mean == 0 else self.copy_(self + mean)


def _created(name: str) -> Callable[..., Any]:
    create = name.removeprefix("new_").replace("empty", "zeros")

    def method(self: Tensor, *args: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        options: dict[str, Any] = {"dtype": dtype or self.dtype, "device": device or self.device}
        options["requires_grad"] = requires_grad
        function = _complex.tensor if create == "tensor" else _complex.with_complex(create, getattr(_engine, create))
        return function(*args, **options)

    method.__doc__ = getattr(Tensor, name).__doc__
    return method


#: What works for every tensor: it knows complex numbers, or does not read the values.
_KEPT = "is_complex cfloat cdouble detach_ requires_grad_ dim element_size numel nelement size is_floating_point stft istft".split()
#: Composed of operations that know complex numbers.
_COMPOSED = """
addbmm addcdiv addcdiv_ addcmul addcmul_ addmm addmv addr baddbmm cholesky cholesky_inverse cholesky_solve det equal inverse
matrix_power pinverse qr slogdet svd triangular_solve vdot
""".split()

_IN_PLACE = "add sub mul div pow neg masked_fill subtract multiply divide rsqrt lerp tril triu cumsum cumprod conj_physical".split()


def _methods() -> dict[str, Any]:
    """All methods by their names."""
    found: dict[str, Any] = {}
    for name in _UNARY + _TO_REAL:
        found[name] = _unary(name, name in _TO_REAL)
    for name, same in _ALIASES.items():
        found[name] = found.get(same) or getattr(ComplexTensor, same)
    for name in _BY_PARTS:
        if hasattr(Tensor, name):
            found[name] = _of_parts(name)
    for name in _VIEWS:
        found[name] = _along(name)
    operators = {"add": "__add__ __radd__", "sub": "__sub__ __rsub__", "mul": "__mul__ __rmul__"}
    operators["div"] = "__truediv__ __rtruediv__"
    longer = {"sub": ["subtract"], "mul": ["multiply"], "div": ["divide", "true_divide"]}
    for name, both in operators.items():
        forward, backward, function = _arithmetic(name, name)
        found.update(zip(both.split(), (forward, backward)))
        for each in [name, *longer.get(name, [])]:
            found[each] = function
    for name in (
        "reshape view view_as permute transpose t adjoint movedim expand broadcast_to expand_as squeeze unsqueeze flatten "
        "ravel unflatten"
    ).split():
        found[name] = getattr(_complex_shapes, name)
    here = globals()
    for name in (
        "diagonal matmul neg where masked_fill prod cumsum cumprod dot outer kron is_same _unique normal_ "
        "uniform_ pad rsqrt lerp"
    ).split():
        found[name] = here[name]
    found |= {"reshape_as": found["view_as"], "swapaxes": found["transpose"], "swapdims": found["transpose"], "moveaxis": found["movedim"], "sum": _summed("sum")}
    found |= {"mean": _summed("mean"), "nansum": _summed("nansum")}
    found |= {"mm": matmul, "bmm": matmul, "mv": matmul, "ger": outer, "negative": neg, "pow": _power}
    found |= {"__pow__": _power, "__rpow__": _power_of, "__matmul__": matmul, "__rmatmul__": _matmul_of, "eq": _equal}
    found |= {"__eq__": _equal, "__ne__": _unequal, "ne": _unequal, "__neg__": neg, "__abs__": found["abs"]}
    found |= {"__pos__": ComplexTensor.clone, "var": _variance("var"), "std": _variance("std"), "sort": _searched}
    for name in "all any count_nonzero nonzero logical_not logical_and logical_or logical_xor".split():
        found[name] = _of_nonzero(name)
    for name in "new_tensor new_full new_zeros new_ones new_empty".split():
        found[name] = _created(name)
    for name in [*_UNARY, *_IN_PLACE, *_BY_PARTS]:
        found[f"{name}_"] = _in_place(name)
    for name, operation in ("__iadd__", "add"), ("__isub__", "sub"), ("__imul__", "mul"), ("__itruediv__", "div"):
        found[name] = found[f"{operation}_"]
    found["__ipow__"] = found["pow_"]
    adjoint = _complex_shapes.adjoint
    properties = {"T": _complex_shapes.transposed, "mT": _complex_shapes.matrices_transposed, "mH": adjoint, "H": adjoint}
    found |= {name: property(function) for name, function in properties.items()}
    return found


def _conversion(dtype: str) -> Callable[[Tensor], Tensor]:
    def method(self: Tensor) -> Tensor:
        return self.to(dtype)

    method.__doc__ = f"Converts to ``{dtype}``."
    return method


def attach() -> None:
    """Adds the methods of complex tensors. All other methods of real tensors refuse complex ones by name."""
    for kind, dtype in zip("float double half bfloat16 int long".split(), "float32 float64 float16 bfloat16 int32 int64".split()):
        setattr(ComplexTensor, kind, _conversion(dtype))
    setattr(ComplexTensor, "bool", ComplexTensor._nonzero)
    for name, method in _methods().items():
        setattr(ComplexTensor, name, method)
    for name in list(vars(Tensor)):
        if name in vars(ComplexTensor) or name in (*_KEPT, *_COMPOSED) or name.startswith("_"):
            continue
        if callable(getattr(Tensor, name)):
            setattr(ComplexTensor, name, _refused(name))
