"""Steps that a device refuses, and memory that moves to the host. Each test restores the process-wide settings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import neurenix as nx
import numpy as np
import pytest

NAMES = [device.name for device in nx.devices() if device.name != "cpu"]


@pytest.fixture(params=NAMES or [pytest.param(None, marks=pytest.mark.skip(reason="the CPU is the only device"))])
def device(request: pytest.FixtureRequest) -> nx.Device:
    return nx.Device(request.param)


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    before = nx.on_fallback(None)
    yield
    nx.on_fallback(before)
    nx.set_strict_placement(False)


def twice() -> nx.CustomKernel:
    """A kernel that only the CPU has. No two are equal, so each needs its own plans."""
    vector = ("float32", "n")
    return nx.CustomKernel("twice", inputs=[("x", *vector)], outputs=[("y", *vector)], cpu=lambda x: 2 * x)


def test_strict_placement_refuses_what_the_device_does_not_do(device: nx.Device) -> None:
    x = nx.ones(3, device=device)
    nx.set_strict_placement(True)
    assert nx.is_strict_placement()
    with pytest.raises(RuntimeError, match="strict mode"):
        twice()(x).evaluate()
    assert (x + 1).tolist() == [2.0] * 3
    nx.set_strict_placement(False)
    assert twice()(x).tolist() == [2.0] * 3


def test_the_function_is_told_behind_the_computation_and_may_compute(device: nx.Device) -> None:
    told: list[Any] = []
    results: list[nx.Tensor] = []

    def note(placement: nx.Placement) -> None:
        # The callback may read results and compute more, which falls back too.
        told.append((placement, [result.tolist() for result in results]))
        if len(told) == 1:
            results.append(twice()(nx.full((2,), 4.0, device=device)).evaluate())

    assert nx.on_fallback(note) is None
    results.append(twice()(nx.ones(3, device=device)))
    results[0].evaluate()
    assert [values for _, values in told] == [[[2.0] * 3], [[2.0] * 3, [8.0] * 2]]
    placement = told[0][0]
    assert "twice" in placement.step and (placement.wanted, placement.device) == (device.name, "cpu")
    assert "a function for the CPU" in placement.reason
    assert device.name in repr(placement) and placement.reason[:10] in repr(placement)
    assert nx.on_fallback(None) is note
    twice()(nx.ones(3, device=device)).evaluate()
    assert len(told) == 2


def test_what_the_function_raises_reaches_the_caller(device: nx.Device) -> None:
    def fail(placement: nx.Placement) -> None:
        raise KeyError("mine")

    nx.on_fallback(fail)
    y = twice()(nx.ones(3, device=device))
    with pytest.raises(KeyError, match="mine"):
        y.evaluate()
    assert y.is_evaluated and y.tolist() == [2.0] * 3


def test_what_the_function_raises_again_is_not_lost(device: nx.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: others.append(str(told.exc_value)))
    count = iter(range(9))

    def fail(placement: nx.Placement) -> None:
        raise ValueError(f"number {next(count)}")

    nx.on_fallback(fail)
    x = nx.ones(3, device=device)
    results = [twice()(x), twice()(x)]
    with pytest.raises(ValueError, match="number 0"):
        nx.evaluate(results)
    assert others == ["number 1"]


def test_the_reason_of_linear_algebra_names_it(device: nx.Device) -> None:
    told: list[nx.Placement] = []
    nx.on_fallback(told.append)
    # A shape that no other test uses, so that the plan is new.
    nx.linalg.inv(nx.eye(7, device=device)).evaluate()
    assert [placement.step for placement in told] == ["linear algebra inv"]
    assert "linear algebra (inv)" in told[0].reason and "custom kernel" not in told[0].reason


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="on_fallback"):
        nx.on_fallback(3)  # type: ignore[arg-type]
    assert nx.on_fallback(print) is None and nx.on_fallback(None) is print


def test_a_full_device_moves_tensors_to_the_host(device: nx.Device) -> None:
    size = 1 << 18
    device.set_spilling(True)
    try:
        before = device.memory()
        # Room for three and a half of the tensors.
        device.set_memory_limit(before["allocated"] + 14 * size)
        tensors = [nx.tensor(np.full(size, i, np.float32), device=device).evaluate() for i in range(8)]
        held = device.memory()
        assert held["spills"] > before["spills"] and held["spilled_tensors"] >= 4
        assert held["spilled_bytes"] >= 4 * 4 * size and held["pinned"] >= 0
        assert [tensor.sum().item() for tensor in tensors] == [float(i * size) for i in range(8)]
        device.set_spilling(False)
        with pytest.raises(MemoryError):
            tensors += [nx.tensor(np.zeros(size, np.float32), device=device).evaluate() for _ in range(8)]
    finally:
        device.set_memory_limit(None)
        device.set_spilling(False)


def test_the_cpu_has_nowhere_to_move_tensors_to() -> None:
    with pytest.raises(ValueError, match="cpu"):
        nx.Device("cpu").set_spilling(True)
    assert {"spills", "spilled_tensors", "spilled_bytes", "pinned"} <= set(nx.Device("cpu").memory())
