"""The Python snippets of the documents run as written, and public names are documented."""

from __future__ import annotations

import importlib
import inspect
import re
import runpy
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import neurenix as nx
import pytest

ROOT = Path(__file__).parents[2]

PAGES = [
    "README.md",
    "docs/compatibility.md",
    "docs/python.md",
    "docs/complex.md",
    "docs/directml.md",
    "docs/distributed.md",
    "docs/distributions.md",
    "docs/generation.md",
    "docs/npu.md",
    "docs/onnx.md",
    "docs/quantization.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_python_of_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks, f"{page} has no Python"
    scope: dict[str, object] = {}
    for block in blocks:
        line = text[: text.index(block)].count("\n")
        exec(compile("\n" * line + textwrap.dedent(block), page, "exec"), scope)
    # Functions of a page that outlive it, such as custom kernels, would keep its tensors.
    scope.clear()


def test_names_that_the_page_calls_missing_are_missing() -> None:
    text = (ROOT / "docs/distributed.md").read_text()
    sentence = text.split("These names of `torch.distributed` are missing:")[1].split(". So are")[0]
    names = re.findall(r"`(\w+)`", sentence)
    assert len(names) > 10
    assert [name for name in names if hasattr(nx.distributed, name)] == []


def test_the_example_whose_types_are_checked_runs() -> None:
    scope = runpy.run_path(str(Path(__file__).parent / "typing_example.py"))
    assert scope["main"]() > 8.0


MODULES = ["", ".amp", ".data", ".hardware", ".io", ".linalg", ".models", ".nn", ".nn.functional", ".nn.init", ".nn.utils"]
MODULES += [f".distributed{name}" for name in ("", ".checkpoint", ".fsdp", ".functional", ".optim", ".tensor_parallel")]
MODULES += [".nn.parallel", ".onnx", ".optim", ".optim.lr_scheduler", ".random", "._results", ".special"]
MODULES += [f".distributions{name}" for name in ("", ".constraints", ".constraint_registry", ".kl", ".transforms", ".utils")]


def offered(module: Any) -> Iterator[tuple[str, Any]]:
    """The public classes and functions of a module."""
    for name, value in vars(module).items():
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)):
            if str(value.__module__).startswith("neurenix"):
                yield name, value


@pytest.mark.parametrize("name", MODULES)
def test_what_is_public_is_described(name: str) -> None:
    silent = []
    for each, value in offered(importlib.import_module(f"neurenix{name}")):
        # The docstring that Python generates for a named tuple describes nothing.
        if not value.__doc__ or value.__doc__.startswith(f"{value.__name__}("):
            silent.append(each)
    assert not silent


# These accept any shape, or consist of parts that document theirs.
WITHOUT_SHAPES = {"Activation", "Loss", "Module", "ModuleDict", "ModuleList", "Parameter", "ParameterDict", "ParameterList"}
WITHOUT_SHAPES |= {"Buffer", "Dropout", "Identity", "Sequential", "UninitializedBuffer", "UninitializedParameter"}


def test_layers_say_their_shapes() -> None:
    silent = []
    for name, layer in offered(nx.nn):
        if not inspect.isclass(layer) or name in WITHOUT_SHAPES or issubclass(layer, nx.nn.Activation):
            continue
        # Sizes as letters, or a reference to a class with the same shapes.
        if not re.search(r"\((\.\.\.|[CLNST]\b)|\bshapes?\b|:class:", layer.__doc__ or ""):
            silent.append(name)
    assert not silent
