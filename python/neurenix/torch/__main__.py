"""``python -m neurenix.torch script.py args`` runs a program that says ``import torch``; ``-m module`` runs a module."""

from __future__ import annotations

import os
import runpy
import sys

import neurenix.torch
from neurenix.torch._modules import install

_USAGE = "usage: python -m neurenix.torch SCRIPT [ARGUMENTS]\n       python -m neurenix.torch -m MODULE [ARGUMENTS]"


def main() -> int:
    """Runs the program that the arguments name."""
    arguments = sys.argv[1:]
    is_module = arguments[:1] == ["-m"]
    if len(arguments) <= is_module or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    install("torch")
    if is_module:
        sys.argv = arguments[1:]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
