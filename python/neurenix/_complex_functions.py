"""Functions of the namespace for complex arguments. The real functions call these when they are given complex numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _complex_matrices, _engine
from ._complex import ComplexTensor, as_complex, axis_of, tensor, wrap
from ._complex_methods import by_parts
from ._engine import NoComplexNumbers, Tensor

_of = _engine.Pair.of


def _kind(dtype: Any) -> Any:
    """A complex dtype; without ``dtype``, that of the default dtype."""
    kind = _engine.get_default_dtype() if dtype is None else _engine.dtype(dtype)
    return kind if kind.is_complex else kind.to_complex()


def _leaf(x: Tensor, requires_grad: bool) -> Tensor:
    return x.requires_grad_() if requires_grad else x


def _made(name: str) -> Callable[..., Tensor]:
    create = getattr(_engine, name)

    def function(
        *sizes: Any, size: Any = None, shape: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
    ) -> Tensor:
        given = sizes or ((size if shape is None else shape),)
        return _leaf(create(*given, dtype=_kind(dtype).to_real(), device=device).to(_kind(dtype)), requires_grad)

    return function


def full(
    size: Any = None, fill_value: Any = None, *, shape: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of one complex number."""
    if dtype is not None and not _engine.dtype(dtype).is_complex:
        raise TypeError(f"full: {fill_value} is complex, which {_engine.dtype(dtype).name} is not")
    size = shape if size is None else size
    kind = _kind(dtype if dtype is not None or not hasattr(fill_value, "dtype") else fill_value.dtype)
    value = tensor(fill_value, dtype=kind, device=device).reshape(())
    size = (size,) if hasattr(size, "__index__") else tuple(size)
    return _leaf(value.broadcast_to(size).contiguous(), requires_grad)


