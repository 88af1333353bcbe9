"""Writes golden/training.json: PyTorch's results of the cases in training_cases.py. Run it with an interpreter that has
PyTorch: ``python tests/make_training_golden.py``. The tests do not need PyTorch.
"""

import json
import pathlib
import warnings
from typing import Any

import torch
import training_cases


def rounded(value: Any) -> Any:
    """With the digits that the tests compare."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.15g}") if isinstance(value, float) else value


warnings.filterwarnings("ignore")
found = training_cases.results(torch)
for part in ("modules", "functions"):
    for each in found[part].values():
        # float32 has nine digits.
        each["values"] = [float(f"{value:.9g}") for value in each["values"]]
        each["gradients"] = [[float(f"{value:.9g}") for value in gradient] for gradient in each["gradients"]]
path = pathlib.Path(__file__).parent / "golden" / "training.json"
path.write_text(json.dumps(rounded(found), separators=(",", ":")) + "\n")
