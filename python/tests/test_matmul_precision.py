"""The precision of matrix products on every device of the machine."""

from __future__ import annotations

from collections.abc import Iterator

import neurenix as nx
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    nx.set_float32_matmul_precision("highest")


def test_it_is_the_highest_until_another_is_set() -> None:
    assert nx.get_float32_matmul_precision() == "highest"
    nx.set_float32_matmul_precision("high")
    assert nx.get_float32_matmul_precision() == "high"
    with pytest.raises(ValueError, match="highest"):
        nx.set_float32_matmul_precision("medium")
    assert nx.get_float32_matmul_precision() == "high"


@pytest.mark.parametrize("device", [device.name for device in nx.devices()])
def test_factors_are_rounded_only_where_that_is_allowed_and_there_are_units_for_it(device: str) -> None:
    x = nx.randn(64, 64, device=device)
    unit = nx.eye(64, device=device)
    numbers = x.cpu().numpy()
    rounded = ((numbers.view(np.uint32) + 0x1000) & ~np.uint32(0x1FFF)).view(np.float32)
    assert (numbers != rounded).any()
    assert np.array_equal((x @ unit).cpu().numpy(), numbers)
    product = nx.compile(lambda x: x @ unit)
    assert np.array_equal(product(x).cpu().numpy(), numbers)
    nx.set_float32_matmul_precision("high")
    pending = x @ unit
    expected = rounded if "dot_tf32" in (pending.explain() or "") else numbers
    assert np.array_equal(pending.cpu().numpy(), expected)
    assert np.array_equal(product(x).cpu().numpy(), expected), "a compiled function is recorded again"
    if device.startswith("cpu"):
        assert expected is numbers
