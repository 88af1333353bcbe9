"""Products with Jacobians and Hessians, of functions of one tensor or of several.

Unlike ``neurenix.func``, these functions take the function and its arguments, and their results require gradients with
``create_graph`` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _engine
from .._autograd import enable_grad
from .._engine import Tensor
from ..func._transforms import _basis, _gradients, _pushed, _rows
from ..func._vmap import vmap

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensors = Any
"""A tensor or a tuple of tensors."""


def _tuple(given: Any, name: str, what: str) -> tuple[Tensor, ...]:
    tensors = given if isinstance(given, tuple) else (given,)
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            kind = type(tensor).__name__
            raise TypeError(f"{name}: {what} must be a tensor or a tuple of tensors, got {kind}")
    return tensors


class _Evaluated:
    """A function's results for some inputs, and the variables that the inputs were replaced by."""

    def __init__(self, name: str, func: Callable[..., Any], inputs: Tensors, create_graph: bool, strict: bool) -> None:
        self.name, self.strict, self.create_graph = name, strict, create_graph
        given = _tuple(inputs, name, "the inputs")
        self.single_input = not isinstance(inputs, tuple)
        with enable_grad():
            self.inputs = [_engine.as_variable(one if create_graph else one.detach()) for one in given]
            results = func(*self.inputs)
        self.single_output = not isinstance(results, tuple)
        self.outputs = list(_tuple(results, name, "the results of the function"))
        if strict:
            for index, output in enumerate(self.outputs):
                if not output.requires_grad:
                    raise RuntimeError(f"{name}: with strict=True, result {index} must depend on the inputs")

    def vectors(self, v: Any, tensors: list[Tensor], what: str) -> list[Tensor]:
        """The given vectors, one for each tensor; a 1 for a single scalar."""
        if v is None:
            if len(tensors) == 1 and tensors[0].numel() == 1:
                return [_engine.full_like(tensors[0].detach(), 1)]
            raise RuntimeError(f"{self.name}: v is needed unless {what} is a tensor of one element")
        vectors = list(_tuple(v, self.name, "v"))
        if len(vectors) != len(tensors):
            raise RuntimeError(f"{self.name}: v has {len(vectors)} tensors, expected {len(tensors)}")
        for vector, tensor in zip(vectors, tensors):
            if tuple(vector.shape) != tuple(tensor.shape):
                raise RuntimeError(
                    f"{self.name}: v has a tensor of shape {tuple(vector.shape)}, expected {tuple(tensor.shape)}"
                )
        return vectors if self.create_graph else [vector.detach() for vector in vectors]

    def pulled(self, vectors: list[Tensor], create_graph: bool) -> list[Tensor]:
        """The products of vectors with the Jacobian; with ``strict``, they must depend on the results."""
        with enable_grad():
            found = _gradients(self.outputs, list(vectors), self.inputs, create_graph)
        if self.strict:
            self.check_used()
        return found

    def check_used(self) -> None:
        tracked = [output for output in self.outputs if output.requires_grad]
        seeds: list[Tensor | None] = [_engine.full_like(output.detach(), 0) for output in tracked]
        used = _engine.gradients_of_all(tracked, seeds, self.inputs, retain_graph=True)
        for index, each in enumerate(used):
            if each is None:
                raise RuntimeError(f"{self.name}: with strict=True, the results must depend on input {index}")

    def results(self) -> Tensors:
        return self.shaped(self.outputs, self.single_output)

    def shaped(self, tensors: list[Tensor], single: bool) -> Tensors:
        settled = tensors if self.create_graph else [tensor.detach() for tensor in tensors]
        return settled[0] if single else tuple(settled)


def vjp(
    func: Callable[..., Any], inputs: Tensors, v: Tensors = None, create_graph: bool = False, strict: bool = False
) -> tuple[Tensors, Tensors]:
    """The results of ``func(*inputs)``, and the product of ``v``, shaped as the results, with the Jacobian.

    With ``strict``, results that do not depend on an input are an error, here and in the other functions.

    >>> import neurenix as nx
    >>> vjp(lambda x: x * x, nx.tensor([1.0, 2.0]), nx.tensor([1.0, 10.0]))[1].tolist()
    [2.0, 40.0]
    """
    call = _Evaluated("vjp", func, inputs, create_graph, strict)
    found = call.pulled(call.vectors(v, call.outputs, "the result"), create_graph)
    return call.results(), call.shaped(found, call.single_input)


def jvp(
    func: Callable[..., Any], inputs: Tensors, v: Tensors = None, create_graph: bool = False, strict: bool = False
) -> tuple[Tensors, Tensors]:
    """The results of ``func(*inputs)``, and the product of the Jacobian with ``v``, shaped as the inputs. It takes two
    reverse passes.

    >>> import neurenix as nx
    >>> jvp(lambda x: x * x, nx.tensor([1.0, 2.0]), nx.tensor([1.0, 10.0]))[1].tolist()
    [2.0, 40.0]
    """
    call = _Evaluated("jvp", func, inputs, create_graph, strict)
    vectors = call.vectors(v, call.inputs, "the input")
    if strict:
        call.check_used()
    found = _pushed(call.inputs, call.outputs, vectors, create_graph)
    return call.results(), call.shaped(found, call.single_output)


