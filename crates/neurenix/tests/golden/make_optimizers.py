"""Writes optimizers.json: what PyTorch's optimisers make of two parameters, and the rates of its schedules.

tests/optimizers.rs reads it. The loss is the sum over both parameters of (1 + cos(i)) / 2 * (p[i] - sin(2 i))^2, where i
counts through each parameter. All in float64. Lion, which PyTorch does not have, is its authors' formula.

Needs: pip install torch
"""

import json
import pathlib

import torch
from torch.optim import lr_scheduler

STEPS = (1, 2, 3, 7, 12)


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023)."""

    def __init__(self, parameters, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(parameters, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                c = beta1 * m + (1 - beta1) * p.grad
                p.sub_(lr * (torch.sign(c) + decay * p))
                m.copy_(beta2 * m + (1 - beta2) * p.grad)


def start():
    return [
        torch.linspace(-1.0, 1.5, 6, dtype=torch.float64).reshape(2, 3).requires_grad_(),
        torch.linspace(2.0, -0.5, 4, dtype=torch.float64).requires_grad_(),
    ]


def loss(parameters):
    total = 0.0
    for p in parameters:
        i = torch.arange(p.numel(), dtype=torch.float64).reshape(p.shape)
        total = total + ((1 + torch.cos(i)) / 2 * (p - torch.sin(2 * i)) ** 2).sum()
    return total


def run(make, clip=None, late=False):
    """The parameters after some steps; with `late` the second one has no gradient before step 4."""
    parameters = start()
    optimizer = make(parameters)
    states = {}
    for step in range(1, max(STEPS) + 1):
        optimizer.zero_grad()
        loss(parameters[:1] if late and step < 4 else parameters).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()
        if step in STEPS:
            states[step] = [p.detach().flatten().tolist() for p in parameters]
    return states


o = torch.optim
rules = {
    "sgd": run(lambda p: o.SGD(p, 0.1)),
    "sgd_decay": run(lambda p: o.SGD(p, 0.1, weight_decay=0.05)),
    "sgd_momentum": run(lambda p: o.SGD(p, 0.1, momentum=0.9, weight_decay=0.01)),
    "sgd_nesterov": run(lambda p: o.SGD(p, 0.1, momentum=0.8, nesterov=True)),
    "sgd_clipped": run(lambda p: o.SGD(p, 0.1, momentum=0.9), clip=0.5),
    "adam": run(lambda p: o.Adam(p, 0.05)),
    "adam_decay": run(lambda p: o.Adam(p, 0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    "adamw": run(lambda p: o.AdamW(p, 0.05, weight_decay=0.1)),
    "nadam": run(lambda p: o.NAdam(p, 0.05, weight_decay=0.02)),
    "radam": run(lambda p: o.RAdam(p, 0.05)),
    "rmsprop": run(lambda p: o.RMSprop(p, 0.05)),
    "rmsprop_momentum": run(lambda p: o.RMSprop(p, 0.02, alpha=0.9, momentum=0.5, weight_decay=0.1)),
    "rmsprop_centered": run(lambda p: o.RMSprop(p, 0.02, centered=True)),
    "rmsprop_all": run(lambda p: o.RMSprop(p, 0.02, centered=True, momentum=0.5)),
    "adagrad": run(lambda p: o.Adagrad(p, 0.2, lr_decay=0.1, weight_decay=0.01)),
    "adadelta": run(lambda p: o.Adadelta(p, 1.0, rho=0.8, eps=1e-5)),
    "sgd_dampened": run(lambda p: o.SGD(p, 0.1, momentum=0.9, dampening=0.3)),
    "adam_amsgrad": run(lambda p: o.Adam(p, 0.2, betas=(0.8, 0.6), amsgrad=True)),
    "adamw_amsgrad": run(lambda p: o.AdamW(p, 0.2, betas=(0.8, 0.6), weight_decay=0.1, amsgrad=True)),
    "sgd_dampened_late": run(lambda p: o.SGD(p, 0.1, momentum=0.9, dampening=0.3), late=True),
    "adam_late": run(lambda p: o.Adam(p, 0.05), late=True),
    "nadam_late": run(lambda p: o.NAdam(p, 0.05), late=True),
    "radam_late": run(lambda p: o.RAdam(p, 0.05), late=True),
    "adagrad_late": run(lambda p: o.Adagrad(p, 0.2, lr_decay=0.1), late=True),
    "lion": run(lambda p: Lion(p, 0.05)),
    "lion_decay": run(lambda p: Lion(p, 0.05, weight_decay=0.2)),
}


def rates(make, count, per_step=lambda scheduler, i: scheduler.step()):
    optimizer = o.SGD([torch.zeros(1, requires_grad=True)], 0.4)
    scheduler = make(optimizer)
    found = []
    for i in range(count):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        per_step(scheduler, i)
    return found


scores = [5.0, 4.0, 4.5, 4.2, 4.1, 4.3, 3.0, 3.5, 3.5, 3.5, 3.5, 3.5, 3.5, 2.9, 3.0]
schedules = {
    "step": rates(lambda x: lr_scheduler.StepLR(x, 2, 0.3), 9),
    "cosine": rates(lambda x: lr_scheduler.CosineAnnealingLR(x, 20, eta_min=0.01), 20),
    "warm_cosine": rates(
        lambda x: lr_scheduler.SequentialLR(
            x,
            [lr_scheduler.LinearLR(x, 1 / 5, 1.0, 4), lr_scheduler.CosineAnnealingLR(x, 15, eta_min=0.01)],
            [5],
        ),
        20,
    ),
    "one_cycle": rates(lambda x: lr_scheduler.OneCycleLR(x, 0.4, total_steps=20), 20),
    "one_cycle_quarter": rates(lambda x: lr_scheduler.OneCycleLR(x, 0.4, total_steps=18, pct_start=0.25), 18),
    "warmup": rates(lambda x: lr_scheduler.LinearLR(x, 1 / 5, 1.0, 4), 10),
    "plateau": rates(
        lambda x: lr_scheduler.ReduceLROnPlateau(x, factor=0.5, patience=2, threshold=0.0, min_lr=0.06),
        len(scores),
        lambda scheduler, i: scheduler.step(scores[i]),
    ),
}

path = pathlib.Path(__file__).parent / "optimizers.json"
path.write_text(json.dumps({"rules": rules, "schedules": schedules, "scores": scores}) + "\n")
