"""Settings of all tests."""

from __future__ import annotations

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
