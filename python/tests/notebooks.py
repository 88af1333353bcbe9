"""Runs the notebooks of examples/ without Jupyter.

``python tests/notebooks.py [NAME ...]`` updates stored outputs: those of all notebooks, or of these. The outputs of
``deployment`` are those of Qualcomm's emulator, so ``RNN_NPU_EMULATORS=1`` and, unless this interpreter has the emulator,
``RNN_NPU_PATH`` must be set.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(path: Path) -> dict[str, Any]:
    """Runs the cells in order, in one scope like Jupyter, and returns the notebook with their outputs. Environment
    variables that it sets are reset afterwards."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    with mock.patch.dict(os.environ):
        _run_cells(notebook, path.name)
    return notebook


def _run_cells(notebook: dict[str, Any], name: str) -> None:
    scope: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]), f"{name}, cell {number}")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        printed, value = io.StringIO(), None
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, f"{name}, cell {number}", "exec"), scope)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), f"{name}, cell {number}", "eval"), scope)
        cell["outputs"] = _outputs(printed.getvalue(), value)


def _outputs(printed: str, value: Any) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = []
    if printed:
        outputs.append({"name": "stdout", "output_type": "stream", "text": printed.splitlines(keepends=True)})
    if value is not None:
        data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
        picture = value._repr_png_() if hasattr(value, "_repr_png_") else None
        if picture is not None:
            data["image/png"] = base64.b64encode(picture).decode() + "\n"
        outputs.append({"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"})
    return outputs


def main() -> None:
    """Updates the outputs of the named notebooks, or of all."""
    names = sys.argv[1:] or sorted(path.stem for path in EXAMPLES.glob("*.ipynb"))
    for path in (EXAMPLES / f"{name}.ipynb" for name in names):
        notebook = run(path)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
