"""Settings of all tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import neurenix as nx
import pytest
from hypothesis import settings

# No deadline: on a busy machine, the time of a test says nothing about a function.
settings.register_profile("checks", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("checks")


@pytest.fixture(autouse=True)
def _on_the_cpu() -> None:
    nx.set_default_device("cpu")
    nx.manual_seed(0)


@pytest.fixture(scope="module")
def ranks(request: pytest.FixtureRequest) -> object:
    """Runs functions of the test file on several ranks: see ranks.py."""
    file = Path(__file__).parent / "ranks.py"
    spec = importlib.util.spec_from_file_location("ranks", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Ranks(str(request.path), request.module.CASES)
