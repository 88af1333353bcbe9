"""The notebooks of examples/ are valid and run from top to bottom."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

FILE = Path(__file__).parent / "notebooks.py"
spec = importlib.util.spec_from_file_location("notebooks", FILE)
assert spec is not None and spec.loader is not None
notebooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(notebooks)

NAMES = ["deployment", "first_tensor", "gpt_on_characters", "own_kernel", "training_digits"]


def test_these_are_the_notebooks() -> None:
    assert sorted(path.stem for path in notebooks.EXAMPLES.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_what_nbformat_4_says(name: str) -> None:
    path = notebooks.EXAMPLES / f"{name}.ipynb"
    assert path.stat().st_size < 200_000
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert notebook["cells"][0]["cell_type"] == "markdown" and notebook["cells"][0]["source"][0].startswith("# ")
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | code
        assert "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            for target in re.findall(r"\]\((?!https?:)([^)#]+)", "".join(cell["source"])):
                assert (path.parent / target).exists(), target


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name: str) -> None:
    ran = notebooks.run(notebooks.EXAMPLES / f"{name}.ipynb")
    shown = [output for cell in ran["cells"] for output in cell.get("outputs", [])]
    assert shown
    pictures = [output for output in shown if "image/png" in output.get("data", {})]
    assert bool(pictures) == (name in ("first_tensor", "gpt_on_characters", "training_digits"))


def test_a_mistake_in_a_cell_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "wrong.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": ["1 / 0"], "outputs": []}]}))
    with pytest.raises(ZeroDivisionError) as caught:
        notebooks.run(path)
    assert any("wrong.ipynb, cell 1" in str(entry.path) for entry in caught.traceback)
