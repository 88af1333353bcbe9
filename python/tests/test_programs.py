"""The essence of published programs, with the losses that PyTorch computes from the same weights."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import neurenix.torch
import pytest
from neurenix import _engine
from neurenix.torch import _modules

HERE = Path(__file__).parent
LOSSES: dict[str, list[float]] = json.loads((HERE / "golden" / "programs.json").read_text())
PROGRAMS = sorted(path.stem for path in (HERE / "programs").glob("*.py") if path.stem != "common")


@pytest.fixture(autouse=True)
def pytorch_promotes() -> None:
    _engine.set_promotion("pytorch")


@pytest.fixture(autouse=True, scope="module")
def torch_is_neurenix() -> Iterator[None]:
    """Lets ``import torch`` find ``neurenix.torch``."""
    before = [*sys.meta_path]
    _modules.install("torch")
    sys.path.insert(0, str(HERE / "programs"))
    yield
    sys.path.remove(str(HERE / "programs"))
    sys.meta_path[:] = before
    for name in [name for name in sys.modules if name.split(".")[0] == "torch"]:
        del sys.modules[name]


def test_there_are_losses_of_every_program() -> None:
    assert set(PROGRAMS) == set(LOSSES)


@pytest.mark.parametrize("name", PROGRAMS)
def test_losses_are_those_of_pytorch(name: str) -> None:
    """Rounding errors grow from step to step, in some programs faster than in others."""
    losses = list(importlib.import_module(name).losses())
    assert importlib.import_module("torch") is neurenix.torch
    assert losses == pytest.approx(LOSSES[name], rel=1e-3, abs=1e-5)
    assert losses[:5] == pytest.approx(LOSSES[name][:5], rel=2e-5, abs=1e-6)
