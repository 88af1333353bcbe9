"""The node cases of ONNX's own package: how to run them, and a comparison with other runtimes.

Run as a program, it prints how many cases this package, ONNX Runtime's CPU provider and ONNX's reference evaluator pass,
and for each case that this package fails, what the others do with it:

    python python/tests/onnx_cases.py [PART]    # only cases whose names contain PART

It needs the packages ``neurenix``, ``onnx`` and ``onnxruntime``. A case fails if a runtime refuses it, too. The cases'
own tolerances hold for all three.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

LACKING = {"bfloat16", *(f"float8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")), "float4_e2m1fn"}
LARGER = {"int4": "int8", "int2": "int8", "uint4": "uint8", "uint2": "uint8", **dict.fromkeys(LACKING, "float32")}
"""Types that NumPy lacks, and those in which ``run`` returns their values."""


def narrow(value: Any) -> Any:
    """An array whose numbers NumPy can compare."""
    array = np.asarray(value)
    return array if array.dtype.kind in "OUSbiufc" else array.astype(np.float64)


def check_equal(got: Any, expected: Any, rtol: float, atol: float) -> None:
    if isinstance(expected, list):
        assert isinstance(got, list) and len(got) == len(expected), (got, expected)
        for own, other in zip(got, expected):
            check_equal(own, other, rtol, atol)
    elif expected is None:
        assert got is None
    elif isinstance(expected, onnx.TensorProto):
        check_equal(got, numpy_helper.to_array(expected), rtol, atol)
    else:
        name, own = np.asarray(expected).dtype.name, np.asarray(got).dtype
        got, expected = narrow(got), narrow(expected)
        assert own.kind in "OUS" or own.name in (name, LARGER.get(name, name)), (own, name)
        assert got.shape == expected.shape, (got.shape, expected.shape)
        if expected.dtype.kind in "OUS":
            texts = [text.decode() if isinstance(text, bytes) else str(text) for text in expected.ravel()]
            assert [str(text) for text in got.ravel().tolist()] == texts
        else:
            np.testing.assert_allclose(got.astype(np.float64), expected.astype(np.float64), rtol, atol)


def given(value: Any) -> Any:
    """An input of a test as users have it."""
    if isinstance(value, list):
        return [given(part) for part in value]
    if isinstance(value, onnx.SequenceProto):
        return [given(part) for part in numpy_helper.to_list(value)]
    if isinstance(value, onnx.OptionalProto):
        return given(numpy_helper.to_optional(value))
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


Run = Callable[[onnx.ModelProto, list[Any]], list[Any]]
"""The outputs of a model for its inputs, in order."""


def ours(model: onnx.ModelProto, inputs: list[Any]) -> list[Any]:
    import neurenix as nx

    network = nx.onnx.loads(model.SerializeToString())
    nx.manual_seed(0)
    return list(network.run({port.name: given(value) for port, value in zip(network.inputs, inputs)}).values())


def runtime(model: onnx.ModelProto, inputs: list[Any]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = {port.name: given(value) for port, value in zip(session.get_inputs(), inputs)}
    kinds = {info.name: info.type.tensor_type.elem_type for info in model.graph.input}
    arrays = (value for value in values.values() if isinstance(value, np.ndarray))
    if all(array.dtype.name not in LARGER for array in arrays):
        return list(session.run(None, values))
    stored = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(value), kinds[name])
        for name, value in values.items()
    }
    return [value.numpy() for value in session.run_with_ort_values(None, stored)]


def evaluator(model: onnx.ModelProto, inputs: list[Any]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    names = [info.name for info in model.graph.input]
    return list(ReferenceEvaluator(model).run(None, {name: given(value) for name, value in zip(names, inputs)}))


def failure(run: Run, case: Any) -> str | None:
    """Why a case fails; ``None`` if it passes."""
    inputs, outputs = case.data_sets[0]
    try:
        results = run(case.model, inputs)
        assert len(results) == len(outputs), f"{len(results)} outputs rather than {len(outputs)}"
        for got, expected in zip(results, outputs):
            check_equal(got, given(expected), case.rtol, case.atol)
    # Runtimes have errors of their own.
    except Exception as error:  # noqa: BLE001
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {lines[0][:120] if lines else ''}"
    return None


def cases() -> Iterator[Any]:
    with warnings.catch_warnings():
        # ONNX's own generators warn.
        warnings.simplefilter("ignore")
        yield from collect_testcases(None)


def main() -> None:
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    runs: dict[str, Run] = {"Neurenix": ours, "ONNX Runtime": runtime, "evaluator": evaluator}
    passed = dict.fromkeys(runs, 0)
    failed: list[tuple[str, dict[str, str | None]]] = []
    total = 0
    warnings.simplefilter("ignore")
    for case in cases():
        if part not in case.name:
            continue
        total += 1
        outcomes = {name: failure(run, case) for name, run in runs.items()}
        for name, outcome in outcomes.items():
            passed[name] += outcome is None
        if outcomes["Neurenix"] is not None:
            failed.append((case.name, outcomes))
    print("| | passed | of |\n|---|---|---|")
    for name, count in passed.items():
        print(f"| {name} | {count} | {total} |")
    if failed:
        print("\n| case | Neurenix | ONNX Runtime | evaluator |\n|---|---|---|---|")
    for name, outcomes in failed:
        row = " | ".join(("passes" if outcomes[each] is None else str(outcomes[each]).replace("|", "/")) for each in runs)
        print(f"| {name} | {row} |")


if __name__ == "__main__":
    main()
