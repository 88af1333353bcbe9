"""Optimisers and learning rate schedules with PyTorch's names, signatures and formulas."""

from . import _python_rules, lr_scheduler, swa_utils
from ._python_rules import *
from .lbfgs import LBFGS
from .optimizer import Optimizer
from .rules import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, Lion, NAdam, RAdam, RMSprop

__all__ = [
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "lr_scheduler",
    "swa_utils",
    *_python_rules.__all__,
]
