"""Writes golden/programs.json: PyTorch's losses of the programs in programs/.

Run it with an interpreter that has PyTorch: ``python tests/make_program_losses.py``. The tests do not need PyTorch.
"""

import importlib
import json
import pathlib
import sys

import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE / "programs"))

if __name__ == "__main__":
    torch.set_num_threads(1)
    names = sorted(path.stem for path in (HERE / "programs").glob("*.py") if path.stem != "common")
    found = {name: list(importlib.import_module(name).losses()) for name in names}
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(losses)}" for name, losses in found.items())
    (HERE / "golden" / "programs.json").write_text("{\n" + text + "\n}\n")
