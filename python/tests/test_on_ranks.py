"""The runner of functions on several ranks notices every way to fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from on_ranks import launch

FUNCTIONS = """
import atexit, os

def fine():
    pass

def raises():
    assert os.environ["RANK"] == "0", "not rank 0"

def crashes():
    os._exit(9)

def crashes_at_exit():
    atexit.register(os._exit, 3)
"""


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["fine", "raises"], "rank 1 of 2 ended with 0: raises failed"),
        (["crashes"], "rank 0 of 2 ended with 9"),
        (["fine", "crashes_at_exit"], "rank 1 of 2 ended with 3"),
    ],
)
def test_failures_are_noticed(names: list[str], problem: str, tmp_path: Path) -> None:
    file = tmp_path / "functions.py"
    file.write_text(FUNCTIONS)
    *fine, failing = launch(2, str(file), names).values()
    assert not any(fine) and problem in failing


def test_what_is_fine(tmp_path: Path) -> None:
    file = tmp_path / "functions.py"
    file.write_text(FUNCTIONS)
    assert launch(2, str(file), ["fine"]) == {"fine": ""}
