"""Where names are defined: modules, types for type checkers, functions that match methods."""

from __future__ import annotations

import importlib
from pathlib import Path

import micrograd_rs
import neurenix as nx
import pytest


def test_functional_is_a_module_by_both_names() -> None:
    module = importlib.import_module("neurenix.functional")
    from neurenix.functional import relu

    assert relu is module.relu is nx.functional.relu is nx.nn.functional.relu
    public = {name for name in vars(nx.nn.functional) if not name.startswith("_")}
    assert public <= set(vars(module))


@pytest.mark.parametrize("package", [nx, micrograd_rs])
def test_packages_tell_type_checkers_that_they_have_types(package: object) -> None:
    assert (Path(str(getattr(package, "__file__"))).parent / "py.typed").is_file()