def jacobian(
    func: Callable[..., Any],
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian: of shape (result..., input...) for one result and one input, else a tuple for each result, with an
    entry for each input.

    ``vectorize`` has no effect: all rows are computed together. ``strategy="forward-mode"`` computes columns instead.

    >>> import neurenix as nx
    >>> jacobian(lambda x: x * x, nx.tensor([1.0, 3.0])).tolist()
    [[2.0, 0.0], [0.0, 6.0]]
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(f"jacobian: strategy must be 'reverse-mode' or 'forward-mode', got {strategy!r}")
    call = _Evaluated("jacobian", func, inputs, create_graph, strict)
    if strict:
        call.check_used()
    forward = strategy == "forward-mode"
    starts, ends = (call.inputs, call.outputs) if forward else (call.outputs, call.inputs)

    def row(*vectors: Tensor) -> list[Tensor]:
        if forward:
            return _pushed(call.inputs, call.outputs, list(vectors), create_graph)
        return _gradients(call.outputs, list(vectors), call.inputs, create_graph)

    if any(start.numel() for start in starts):
        tables = list(vmap(row)(*_basis(starts)))
    else:
        tables = [_engine.zeros((0, *end.shape), dtype=end.dtype, device=end.device) for end in ends]
    parts = [_rows(table, starts) for table in tables]
    table = []
    for out in range(len(call.outputs)):
        own = []
        for into, one in enumerate(call.inputs):
            part = parts[out][into] if forward else parts[into][out]
            own.append(part.permute(*range(one.ndim, part.ndim), *range(one.ndim)) if forward else part)
        table.append(call.shaped(own, call.single_input))
    return table[0] if call.single_output else tuple(table)


def _scalar(name: str, func: Callable[..., Any]) -> Callable[..., Tensor]:
    def checked(*inputs: Tensor) -> Tensor:
        result = func(*inputs)
        if not isinstance(result, Tensor):
            raise RuntimeError(f"{name}: the function must return one tensor, got {type(result).__name__}")
        if result.numel() != 1:
            raise RuntimeError(f"{name}: the function must return a tensor of one element, got the shape {tuple(result.shape)}")
        return result.reshape(())

    return checked


def hessian(
    func: Callable[..., Any],
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a scalar function: of shape (input..., input...) for one input, else a tuple of tuples.

    >>> import neurenix as nx
    >>> hessian(lambda x: (x ** 3).sum(), nx.tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    scalar = _scalar("hessian", func)

    def first(*inputs: Tensor) -> Any:
        found = jacobian(scalar, inputs, create_graph=True, strict=strict)
        return found if isinstance(inputs, tuple) and isinstance(found, tuple) else (found,)

    given = inputs if isinstance(inputs, tuple) else (inputs,)
    table = jacobian(first, given, create_graph, strict, vectorize, outer_jacobian_strategy)
    return table if isinstance(inputs, tuple) else table[0][0]


def vhp(
    func: Callable[..., Any], inputs: Tensors, v: Tensors = None, create_graph: bool = False, strict: bool = False
) -> tuple[Tensors, Tensors]:
    """The value of a scalar function, and the product of ``v``, shaped as the inputs, with its Hessian.

    >>> import neurenix as nx
    >>> vhp(lambda x: (x ** 3).sum(), nx.tensor([1.0, 2.0]), nx.tensor([1.0, 1.0]))[1].tolist()
    [6.0, 12.0]
    """
    return _hessian_product("vhp", func, inputs, v, create_graph, strict)


def hvp(
    func: Callable[..., Any], inputs: Tensors, v: Tensors = None, create_graph: bool = False, strict: bool = False
) -> tuple[Tensors, Tensors]:
    """The value of a scalar function, and the product of its Hessian with ``v``. The Hessian is symmetric, so this is
    :func:`vhp`.

    >>> import neurenix as nx
    >>> hvp(lambda x: (x ** 3).sum(), nx.tensor([1.0, 2.0]), nx.tensor([1.0, 1.0]))[1].tolist()
    [6.0, 12.0]
    """
    return _hessian_product("hvp", func, inputs, v, create_graph, strict)


def _hessian_product(
    name: str, func: Callable[..., Any], inputs: Tensors, v: Tensors, create_graph: bool, strict: bool
) -> tuple[Tensors, Tensors]:
    call = _Evaluated(name, _scalar(name, func), inputs, create_graph, strict)
    vectors = call.vectors(v, call.inputs, "the input")
    with enable_grad():
        first = call.pulled([_engine.full_like(call.outputs[0].detach(), 1)], create_graph=True)
        if strict and not all(each.requires_grad for each in first):
            raise RuntimeError(f"{name}: with strict=True, the gradients must depend on the inputs")
        found = _gradients(first, list(vectors), call.inputs, create_graph)
    return call.results(), call.shaped(found, call.single_input)
