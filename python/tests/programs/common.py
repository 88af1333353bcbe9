"""What the programs share: data and initial weights that are the same for every library."""

import math

import numpy as np
import torch

STEPS = 50


def numbers(*shape, seed=0, low=None):
    """Normal numbers as ``float32``, or with ``low`` integers from 0 to it."""
    random = np.random.default_rng(seed)
    if low is not None:
        return torch.tensor(random.integers(0, low, shape))
    return torch.tensor(random.standard_normal(shape).astype(np.float32))


def same_weights(model, seed=0):
    """Gives parameters numbers that depend on their names and shapes only: matrices like PyTorch's own initial ones, scales
    near 1 and biases near 0.
    """
    with torch.no_grad():
        for place, (name, parameter) in enumerate(sorted(model.named_parameters())):
            random = np.random.default_rng(seed * 1000 + place)
            drawn = torch.tensor(random.standard_normal(tuple(parameter.shape)).astype(np.float32))
            if parameter.dim() > 1:
                fan_in = parameter.numel() // parameter.shape[0]
                parameter.copy_(drawn / math.sqrt(fan_in))
            else:
                parameter.copy_(drawn * 0.05 + (1.0 if name.endswith("weight") else 0.0))
    return model
