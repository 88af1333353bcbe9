"""Gradients, Jacobians and Hessians as functions of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import _engine, _trees
from .._autograd import enable_grad
from .._engine import Tensor
from ._vmap import vmap

Argnums = Any
"""The position of an argument, or a tuple of positions."""


class _Variables:
    """The tensors among some values, replaced by variables to differentiate with respect to."""

    def __init__(self, name: str, values: Any) -> None:
        given, self.structure = _trees.flatten(values)
        for value in given:
            if not isinstance(value, Tensor):
                kind = type(value).__name__
                raise TypeError(f"{name}: expected tensors to differentiate with respect to, got {kind}")
            if not value.dtype.name.startswith(("float", "bfloat")):
                raise TypeError(f"{name}: expected floating-point tensors, got {value.dtype}")
        with enable_grad():
            self.tensors = [_engine.as_variable(value) for value in given]
        self.fresh = [variable for variable, value in zip(self.tensors, given) if not value.requires_grad]
        self.is_attached = len(self.fresh) < len(given)

    def values(self) -> Any:
        return _trees.unflatten(self.structure, self.tensors)

    def is_followed(self, outputs: list[Tensor]) -> bool:
        """Whether something else than these variables collects gradients of the outputs."""
        return self.is_attached or any(
            output.requires_grad and _engine.depends_on_others(output, self.fresh) for output in outputs
        )

    def settle(self, results: list[Tensor]) -> list[Tensor]:
        """Results without gradients, unless something else than these variables collects them."""
        return results if self.is_followed(results) else [result.detach() for result in results]


def _positions(name: str, func: Any, argnums: Argnums, count: int) -> list[int]:
    if not callable(func):
        raise TypeError(f"{name}: expected a function, got {type(func).__name__}")
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    for number in numbers:
        if not -count <= number < count:
            raise RuntimeError(f"{name}: argnums has {number}, but the call has {count} positional arguments")
    return [number % count for number in numbers]


def _replaced(args: tuple[Any, ...], positions: list[int], values: Any) -> list[Any]:
    replaced = list(args)
    for position, value in zip(positions, values):
        replaced[position] = value
    return replaced


def _split(result: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise RuntimeError(f"{name}: with has_aux=True, the function must return a tuple of the output and the rest")
    return result


def _gradients(
    outputs: list[Tensor], gradients: list[Tensor | None], inputs: list[Tensor], create_graph: bool
) -> list[Tensor]:
    """Gradients of outputs; zeros where no output depends on an input. The graph is kept."""
    pairs = [(output, gradient) for output, gradient in zip(outputs, gradients) if output.requires_grad]
    found: list[Tensor | None] = [None] * len(inputs)
    if pairs:
        roots, seeds = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        found = _engine.gradients_of_all(roots, seeds, inputs, retain_graph=True, create_graph=create_graph)
    return [
        _engine.full_like(one.detach(), 0) if gradient is None else gradient for one, gradient in zip(inputs, found)
    ]


def grad_and_value(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Returns a function that computes the gradient of ``func``, which returns a scalar tensor, and its value.

    The gradient is that of the arguments ``argnums``, nested as they are. With ``has_aux``, ``func`` returns a tuple of
    its value and something else, and so does the new function: ``gradient, (value, aux)``.

    >>> import neurenix as nx
    >>> gradient, value = nx.func.grad_and_value(lambda x: (x * x).sum())(nx.tensor([1.0, 2.0]))
    >>> gradient.tolist(), value.item()
    ([2.0, 4.0], 5.0)
    """

    @functools.wraps(func)
    def computed(*args: Any, **kwargs: Any) -> Any:
        positions = _positions("grad", func, argnums, len(args))
        variables = _Variables("grad", [args[position] for position in positions])
        with enable_grad():
            result = func(*_replaced(args, positions, variables.values()), **kwargs)
        value, aux = _split(result, has_aux, "grad")
        if not isinstance(value, Tensor):
            raise RuntimeError(f"grad: the function must return a tensor, got {type(value).__name__}")
        if value.ndim != 0:
            raise RuntimeError(f"grad: the function must return a scalar tensor, got one of shape {tuple(value.shape)}")
        found = _gradients([value], [None], variables.tensors, variables.is_followed([value]))
        gradients = _trees.unflatten(variables.structure, found)
        gradient = gradients[0] if isinstance(argnums, int) else tuple(gradients)
        (settled,) = variables.settle([value])
        return gradient, (settled, _plain(aux, variables)) if has_aux else settled

    return computed


