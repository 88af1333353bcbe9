"""The Python of the documents runs as it is written."""

from __future__ import annotations

import re
import runpy
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_python_of_a_page_runs(page: str) -> None:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks, f"{page} has no Python"
    scope: dict[str, object] = {}
    for block in blocks:
        line = text[: text.index(block)].count("\n")
        exec(compile("\n" * line + textwrap.dedent(block), page, "exec"), scope)


def test_the_example_whose_types_are_checked_runs() -> None:
    scope = runpy.run_path(str(Path(__file__).parent / "typing_example.py"))
    assert scope["main"]() > 8.0
