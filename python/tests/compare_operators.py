"""Runs PyTorch's own samples of operators (its ``op_db``) on ``neurenix.torch`` and on PyTorch, and compares the results.

Run it by hand, with an interpreter that has PyTorch, NumPy, SciPy, expecttest and this package::

    python tests/compare_operators.py [NAME ...] [--markdown FILE]

It prints a line for each operator that differs. ``--markdown`` writes the table of docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import io
import re
import warnings
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db

import neurenix as nx
import neurenix.torch as ours

DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
RANDOM = re.compile(
    "rand|dropout|bernoulli|multinomial|normal|exponential|geometric|cauchy|uniform|rrelu|empty|poisson|fractional|lowrank|new_empty|multi_head_attention"
)
"""Operators whose results cannot be compared: random numbers, and memory that nobody has written."""
TOLERANCE = {"float32": 2e-4, "complex64": 2e-4, "float64": 1e-9, "complex128": 1e-9}


class Missing(Exception):
    """Neurenix has no such operator."""


def found(name: str) -> Any:
    """The operator of this name in ``neurenix.torch``, or the method of tensors."""
    method = getattr(ours.Tensor, name, None)
    if name == "einsum":
        return lambda tensors, equation: ours.einsum(equation, *tensors)
    if name == "nn.functional.embedding":
        return lambda weight, index, **options: ours.nn.functional.embedding(index, weight, **options)
    if name == "nn.functional.embedding_bag":
        return lambda weight, index, **options: ours.nn.functional.embedding_bag(index, weight, **options)
    if name in ("polygamma", "special.polygamma"):
        return lambda x, n, **options: ours.polygamma(n, x)
    if name == "where":
        return lambda input, condition, other: ours.where(condition, input, other)
    try:
        value = functools.reduce(getattr, name.split("."), ours)
    except (AttributeError, ModuleNotFoundError):
        value = None
    if isinstance(value, nx.dtype) or value is None:
        value = method if not isinstance(value, nx.dtype) else lambda x, **_: method(x)
    if value is None:
        raise Missing(name)
    return value if callable(value) else lambda x, **_: getattr(x, name)


def given(value: Any) -> Any:
    """An argument for Neurenix."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().resolve_conj().resolve_neg()
        array = plain.float().numpy() if plain.dtype == torch.bfloat16 else plain.numpy()
        made = nx.tensor(array.copy(), device="cpu")
        return made.requires_grad_() if value.requires_grad else made
    if isinstance(value, torch.dtype):
        return getattr(ours, str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return "cpu"
    if isinstance(value, (torch.memory_format, torch.layout)):
        return str(value).removeprefix("torch.")
    if isinstance(value, (list, tuple)):
        parts = [given(each) for each in value]
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        return {key: given(each) for key, each in value.items()}
    return value


def flat(value: Any) -> list[Any]:
    """The tensors and numbers of a result."""
    if isinstance(value, (list, tuple)) and not (value and all(isinstance(each, int) for each in value)):
        return [part for each in value for part in flat(each)]
    return [value]


def difference(mine: Any, theirs: Any) -> str | None:
    """What differs between two results, or None."""
    mine, theirs = flat(mine), flat(theirs)
    if len(mine) != len(theirs):
        return f"{len(mine)} results instead of {len(theirs)}"
    for one, other in zip(mine, theirs):
        if not isinstance(other, torch.Tensor):
            if isinstance(other, float) and np.isclose(one, other, 1e-4, equal_nan=True):
                continue
            if one != other:
                if str(one).removeprefix("neurenix.") != str(other).removeprefix("torch."):
                    return f"{one!r} instead of {other!r}"
            continue
        if not isinstance(one, nx.Tensor):
            return f"{type(one).__name__} instead of a tensor"
        if tuple(one.shape) != tuple(other.shape):
            return f"shape {tuple(one.shape)} instead of {tuple(other.shape)}"
        if one.dtype.name != str(other.dtype).removeprefix("torch."):
            return f"{one.dtype.name} instead of {str(other.dtype).removeprefix('torch.')}"
        a, b = one.detach().numpy(), other.detach().resolve_conj().resolve_neg().numpy()
        tolerance = TOLERANCE.get(one.dtype.name, 0.0)
        scale = np.abs(b[np.isfinite(b)]).max(initial=1.0) if b.dtype.kind in "fc" else 1.0
        if not np.allclose(a, b, tolerance, tolerance * scale, equal_nan=True):
            return f"values differ by {np.nanmax(np.abs(a.astype(complex) - b.astype(complex))):.3g}"
    return None


def run(call: Any, sample: Any, convert: Any) -> tuple[Any, list[Any]]:
    """The result of a sample, and the gradients of its tensors."""
    arguments, options = convert(sample.args), convert(sample.kwargs)
    first = convert(sample.input)
    result = call(first, *arguments, **options)
    leaves = [each for each in flat([first, arguments, list(options.values())]) if getattr(each, "requires_grad", False)]
    total = None
    for part in flat(result):
        if getattr(part, "requires_grad", False) and part.numel():
            seed = np.cos(np.arange(part.numel())).reshape(tuple(part.shape)).astype(np.float32)
            weighted = (part * (torch.tensor(seed) if isinstance(part, torch.Tensor) else nx.tensor(seed, device="cpu"))).sum()
            total = weighted if total is None else total + weighted
    if total is None or not leaves or str(total.dtype).split(".")[-1].startswith("complex"):
        return result, []
    total.backward()
    return result, [each.grad for each in leaves]


def copied(value: Any) -> Any:
    """An argument for PyTorch that the other run does not share."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(copied(each) for each in value) if type(value) in (list, tuple) else value
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    return value


def compare(op: Any, dtype: torch.dtype) -> tuple[int, int, str]:
    """How many samples agree, of how many, and what the first difference is."""
    mine = found(op.name)
    passed = total = 0
    problem = ""
    with_gradients = dtype == torch.float32 and op.supports_autograd
    for sample in op.sample_inputs("cpu", dtype, requires_grad=with_gradients):
        try:
            expected = run(op.op, sample, copied)
        except Exception:
            continue  # Some samples need other arguments than this script passes.
        if sample.kwargs.get("dropout_p"):
            continue
        total += 1
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                got = run(mine, sample, given)
            said = difference(got[0], expected[0])
            if said is None:
                pairs = [(g, e) for g, e in zip(got[1], expected[1]) if e is not None and g is not None]
                said = difference([g for g, _ in pairs], [e for _, e in pairs])
                said = None if said is None else f"gradient: {said}"
        except Exception as error:
            said = f"{type(error).__name__}: {error}".split("\n")[0][:150]
        if said is None:
            passed += 1
        elif not problem:
            problem = said
    return passed, total, problem


def main() -> None:
    """Compares the operators that the arguments name, by default all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--markdown")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    counts: collections.Counter[str] = collections.Counter()
    missing, rows = [], []
    for op in op_db:
        full = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if arguments.names and op.name not in arguments.names or RANDOM.search(op.name):
            continue
        passed = total = 0
        said = []
        try:
            for dtype in DTYPES:
                if dtype in op.dtypes:
                    some, of, problem = compare(op, dtype)
                    passed, total = passed + some, total + of
                    if problem:
                        said.append(f"{str(dtype).removeprefix('torch.')}: {some} of {of}; {problem}")
        except Missing:
            missing.append(full)
            counts["operators missing"] += 1
            continue
        counts["samples"] += total
        counts["samples that agree"] += passed
        counts["operators"] += 1
        counts["operators that agree in all samples"] += not said
        if said:
            rows.append((full, passed, total, said))
            print(f"{full}: {passed} of {total}\n    " + "\n    ".join(said), flush=True)
    print(dict(counts))
    print("missing:", " ".join(missing))
    if arguments.markdown:
        with open(arguments.markdown, "w") as file:
            file.write("| operator | samples that agree | first difference |\n|---|---|---|\n")
            for name, passed, total, said in rows:
                text = said[0].replace("|", "\\|")
                file.write(f"| `{name}` | {passed} of {total} | {text} |\n")
            file.write("\nMissing: " + ", ".join(f"`{name}`" for name in missing) + "\n")


if __name__ == "__main__":
    main()
