"""Comparing gradients with finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _engine
from .._autograd import enable_grad, no_grad
from .._engine import Tensor

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """Gradients differ from finite differences."""


def _outputs(func: Callable[..., Any], inputs: tuple[Any, ...]) -> list[Tensor]:
    results = func(*inputs)
    results = results if isinstance(results, (tuple, list)) else (results,)
    return [each for each in results if isinstance(each, Tensor) and each.dtype.is_floating_point]


def _numerical(func: Callable[..., Any], inputs: tuple[Any, ...], position: int, eps: float) -> list[Tensor]:
    """For each output, its derivatives with respect to an input by central differences: (elements, output...)."""
    given = inputs[position].detach()
    flat = given.reshape(-1)
    rows: list[list[Tensor]] = []
    with no_grad():
        for index in range(flat.numel()):
            step = (_engine.arange(flat.numel(), device=flat.device) == index).to(flat.dtype) * eps
            moved = []
            for sign in (1, -1):
                arguments = list(inputs)
                arguments[position] = (flat + step * sign).reshape(given.shape)
                moved.append(_outputs(func, tuple(arguments)))
            rows.append([(above - below) / (2 * eps) for above, below in zip(*moved)])
    return [_engine.stack([row[output] for row in rows]) for output in range(len(rows[0]))] if rows else []


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Compares the gradients of ``func`` with respect to the inputs that require gradients with finite differences of
    step ``eps``; the inputs should be of dtype ``float64``. Returns true, or raises a :class:`GradcheckError` (false
    without ``raise_exception``).

    ``check_batched_grad`` compares the gradients that ``vmap`` computes, too, and ``check_forward_ad`` products with
    tangents. Gradients are computed twice and may differ by ``nondet_tol``. ``check_undefined_grad``,
    ``check_grad_dtypes``, ``check_batched_forward_grad``, ``fast_mode`` and ``masked`` have no effect.

    >>> import neurenix as nx
    >>> gradcheck(lambda x: x.sin() * x, nx.tensor([0.5, 1.5], dtype=nx.float64, requires_grad=True))
    True
    """
    try:
        _check(func, inputs, eps, atol, rtol, nondet_tol, check_batched_grad, check_forward_ad, check_backward_ad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(
    func: Callable[..., Any], inputs: Any, eps: float, atol: float, rtol: float, nondet_tol: float,
    batched: bool, forward: bool, backward: bool,
) -> None:  # fmt: skip
    from ..func import jvp, vmap

    given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    checked = [at for at, each in enumerate(given) if isinstance(each, Tensor) and each.requires_grad]
    if not checked:
        raise ValueError("gradcheck: at least one input must require gradients")
    with enable_grad():
        outputs = _outputs(func, given)
    numerical = {at: _numerical(func, given, at, eps) for at in checked}
    targets = [given[at] for at in checked]

    def close(found: Tensor, expected: Tensor, place: str) -> None:
        error = (found - expected).abs() - (atol + rtol * expected.abs())
        if not bool((error <= 0).all().item()):
            raise GradcheckError(f"gradcheck: {place}: got {found.tolist()}, but finite differences give {expected.tolist()}")

    for number, output in enumerate(outputs):
        size = output.numel()
        basis = _engine.eye(size, dtype=output.dtype, device=output.device).reshape(size, *output.shape)

        def rows(seed: Tensor, output: Tensor = output) -> list[Tensor]:
            if not output.requires_grad:
                return [_engine.full_like(target.detach(), 0) for target in targets]
            found = _engine.gradients_of_all([output], [seed], targets, retain_graph=True)
            return [
                _engine.full_like(target.detach(), 0) if each is None else each for each, target in zip(found, targets)
            ]

        for place, at in enumerate(checked):
            if size == 0 or given[at].numel() == 0:
                continue
            # From (input elements, output...) to (output elements, input elements).
            expected = numerical[at][number].reshape(given[at].numel(), size).t()
            where = f"output {number}, input {at}"
            if backward:
                found = _engine.stack([rows(basis[index])[place].reshape(-1) for index in range(size)])
                close(found, expected, where)
                again = _engine.stack([rows(basis[index])[place].reshape(-1) for index in range(size)])
                if float((found - again).abs().max().item()) > nondet_tol:
                    raise GradcheckError(f"gradcheck: {where}: gradients differ from call to call")
            if batched:
                close(vmap(rows)(basis)[place].reshape(size, -1), expected, f"{where}, batched")
            if forward:
                own = given[at].detach()
                units = _engine.eye(own.numel(), dtype=own.dtype, device=own.device).reshape(-1, *own.shape)

                def alone(value: Tensor, at: int = at, number: int = number) -> Tensor:
                    return _outputs(func, (*given[:at], value, *given[at + 1 :]))[number]

                columns = [jvp(alone, (own,), (units[index],))[1].detach().reshape(-1) for index in range(own.numel())]
                close(_engine.stack(columns).t(), expected, f"{where}, forward")


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """:func:`gradcheck` of the gradients of ``func``, as functions of its inputs and of the gradients of its outputs
    (``grad_outputs``, by default random numbers).

    >>> import neurenix as nx
    >>> gradgradcheck(lambda x: x.sin() * x, nx.tensor([0.5, 1.5], dtype=nx.float64, requires_grad=True))
    True
    """
    given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    with enable_grad():
        outputs = [output for output in _outputs(func, given) if output.requires_grad]
    if grad_outputs is None:
        seeds = [_engine.randn(*output.shape, dtype=output.dtype, device=output.device) for output in outputs]
    else:
        seeds = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    seeds = [seed.detach().requires_grad_() for seed in seeds]
    checked = [at for at, each in enumerate(given) if isinstance(each, Tensor) and each.requires_grad]
    count = len(given)

    def gradients(*values: Any) -> list[Tensor]:
        arguments = list(values[:count])
        with enable_grad():
            for at in checked:
                # Finite differences pass plain values.
                arguments[at] = _engine.as_variable(arguments[at])
            results = [output for output in _outputs(func, tuple(arguments)) if output.requires_grad]
            found = _engine.gradients_of_all(
                results, list(values[count:]), [arguments[at] for at in checked], retain_graph=True, create_graph=True
            )
        return [each for each in found if each is not None]

    return gradcheck(
        gradients, (*given, *seeds), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
        nondet_tol=nondet_tol, check_batched_grad=check_batched_grad, check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
    )  # fmt: skip
