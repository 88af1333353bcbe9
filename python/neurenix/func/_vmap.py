"""Functions of one example, computed for a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import _engine, _trees
from .._engine import Tensor

Dims = Any
"""An axis, ``None``, or nested containers of these, as the arguments or results are nested."""


def vmap(
    func: Callable[..., Any],
    in_dims: Dims = 0,
    out_dims: Dims = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Returns a function that computes ``func``, a function of one example, for a batch of examples.

    ``in_dims`` says which axis of each argument is the batch: one number for all, a tuple with a number for each
    argument, or nested as the arguments are (lists, tuples and dictionaries). ``None`` means that all examples share
    the argument. ``out_dims`` says where the results have the batch: one number, or nested as the results are; ``None``
    is for results that do not depend on the example. Keyword arguments have the batch as their axis 0.

    ``randomness`` says what random operations do: ``"error"``, ``"same"`` (all examples get the same numbers) or
    ``"different"``. With ``chunk_size``, so many examples are computed at a time, which takes less memory.

    The function is called once, with tensors that have no values, and what it records is computed for the whole batch.
    So reading a value in the function is an error, in-place operations on arguments change nothing outside, and tensors
    must leave the function as results only. Calls can be nested, with each other and with gradients.

    >>> import neurenix as nx
    >>> a, b = nx.ones(3, 4), nx.arange(12.0).reshape(3, 4)
    >>> nx.func.vmap(lambda x, y: x @ y)(a, b).tolist()
    [6.0, 22.0, 38.0]
    >>> nx.func.vmap(nx.func.grad(lambda x: (x ** 3).sum()))(b[:2, :2]).tolist()
    [[0.0, 3.0], [48.0, 75.0]]
    """
    if not callable(func):
        raise TypeError(f"vmap: expected a function, got {type(func).__name__}")
    if randomness not in ("error", "same", "different"):
        raise RuntimeError(
            f"vmap: randomness must be 'error', 'same' or 'different', got {randomness!r}"
        )
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"vmap: chunk_size must be None or at least 1, got {chunk_size}")

    @functools.wraps(func)
    def batched(*args: Any, **kwargs: Any) -> Any:
        call = _Call(func, in_dims, out_dims, randomness, args, kwargs)
        return call.run(call.tensors) if chunk_size is None else call.in_chunks(chunk_size)

    return batched


def _axis(dim: int, rank: int, what: str) -> int:
    if not -rank <= dim < rank:
        raise ValueError(f"vmap: {what} {dim} is out of range for a tensor of {rank} dimensions")
    return dim % rank


class _Call:
    """A call of a function for a batch."""

    def __init__(
        self, func: Callable[..., Any], in_dims: Dims, out_dims: Dims, randomness: str, args: Any, kwargs: Any
    ) -> None:
        self.func, self.out_dims, self.randomness = func, out_dims, randomness
        if not args and not kwargs:
            raise ValueError("vmap: no arguments were given: there is no batch")
        if not isinstance(in_dims, (int, tuple)):
            raise ValueError(
                f"vmap: in_dims must be an int or a tuple with an entry for each argument, got {type(in_dims).__name__}"
            )
        self.values, self.structure = _trees.flatten((args, kwargs))
        places = None if not args else _trees.flatten(args)[1]
        dims = [] if places is None else _trees.spread(in_dims, places)
        if dims is None:
            raise ValueError(f"vmap: in_dims={in_dims!r} is not nested as the arguments are")
        dims = dims + [0] * (len(self.values) - len(dims))
        self.positions: list[int] = []
        self.tensors: list[Tensor] = []
        for position, (value, dim) in enumerate(zip(self.values, dims)):
            if dim is None:
                continue
            if not isinstance(value, Tensor):
                raise ValueError(
                    f"vmap: in_dims is {dim} for an argument of type {type(value).__name__}: it must be None, because only "
                    "tensors have a batch"
                )
            if value.ndim == 0:
                raise ValueError("vmap: an argument has no dimensions: its in_dims must be None")
            axis = _axis(dim, value.ndim, "in_dims")
            self.positions.append(position)
            self.tensors.append(value if axis == 0 else value.movedim(axis, 0))
        sizes = {tensor.shape[0] for tensor in self.tensors}
        if not sizes:
            raise ValueError("vmap: at least one argument must have a batch: all in_dims are None")
        if len(sizes) > 1:
            raise ValueError(f"vmap: the arguments have batches of different sizes: {sorted(sizes)}")
        (self.size,) = sizes
        if self.size == 0:
            raise ValueError("vmap: the batch has no examples")

    def run(self, tensors: list[Tensor]) -> Any:
        results, structure, dims = self.computed(tensors)
        return _trees.unflatten(structure, [
            value if dim is None or not dim else value.movedim(0, dim) for value, dim in zip(results, dims)
        ])

    def computed(self, tensors: list[Tensor]) -> tuple[list[Tensor], Any, list[int | None]]:
        """The results with the batch first, their structure, and where each is to have the batch."""
        structures: list[Any] = []
        size = tensors[0].shape[0]

        def trace(examples: list[Tensor]) -> list[Tensor]:
            values = list(self.values)
            for position, example in zip(self.positions, examples):
                values[position] = example
            args, kwargs = _trees.unflatten(self.structure, values)
            results, structure = _trees.flatten(self.func(*args, **kwargs))
            for result in results:
                if not isinstance(result, Tensor):
                    raise ValueError(f"vmap: the function must return tensors, got {type(result).__name__}")
            structures.append(structure)
            return results

        found = _engine.batched(trace, tensors, size, self.randomness)
        (structure,) = structures
        dims = _trees.spread(self.out_dims, structure)
        if dims is None:
            raise ValueError(f"vmap: out_dims={self.out_dims!r} is not nested as the results are")
        results, places = [], []
        for (result, is_batched), dim in zip(found, dims):
            if dim is None and is_batched:
                raise ValueError("vmap: out_dims is None for a result that depends on the example")
            if dim is not None and not is_batched:
                result = result.unsqueeze(0).expand(size, *result.shape)
            places.append(dim if dim is None else _axis(dim, result.ndim, "out_dims"))
            results.append(result)
        return results, structure, places

    def in_chunks(self, chunk_size: int) -> Any:
        parts = []
        for start in range(0, self.size, chunk_size):
            count = min(chunk_size, self.size - start)
            parts.append(self.computed([tensor.narrow(0, start, count) for tensor in self.tensors]))
        _, structure, dims = parts[0]
        joined = []
        for index, dim in enumerate(dims):
            if dim is None:
                joined.append(parts[0][0][index])
            else:
                whole = _engine.cat([results[index] for results, _, _ in parts], 0)
                joined.append(whole.movedim(0, dim) if dim else whole)
        return _trees.unflatten(structure, joined)
