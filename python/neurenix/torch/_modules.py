"""Modules of PyTorch's names: which modules of Neurenix they are, and the finder that imports them."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from . import _missing

_FOLDER = Path(__file__).parents[1]
_HERE = __name__.rpartition(".")[0]
_PACKAGE = _HERE.rpartition(".")[0]

MODULES = (
    "amp", "autograd", "distributed", "distributions", "func", "masked", "nn", "onnx", "optim",
    "profiler", "random", "signal",
)  # fmt: skip
"""Modules that are those of Neurenix."""

OWN = (
    "accelerator", "backends", "compiler", "cuda", "fft", "jit", "linalg", "multiprocessing", "serialization", "special",
    "testing", "types", "utils", "version",
)  # fmt: skip
"""Modules in this folder."""

_NAMES = {
    "cuda.amp.autocast_mode": "torch._cuda_amp",
    "cuda.amp.grad_scaler": "torch._cuda_amp",
    "cuda.amp": "torch._cuda_amp",
    "amp.autocast_mode": "amp",
    "amp.grad_scaler": "amp",
    "autograd.variable": "autograd",
    "distributed.nn": "distributed",
    "nn.common_types": "torch._common_types",
    "nn.modules.batchnorm": "nn.normalization",
    "nn.modules.dropout": "nn.activation",
    "nn.modules.instancenorm": "nn.normalization",
    "nn.modules.sparse": "nn",
    "nn.modules.upsampling": "nn.sampling",
    "nn.modules.utils": "torch._tuples",
    "nn.modules": "nn",
    "optim.adam": "optim",
    "optim.adamw": "optim",
    "optim.sgd": "optim",
    "utils.checkpoint": "utils.checkpoint",
    "utils.data.dataloader": "data.loader",
    "utils.data.dataset": "data.dataset",
    "utils.data.sampler": "data.dataset",
    "utils.data": "data",
    "utils.dlpack": "utils.dlpack",
    "utils.tensorboard": "utils.tensorboard",
}
"""Modules of other names, and of those in them: the longest name counts."""


def name_of(name: str) -> str | None:
    """The module that is PyTorch's ``torch.name``."""
    if name.split(".")[0] in OWN and name not in _NAMES:
        own = f"{_HERE}.{name}"
        if _exists(own):
            return own
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        start = ".".join(parts[:count])
        target = _NAMES.get(start, start if start in MODULES else None)
        if target is not None:
            found = ".".join([_PACKAGE, target, *parts[count:]])
            return found if _exists(found) else None
    return None


def _exists(name: str) -> bool:
    """Whether there is such a module of this package. Asking the import system would ask this finder again."""
    file = _FOLDER.joinpath(*name.split(".")[1:])
    return file.with_name(f"{file.name}.py").is_file() or file.joinpath("__init__.py").is_file()


def _explain_missing(module: ModuleType, name: str) -> None:
    """Lets a module, and those in it, find modules by PyTorch's names, and say what to use instead of names that it does
    not have.
    """
    if name and "__getattr__" not in vars(module):
        def missing(attribute: str) -> Any:
            # ``nn.modules`` is ``nn``.
            for inner in (f"{name}.{attribute}", f"{name}.modules.{attribute}"):
                if attribute.isidentifier() and name_of(inner) is not None:
                    return importlib.import_module(f"{_HERE}.{inner}")
            raise AttributeError(_missing.message(f"torch.{name}.{attribute}"))

        module.__getattr__ = missing  # type: ignore[method-assign]
        for each, inner in list(vars(module).items()):
            if isinstance(inner, ModuleType) and inner.__name__ == f"{module.__name__}.{each}" and each[0] != "_":
                _explain_missing(inner, f"{name}.{each}")


class _Loader(importlib.abc.Loader):
    """Gives a module another name."""

    def __init__(self, target: str) -> None:
        self._target = target

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._target)
        _explain_missing(module, spec.name.partition(".torch.")[2] or spec.name.partition(".")[2])
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has put the other name's here.
        module.__spec__ = self._spec


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, root: str) -> None:
        self._root = root

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        found: str | None
        if fullname == self._root:
            found = _HERE
        elif fullname.startswith(f"{self._root}."):
            name = fullname[len(self._root) + 1 :]
            if name.startswith("_") or ".__" in name:
                return None
            found = name_of(name)
            if found is None:
                raise ModuleNotFoundError(_missing.message(f"torch.{name}"), name=fullname)
        else:
            return None
        if found is None or found == fullname:
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(found), is_package=True)


def install(root: str) -> None:
    """Makes ``import root`` and ``import root.nn`` find the modules, where ``root`` is a name such as ``torch``."""
    if not any(isinstance(finder, _Finder) and finder._root == root for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(root))
        if root != _HERE:
            _install_in_children(root)


class _Installed:
    """Unpickling it installs the finder."""

    def __init__(self, root: str) -> None:
        self._root = root

    def __reduce__(self) -> tuple[Any, ...]:
        return install, (self._root,)


def _install_in_children(root: str) -> None:
    """Makes processes that ``multiprocessing`` starts anew find the modules too. Such a process imports the program
    before it unpickles the function to call, so the finder travels with what comes first: the preparation data.
    """
    from multiprocessing import forkserver, spawn

    before = spawn.get_preparation_data

    def with_finder(name: str) -> dict[str, Any]:
        return {**before(name), f"finder of {root}": _Installed(root)}

    spawn.get_preparation_data = with_finder
    # The server that forks children would import the program without any preparation.
    forkserver.set_forkserver_preload([__name__])


def attribute(name: str) -> Any:
    """The module ``torch.name``."""
    return importlib.import_module(f"{_HERE}.{name}")
