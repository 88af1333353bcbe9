"""Gradients as functions, and the modes in which they are recorded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from . import _engine
from ._engine import Tensor


class _Mode:
    """A mode of recording: a context, and a decorator of functions."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._entered: list[Any] = []

    def __enter__(self) -> None:
        mode = _engine.GradientMode(self._enabled)
        mode.__enter__()
        self._entered.append(mode)

    def __exit__(self, *error: object) -> None:
        self._entered.pop().__exit__(*error)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with type(self)() if type(self) is not set_grad_enabled else set_grad_enabled(self._enabled):  # type: ignore[call-arg]
                return function(*args, **kwargs)

        return wrapped


class no_grad(_Mode):
    """Within it nothing is recorded for gradients: ``with nx.no_grad():`` or ``@nx.no_grad()``."""

    def __init__(self) -> None:
        super().__init__(False)


inference_mode = no_grad


class enable_grad(_Mode):
    """Within it operations are recorded for gradients again."""

    def __init__(self) -> None:
        super().__init__(True)


class set_grad_enabled(_Mode):
    """Within it operations are recorded for gradients if ``mode`` is true."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the value of ``function`` and its gradient with respect to the arguments ``argnums``.

    With ``has_aux`` the function returns a pair, of which only the first is differentiated.

    >>> import neurenix as nx
    >>> value, slope = nx.value_and_grad(lambda x: (x * x).sum())(nx.Tensor([1.0, 2.0]))
    >>> value.item(), slope.tolist()
    (5.0, [2.0, 4.0])
    """
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)

    @functools.wraps(function)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        for number in numbers:
            if not -len(args) <= number < len(args):
                raise ValueError(f"grad: there is no argument {number}: {len(args)} were given")
        variables = list(args)
        # Only inside another gradient is the result differentiated again.
        nested = any(isinstance(each, Tensor) and each.requires_grad for each in args)
        with enable_grad():
            for number in numbers:
                variables[number] = _engine.as_variable(args[number])
            result = function(*variables, **kwargs)
        value, aux = result if has_aux else (result, None)
        if not isinstance(value, Tensor):
            raise TypeError(f"grad: the function gives a {type(value).__name__}, not a tensor")
        slopes = _slopes(value, [variables[number] for number in numbers])
        if not nested:
            value, slopes = value.detach(), [each.detach() for each in slopes]
        slope = slopes[0] if isinstance(argnums, int) else tuple(slopes)
        return ((value, aux), slope) if has_aux else (value, slope)

    return differentiated


def _slopes(value: Tensor, variables: list[Tensor], grad_output: Tensor | None = None) -> list[Tensor]:
    """Gradients that can be differentiated again, zeros where the value does not depend on a variable."""
    if not value.requires_grad:
        return [_engine.full_like(variable.detach(), 0) for variable in variables]
    return _engine.gradients(value, variables, grad_output, create_graph=True)


def grad(
    function: Any, argnums: Any = 0, grad_outputs: Any = None, *, has_aux: bool = False, create_graph: bool = False
) -> Any:
    """The gradient function of ``function``; or, given tensors as PyTorch does, the gradients themselves.

    ``nx.grad(f)(x)`` is the gradient of the scalar ``f(x)``. ``nx.grad(loss, [w, b])`` are the gradients of a tensor.

    >>> import neurenix as nx
    >>> nx.grad(lambda x: x ** 3)(nx.Tensor(2.0)).item()
    12.0
    >>> nx.grad(nx.grad(lambda x: x ** 3))(nx.Tensor(2.0)).item()
    12.0
    """
    if isinstance(function, Tensor):
        inputs = [argnums] if isinstance(argnums, Tensor) else list(argnums)
        return tuple(_engine.gradients(function, inputs, grad_outputs, create_graph))
    both = value_and_grad(function, argnums, has_aux)

    @functools.wraps(function)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, slope = both(*args, **kwargs)
        return (slope, value[1]) if has_aux else slope

    return gradient


def jacobian(function: Callable[..., Tensor], argnums: int = 0) -> Callable[..., Tensor]:
    """A function that gives the Jacobian: of shape (output..., input...).

    >>> import neurenix as nx
    >>> nx.jacobian(lambda x: x * x)(nx.Tensor([1.0, 3.0])).tolist()
    [[2.0, 0.0], [0.0, 6.0]]
    """

    @functools.wraps(function)
    def differentiated(*args: Any, **kwargs: Any) -> Tensor:
        variables = list(args)
        nested = any(isinstance(each, Tensor) and each.requires_grad for each in args)
        with enable_grad():
            variables[argnums] = _engine.as_variable(args[argnums])
            value = function(*variables, **kwargs)
        variable = variables[argnums]
        size = value.numel()
        basis = _engine.eye(size, dtype=value.dtype, device=value.device)
        rows = [_slopes(value, [variable], basis[i].reshape(value.shape))[0] for i in range(size)]
        shape = tuple(value.shape) + tuple(variable.shape)
        if not rows:
            return _engine.zeros(shape, dtype=value.dtype, device=value.device)
        table = _engine.stack(rows).reshape(shape)
        return table if nested else table.detach()

    return differentiated


def hessian(function: Callable[..., Tensor], argnums: int = 0) -> Callable[..., Tensor]:
    """A function that gives the second derivatives of a scalar function: of shape (input..., input...).

    >>> import neurenix as nx
    >>> nx.hessian(lambda x: (x ** 3).sum())(nx.Tensor([1.0, 2.0])).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    return jacobian(grad(function, argnums), argnums)