def _plain(aux: Any, variables: _Variables) -> Any:
    tensors = [value for value in _trees.flatten(aux)[0] if isinstance(value, Tensor) and value.requires_grad]
    settled = {id(tensor): new for tensor, new in zip(tensors, variables.settle(tensors))}
    return _trees.map_values(lambda value: settled.get(id(value), value), aux)


def grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Returns a function that computes the gradient of ``func``; see :func:`grad_and_value`. With ``has_aux``, it
    returns ``gradient, aux``.

    >>> import neurenix as nx
    >>> nx.func.grad(nx.func.grad(lambda x: x ** 3))(nx.tensor(2.0)).item()
    12.0
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def computed(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return computed


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value of ``func(*primals)``, and a function that computes the product of a vector, nested as the value, with
    the Jacobian: a tuple with a gradient for each primal. With ``has_aux``, a third result is what ``func`` returns
    besides.

    >>> import neurenix as nx
    >>> value, pull = nx.func.vjp(lambda x: x * x, nx.tensor([1.0, 2.0]))
    >>> pull(nx.tensor([1.0, 10.0]))[0].tolist()
    [2.0, 40.0]
    """
    variables = _Variables("vjp", list(primals))
    with enable_grad():
        value, aux = _split(func(*variables.values()), has_aux, "vjp")
    outputs, structure = _trees.flatten(value)
    _check_tensors("vjp", outputs)

    def pull(*cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given, shape = _trees.flatten(cotangents[0] if len(cotangents) == 1 else cotangents)
        if len(given) != len(outputs) or (len(cotangents) == 1 and shape != structure and len(given) > 1):
            raise RuntimeError("vjp: expected cotangents that are nested as the function's value")
        found = _gradients(outputs, given, variables.tensors, variables.is_followed([*outputs, *given]))
        return tuple(_trees.unflatten(variables.structure, found))

    settled = _trees.unflatten(structure, variables.settle(outputs))
    return (settled, pull, _plain(aux, variables)) if has_aux else (settled, pull)


def _check_tensors(name: str, outputs: list[Any]) -> None:
    if not outputs:
        raise RuntimeError(f"{name}: the function returned no tensors")
    for output in outputs:
        if not isinstance(output, Tensor):
            raise RuntimeError(f"{name}: the function must return tensors, got {type(output).__name__}")


def _pushed(
    variables: list[Tensor], outputs: list[Tensor], tangents: list[Tensor], create_graph: bool
) -> list[Tensor]:
    """The products of the Jacobians with tangents. The gradient ``g(v)`` of the variables is linear in the gradient
    ``v`` of the outputs, so the gradient of ``g(v) . tangents`` with respect to ``v`` is the product."""
    tracked = [output for output in outputs if output.requires_grad]
    with enable_grad():
        seeds = [_engine.as_variable(_engine.full_like(output.detach(), 0)) for output in tracked]
        first = _gradients(tracked, list(seeds), variables, create_graph=True) if tracked else []
        pairs = [(one, tangent) for one, tangent in zip(first, tangents) if one.requires_grad]
        pushed: list[Tensor | None] = [None] * len(seeds)
        if pairs:
            roots = [one for one, _ in pairs]
            pushed = _engine.gradients_of_all(
                roots, [tangent for _, tangent in pairs], seeds, retain_graph=True, create_graph=create_graph
            )
    rest = iter(pushed)
    found = [next(rest) if output.requires_grad else None for output in outputs]
    return [
        _engine.full_like(output.detach(), 0) if one is None else one for output, one in zip(outputs, found)
    ]


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """The value of ``func(*primals)`` and the product of its Jacobian with ``tangents``, both nested as the value.

    It is computed by two reverse passes, so the gradient of ``func`` must be differentiable. With ``strict``, a result
    that does not depend on the primals is an error. With ``has_aux``, a third result is what ``func`` returns besides.

    >>> import neurenix as nx
    >>> value, tangent = nx.func.jvp(lambda x: x ** 3, (nx.tensor(2.0),), (nx.tensor(1.0),))
    >>> value.item(), tangent.item()
    (8.0, 12.0)
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError("jvp: expected tuples of primals and of tangents")
    variables = _Variables("jvp", list(primals))
    directions = _directions("jvp", variables, tangents)
    with enable_grad():
        value, aux = _split(func(*variables.values()), has_aux, "jvp")
    outputs, structure = _trees.flatten(value)
    _check_tensors("jvp", outputs)
    if strict and not all(output.requires_grad for output in outputs):
        raise RuntimeError("jvp: with strict=True, every result must depend on the primals")
    is_followed = variables.is_followed([*outputs, *directions])
    pushed = _pushed(variables.tensors, outputs, directions, is_followed)
    results = (_trees.unflatten(structure, variables.settle(outputs)), _trees.unflatten(structure, pushed))
    return (*results, _plain(aux, variables)) if has_aux else results


def _directions(name: str, variables: _Variables, tangents: tuple[Any, ...]) -> list[Tensor]:
    given, structure = _trees.flatten(list(tangents))
    if structure != variables.structure:
        raise RuntimeError(f"{name}: expected tangents that are nested as the primals")
    for primal, tangent in zip(variables.tensors, given):
        if tuple(primal.shape) != tuple(tangent.shape):
            shapes = f"{tuple(primal.shape)} and {tuple(tangent.shape)}"
            raise RuntimeError(f"{name}: a primal and its tangent have the shapes {shapes}")
    return given


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The value of ``func(*primals)``, and a function that computes the product of its Jacobian with tangents. The
    function can be called many times, and ``func`` is called once.

    >>> import neurenix as nx
    >>> value, push = nx.func.linearize(lambda x: x ** 3, nx.tensor(2.0))
    >>> value.item(), push(nx.tensor(1.0)).item(), push(nx.tensor(2.0)).item()
    (8.0, 12.0, 24.0)
    """
    variables = _Variables("linearize", list(primals))
    with enable_grad():
        value = func(*variables.values())
    outputs, structure = _trees.flatten(value)
    _check_tensors("linearize", outputs)

    def push(*tangents: Any) -> Any:
        directions = _directions("linearize", variables, tangents)
        is_followed = variables.is_followed([*outputs, *directions])
        return _trees.unflatten(structure, _pushed(variables.tensors, outputs, directions, is_followed))

    return _trees.unflatten(structure, variables.settle(outputs)), push


def _basis(tensors: list[Tensor]) -> list[Tensor]:
    """For each tensor, its parts of the unit vectors of all tensors together: of shape (all elements, shape...)."""
    total = sum(tensor.numel() for tensor in tensors)
    parts, start = [], 0
    for tensor in tensors:
        size = tensor.numel()
        block = _engine.eye(total, dtype=tensor.dtype, device=tensor.device)[:, start : start + size]
        parts.append(block.reshape(total, *tensor.shape))
        start += size
    return parts


def _rows(table: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """Parts of the first axis for tensors, with their shapes."""
    parts, start = [], 0
    for tensor in tensors:
        part = table[start : start + tensor.numel()]
        parts.append(part.reshape(*tensor.shape, *table.shape[1:]))
        start += tensor.numel()
    return parts


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """Returns a function that computes the Jacobian of ``func`` with respect to the arguments ``argnums``, by one
    reverse pass for all elements of the result (``chunk_size`` at a time): best for few results of many arguments.

    The Jacobian has the shape of the result followed by that of the argument. For nested results it is nested as they
    are, and then as the arguments are.

    >>> import neurenix as nx
    >>> nx.func.jacrev(lambda x: x * x)(nx.tensor([1.0, 3.0])).tolist()
    [[2.0, 0.0], [0.0, 6.0]]
    """

    @functools.wraps(func)
    def computed(*args: Any, **kwargs: Any) -> Any:
        positions = _positions("jacrev", func, argnums, len(args))
        variables = _Variables("jacrev", [args[position] for position in positions])
        with enable_grad():
            result = func(*_replaced(args, positions, variables.values()), **kwargs)
        value, aux = _split(result, has_aux, "jacrev")
        outputs, structure = _trees.flatten(value)
        _check_tensors("jacrev", outputs)
        if any(output.numel() for output in outputs):
            is_followed = variables.is_followed(outputs)
            pull = vmap(
                lambda *seeds: _gradients(outputs, list(seeds), variables.tensors, is_followed), chunk_size=chunk_size
            )
            tables = pull(*_basis(outputs))
        else:
            tables = [_engine.zeros((0, *one.shape), dtype=one.dtype, device=one.device) for one in variables.tensors]
        # For each argument, a part for each output.
        parts = [_rows(table, outputs) for table in tables]
        jacobians = []
        for index in range(len(outputs)):
            own = _trees.unflatten(variables.structure, [part[index] for part in parts])
            jacobians.append(own[0] if isinstance(argnums, int) else tuple(own))
        jacobian = _trees.unflatten(structure, jacobians)
        return (jacobian, _plain(aux, variables)) if has_aux else jacobian

    return computed


def jacfwd(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """As :func:`jacrev`, by products with tangents (see :func:`jvp`): best for many results of few arguments. Its
    results have the same shapes.

    >>> import neurenix as nx
    >>> nx.func.jacfwd(lambda x: x.sum() ** 2)(nx.tensor([1.0, 2.0])).tolist()
    [6.0, 6.0]
    """

    @functools.wraps(func)
    def computed(*args: Any, **kwargs: Any) -> Any:
        positions = _positions("jacfwd", func, argnums, len(args))
        variables = _Variables("jacfwd", [args[position] for position in positions])
        with enable_grad():
            result = func(*_replaced(args, positions, variables.values()), **kwargs)
        value, aux = _split(result, has_aux, "jacfwd")
        outputs, structure = _trees.flatten(value)
        _check_tensors("jacfwd", outputs)
        inputs = variables.tensors
        if any(one.numel() for one in inputs):
            is_followed = variables.is_followed(outputs)
            push = vmap(
                lambda *tangents: _pushed(inputs, outputs, list(tangents), is_followed),
                randomness=randomness,
                chunk_size=chunk_size,
            )
            tables = push(*_basis(inputs))
        else:
            tables = [_engine.zeros((0, *one.shape), dtype=one.dtype, device=one.device) for one in outputs]
        jacobians = []
        for table in tables:
            columns = [
                part.permute(*range(one.ndim, part.ndim), *range(one.ndim)) for part, one in zip(_rows(table, inputs), inputs)
            ]
            own = _trees.unflatten(variables.structure, columns)
            jacobians.append(own[0] if isinstance(argnums, int) else tuple(own))
        jacobian = _trees.unflatten(structure, jacobians)
        return (jacobian, _plain(aux, variables)) if has_aux else jacobian

    return computed


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Returns a function that computes the second derivatives of ``func``: ``jacfwd(jacrev(func))``.

    >>> import neurenix as nx
    >>> nx.func.hessian(lambda x: (x ** 3).sum())(nx.tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacfwd(jacrev(func, argnums), argnums)


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """``func`` itself: what it records has no mutations and views, because the engine's tensors are values."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize: remove must be 'mutations' or 'mutations_and_views', got {remove!r}")
    return func