def full_like(x: Tensor, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of one number with the shape of ``x``."""
    kind = x.dtype if dtype is None else _engine.dtype(dtype)
    device = x.device if device is None else device
    if not kind.is_complex:
        return _engine.full(tuple(x.shape), fill_value, dtype=kind, device=device, requires_grad=requires_grad)
    return full(tuple(x.shape), fill_value, dtype=kind, device=device, requires_grad=requires_grad)


def _filled_like(value: int) -> Callable[..., Tensor]:
    def function(x: Tensor, /, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        return full_like(x, value, dtype=dtype, device=device, requires_grad=requires_grad)

    return function


def eye(n: int, m: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A matrix with ones on a diagonal."""
    from ._creation import eye as real

    return _leaf(real(n, m, k=k, dtype=_kind(dtype).to_real(), device=device).to(_kind(dtype)), requires_grad)


def linspace(
    start: Any, stop: Any = None, num: Any = None, *, end: Any = None, steps: Any = None, dtype: Any = None,
    device: Any = None, endpoint: bool = True, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Evenly spaced numbers on a line in the complex plane."""
    from ._creation import linspace as real

    first, last = complex(start), complex(end if stop is None else stop)
    count = steps if num is None else num
    options: Any = {"dtype": _kind(dtype).to_real(), "device": device, "endpoint": endpoint}
    parts = (real(first.real, last.real, count, **options), real(first.imag, last.imag, count, **options))
    return _leaf(wrap(_engine.stack(list(parts), -1)), requires_grad)


def _drawn(name: str) -> Callable[..., Tensor]:
    draw = getattr(_engine, name)
    # Each part has half of the variance of a normal number.
    scale = 0.5**0.5 if name == "randn" else 1.0

    def function(
        *sizes: Any, size: Any = None, generator: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
    ) -> Tensor:
        given = sizes if size is None else size
        given = (given,) if hasattr(given, "__index__") else tuple(given)
        given = tuple(given[0]) if len(given) == 1 and not hasattr(given[0], "__index__") else given
        pair = draw((*given, 2), generator=generator, dtype=_kind(dtype).to_real(), device=device)
        return _leaf(wrap(pair * scale if scale != 1.0 else pair), requires_grad)

    return function


def _alike(tensors: Any) -> list[Tensor]:
    """Tensors of one complex dtype, as pairs."""
    kind = tensors[0].dtype
    for each in tensors:
        kind = _engine.promote_types(kind, each.dtype)
    return [_of(each.to(kind)) for each in tensors]


def cat(tensors: Any, dim: int = 0, **options: Any) -> Tensor:
    """Concatenates tensors along a dimension."""
    dim = options.get("axis", dim)
    if dim is None:
        return cat([each.reshape(-1) for each in tensors])
    return wrap(_engine.cat(_alike(tensors), axis_of(tensors[0], dim)))


def stack(tensors: Any, dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Stacks tensors along a new dimension."""
    place = axis_of(tensors[0], dim if axis is None else axis, tensors[0].ndim + 1)
    return wrap(_engine.stack(_alike(tensors), place))


def where(condition: Tensor, first: Any = None, second: Any = None, /) -> Any:
    """``first`` where the condition holds, elsewhere ``second``."""
    if first is None and second is None:
        return condition.nonzero(as_tuple=True)
    like = first if isinstance(first, ComplexTensor) else second
    if not isinstance(like, ComplexTensor):
        like = as_complex(first if isinstance(first, Tensor) else second if isinstance(second, Tensor) else 0j, _default(condition))
    both = as_complex(first, like), as_complex(second, like)
    kind = _engine.promote_types(both[0].dtype, both[1].dtype)
    condition = condition._nonzero() if isinstance(condition, ComplexTensor) else condition
    return by_parts(_engine.where, condition, both[0].to(kind), both[1].to(kind))


def _default(condition: Tensor) -> Tensor:
    return _engine.zeros((), device=condition.device).to(_engine.get_default_dtype().to_complex())


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of a grid from its axes."""
    tensors = arrays[0] if len(arrays) == 1 and isinstance(arrays[0], (list, tuple)) else arrays
    return by_parts(_grid, *tensors, indexing=indexing)


def diff(x: Tensor, /, **options: Any) -> Tensor:
    """The differences of adjacent elements along an axis."""
    from ._reductions import diff as real

    z = as_complex(x, x)
    options |= {key: as_complex(options[key], z) for key in ("prepend", "append") if options.get(key) is not None}
    return by_parts(real, z, **options)


def _grid(*tensors: Tensor, indexing: str) -> Any:
    return _engine.meshgrid(list(tensors), indexing)


def einsum(equation: str, *operands: Any) -> Tensor:
    """A sum of products over named dimensions."""
    operands = tuple(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    if "->" not in equation:
        inputs = equation.replace(" ", "")
        letters = sorted({each for each in inputs if each.isalpha() and inputs.count(each) == 1})
        equation = f"{inputs}->{'...' if '...' in inputs else ''}{''.join(letters)}"
    inputs, output = equation.replace(" ", "").split("->")
    terms = inputs.split(",")
    if len(terms) == 1:
        return by_parts(_engine.einsum, equation, operands[0])
    if len(terms) == 2:
        return _product(equation, *operands)
    # Pairs from the left: what later terms or the output name is kept.
    rest = "".join(terms[2:]) + output
    kept = "".join(dict.fromkeys(each for each in terms[0] + terms[1] if each.isalpha() and each in rest))
    kept = "..." * ("..." in terms[0] + terms[1]) + kept
    first = _product(f"{terms[0]},{terms[1]}->{kept}", operands[0], operands[1])
    return einsum(f"{','.join([kept, *terms[2:]])}->{output}", first, *operands[2:])


def _product(equation: str, x: Tensor, y: Tensor) -> Tensor:
    if not isinstance(x, ComplexTensor) and not isinstance(y, ComplexTensor):
        return _engine.einsum(equation, x, y)
    if not isinstance(x, ComplexTensor):
        return by_parts(lambda part: _engine.einsum(equation, x.to(part.dtype), part), y)
    if not isinstance(y, ComplexTensor):
        return by_parts(lambda part: _engine.einsum(equation, part, y.to(part.dtype)), x)
    kind = _engine.promote_types(x.dtype, y.dtype)
    (a, b), (c, d) = ((z.to(kind).real, z.to(kind).imag) for z in (x, y))
    real = _engine.einsum(equation, a, c) - _engine.einsum(equation, b, d)
    return wrap(_engine.stack([real, _engine.einsum(equation, a, d) + _engine.einsum(equation, b, c)], -1))


def isclose(x: Tensor, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Where elements agree within ``atol + rtol * abs(y)``."""
    x = as_complex(x, x if isinstance(x, ComplexTensor) else y)
    y = as_complex(y, x)
    close = ((x - y).abs() <= atol + rtol * y.abs()) & y.isfinite() | (x == y)
    return close | (x.isnan() & y.isnan()) if equal_nan else close


def allclose(x: Tensor, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements agree within ``atol + rtol * abs(y)``."""
    return bool(isclose(x, y, rtol, atol, equal_nan).all())


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The inner products of vectors along an axis; the first are conjugated."""
    return (x1.conj() * x2).sum(axis)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``."""
    found = as_complex(input, weight if isinstance(weight, ComplexTensor) else input) @ weight.mT
    return found if bias is None else found + bias


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``|input - target|``."""
    from .nn._losses import l1_loss as real

    if tuple(input.shape) != tuple(target.shape):
        raise ValueError(f"l1_loss: shapes {tuple(input.shape)} and {tuple(target.shape)} differ")
    distance = (input - target).abs()
    return real(distance, _engine.full_like(distance, 0), reduction)


def _again(name: str) -> Callable[..., Any]:
    """The function itself, of operands that are all complex."""

    def function(*args: Any, **kwargs: Any) -> Any:
        from . import _functions, _manipulation, _methods

        found = next(vars(each)[name] for each in (_manipulation, _functions, _methods) if name in vars(each))
        if all(isinstance(x, ComplexTensor) for x in args if isinstance(x, Tensor)):
            raise NoComplexNumbers(f"{name} does not take complex numbers yet")
        return found(*(as_complex(x, x) if isinstance(x, Tensor) else x for x in args), **kwargs)

    return function


_AGAIN = "matmul mm bmm dot tensordot outer inner mv ger".split()
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "zeros": _made("zeros"), "ones": _made("ones"), "empty": _made("zeros"), "full": full, "full_like": full_like,
    "zeros_like": _filled_like(0), "empty_like": _filled_like(0), "ones_like": _filled_like(1), "eye": eye, "linspace": linspace, "rand": _drawn("rand"),
    "randn": _drawn("randn"), "cat": cat, "concat": cat, "stack": stack, "where": where, "meshgrid": meshgrid,
    "einsum": einsum, "diff": diff, "kron": lambda x, y: as_complex(x, y).kron(y), "isreal": lambda x: x.imag == 0,
    "isclose": isclose, "allclose": allclose, "vecdot": vecdot,
    "lerp": lambda input, end, weight: as_complex(input, end).lerp(end, weight), "linear": linear, "l1_loss": l1_loss,
    **_complex_matrices.FUNCTIONS, **{name: _again(name) for name in _AGAIN},
}  # fmt: skip
"""The implementations by the names of the functions."""
