"""Settings of all tests."""

from __future__ import annotations

import sys
from pathlib import Path

import neurenix as nx
import pytest
from hypothesis import settings
from neurenix import _engine

# For modules that several tests use.
sys.path.append(str(Path(__file__).parent))

# No deadline: on a busy machine, the time of a test says nothing about a function.
settings.register_profile("checks", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("checks")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that take minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="takes minutes: --slow runs it"))


@pytest.fixture(autouse=True)
def _on_the_cpu() -> None:
    nx.set_default_device("cpu")
    # A test file that imports neurenix.torch has changed it.
    _engine.set_promotion("standard")
    nx.set_default_dtype(nx.float32)
    nx.manual_seed(0)


@pytest.fixture(scope="module")
def ranks(request: pytest.FixtureRequest) -> object:
    """Runs functions of the test file on several ranks: see on_ranks.py."""
    from on_ranks import Ranks

    return Ranks(str(request.path), request.module.CASES)
