"""Runs of optimisers, schedules, parametrizations, pruning and rarer layers, which PyTorch and this library can do alike:
``results(library)`` takes either. ``make_training_golden.py`` stores PyTorch's results, and ``test_training_golden.py``
compares.
"""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import numpy as np

# Optimiser, settings, and the number of steps.
OPTIMIZERS: list[tuple[str, dict[str, Any], int]] = [
    ("SGD", {"lr": 0.05, "maximize": True}, 100),
    ("SGD", {"lr": 0.02, "momentum": 0.9, "nesterov": True}, 100),
    ("Adam", {"lr": 0.05, "maximize": True, "weight_decay": 0.1}, 100),
    ("AdamW", {"lr": 0.05, "amsgrad": True, "maximize": True}, 100),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}, 100),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}, 100),
    ("Adadelta", {"lr": 0.5}, 100),
    ("Adagrad", {"lr": 0.5, "lr_decay": 0.1}, 100),
    ("Adamax", {"lr": 0.1}, 100),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True}, 100),
    ("ASGD", {"lr": 0.05, "t0": 10, "weight_decay": 0.1, "lambd": 0.01}, 100),
    ("ASGD", {"maximize": True}, 100),
    ("Rprop", {}, 100),
    ("Rprop", {"lr": 0.1, "maximize": True, "etas": (0.4, 1.3), "step_sizes": (1e-3, 0.2)}, 100),
    ("Adafactor", {"lr": 0.1}, 100),
    ("Adafactor", {"lr": 0.05, "weight_decay": 0.1, "eps": (1e-6, 1e-2), "d": 1.5}, 40),
    # Few steps: rounding to bfloat16 can tip over.
    ("Muon", {"lr": 0.05}, 10),
    ("Muon", {"lr": 0.05, "nesterov": False, "adjust_lr_fn": "match_rms_adamw"}, 10),
    ("LBFGS", {}, 8),
    ("LBFGS", {"line_search_fn": "strong_wolfe", "history_size": 5}, 8),
    ("LBFGS", {"lr": 0.3, "max_iter": 4, "maximize": True}, 8),
]


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.RandomState(seed).randn(*shape)


def trained(t: Any, name: str, settings: dict[str, Any], steps: int) -> dict[str, Any]:
    """The parameters after 1, 10 and all steps, the last loss, and the names of the state."""
    w = t.nn.Parameter(t.tensor(numbers(5, 3)))
    b = t.nn.Parameter(t.tensor(numbers(3, seed=1)))
    x, y = t.tensor(numbers(20, 5, seed=2)), t.tensor(numbers(20, 3, seed=3))
    optimizer = getattr(t.optim, name)([w] if name == "Muon" else [w, b], **settings)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (((x @ w + b).tanh() - y) ** 2).mean() + (w**4).sum() * 0.01
        loss = -loss if settings.get("maximize") else loss
        loss.backward()
        return loss

    places: list[Any] = []
    loss: Any = None
    for step in range(1, steps + 1):
        loss = optimizer.step(closure)
        if step in (1, 10, steps):
            places.append(w.detach().reshape(-1).tolist() + b.detach().tolist())
    state = optimizer.state_dict()["state"]
    # PyTorch's SGD has no count, and its LBFGS keeps a temporary list.
    keys = sorted({key for each in state.values() for key in each} - {"al", "step"})
    return {"places": places, "loss": float(loss), "keys": keys}


class _Decay:
    def __init__(self) -> None:
        self.start = 3

    def __call__(self, epoch: int) -> float:
        return 1.0 / (epoch + self.start)


def _own(s: Any) -> Any:
    class Own(s.LRScheduler):  # type: ignore[misc]
        def get_lr(self) -> list[float]:
            return [base * 0.9**self.last_epoch + 0.01 * self._step_count for base in self.base_lrs]

    return Own


# Functions of the module of schedules, that of averages, an optimiser, and the last epoch.
SCHEDULES: dict[str, Any] = {
    "lambda": lambda s, _, o, e: s.LambdaLR(o, [_Decay(), lambda epoch: 0.9**epoch], e),
    "multiplicative": lambda s, _, o, e: s.MultiplicativeLR(o, lambda epoch: 0.95, e),
    "step": lambda s, _, o, e: s.StepLR(o, 3, 0.5, e),
    "milestones": lambda s, _, o, e: s.MultiStepLR(o, [2, 6, 6, 9], 0.5, e),
    "constant": lambda s, _, o, e: s.ConstantLR(o, 0.3, 8, e),
    "linear": lambda s, _, o, e: s.LinearLR(o, 0.2, 0.9, 9, e),
    "exponential": lambda s, _, o, e: s.ExponentialLR(o, 0.9, e),
    "polynomial": lambda s, _, o, e: s.PolynomialLR(o, 9, 2.0, e),
    "cosine": lambda s, _, o, e: s.CosineAnnealingLR(o, 5, 0.01, e),
    "restarts": lambda s, _, o, e: s.CosineAnnealingWarmRestarts(o, 4, 2, 0.001, e),
    "cyclic": lambda s, _, o, e: s.CyclicLR(o, [0.01, 0.02], [0.2, 0.3], 3, 5, mode="triangular2", last_epoch=e),
    "exp_range": lambda s, _, o, e: s.CyclicLR(o, 0.01, 0.2, 3, mode="exp_range", gamma=0.95, last_epoch=e),
    "scaled": lambda s, _, o, e: s.CyclicLR(
        o, 0.01, 0.2, 3, scale_fn=lambda x: 0.5**x, scale_mode="iterations", cycle_momentum=False, last_epoch=e
    ),
    "one cycle": lambda s, _, o, e: s.OneCycleLR(o, [0.5, 0.7], total_steps=40, last_epoch=e),
    "own": lambda s, _, o, e: _own(s)(o, e),
    "three phases": lambda s, _, o, e: s.OneCycleLR(
        o, 0.5, epochs=4, steps_per_epoch=10, three_phase=True, anneal_strategy="linear",
        base_momentum=[0.8, 0.82], max_momentum=[0.9, 0.95], last_epoch=e,
    ),
}  # fmt: skip
# These do not resume.
SCHEDULES_FROM_0: dict[str, Any] = {
    "chained": lambda s, _, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9)]),
    "sequence": lambda s, _, o: s.SequentialLR(
        o, [s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9), s.StepLR(o, 2, 0.5)], [3, 9]
    ),
    "chain in sequence": lambda s, _, o: s.SequentialLR(
        o, [s.ChainedScheduler([s.LinearLR(o, 0.1, 1.0, 4), s.ExponentialLR(o, 0.9)]), s.PolynomialLR(o, 10)], [5]
    ),
    "sequence in sequence": lambda s, _, o: s.SequentialLR(
        o,
        [s.SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 2), s.ExponentialLR(o, 0.9)], [2]),
         s.MultiplicativeLR(o, lambda epoch: 0.8)],
        [5],
    ),
    "swa": lambda _, a, o: a.SWALR(o, 0.05, anneal_epochs=6),
    "swa linear": lambda _, a, o: a.SWALR(o, [0.05, 0.5], anneal_epochs=4, anneal_strategy="linear"),
    "swa at once": lambda _, a, o: a.SWALR(o, 0.05, anneal_epochs=0),
}  # fmt: skip


def rates(t: Any, name: str, optimizer_name: str, last_epoch: int = -1) -> list[list[float]]:
    """The learning rates and momenta of two groups in 30 epochs."""
    schedules = importlib.import_module(f"{t.__name__}.optim.lr_scheduler")
    averages = importlib.import_module(f"{t.__name__}.optim.swa_utils")
    groups = [{"params": [t.nn.Parameter(t.ones(1))], "lr": rate} for rate in (0.1, 0.3)]
    settings = {"momentum": 0.9} if optimizer_name == "SGD" else {}
    optimizer = getattr(t.optim, optimizer_name)(groups, lr=1.0, **settings)
    if last_epoch >= 0:
        for group in optimizer.param_groups:
            group.update(initial_lr=group["lr"] * 1.5, max_lr=0.5, min_lr=1e-5, base_momentum=0.8, max_momentum=0.95)
    if name in SCHEDULES:
        schedule = SCHEDULES[name](schedules, averages, optimizer, last_epoch)
    else:
        schedule = SCHEDULES_FROM_0[name](schedules, averages, optimizer)
    rows = []
    for _ in range(30):
        momenta = [group.get("momentum") or group.get("betas")[0] for group in optimizer.param_groups]
        rows.append([group["lr"] for group in optimizer.param_groups] + momenta + list(schedule.get_last_lr()))
        optimizer.step()
        schedule.step()
    return rows


def _filled(t: Any, module: Any, scale: float = 0.5) -> Any:
    for seed, tensor in enumerate([*module.parameters(), *module.buffers()]):
        if tensor.is_floating_point():
            values = np.asarray(numbers(*tensor.shape, seed=seed)).reshape(tuple(tensor.shape)) * scale
            tensor.data = t.tensor(values.astype("float32"))
    return module


def ran(t: Any, function: Any, *shapes: tuple[int, ...], module: Any = None, low: float | None = None) -> dict[str, Any]:
    """A result, and its gradients by the inputs and the module's parameters; the module's state."""
    inputs = []
    for seed, shape in enumerate(shapes):
        values = numbers(*shape, seed=100 + seed)
        inputs.append(t.tensor((abs(values) + low if low is not None else values).astype("float32"), requires_grad=True))
    if module is not None:
        module.zero_grad()
    result = function(*inputs)
    result = result[0] if isinstance(result, tuple) else result
    seeds = t.linspace(-1.0, 1.0, result.numel()).reshape(result.shape)
    (result * seeds).sum().backward()
    gradients = [x.grad for x in inputs] + [p.grad for p in (module.parameters() if module is not None else ())]
    return {
        "shape": list(result.shape),
        "values": result.detach().reshape(-1).tolist(),
        "gradients": [[] if each is None or not each.any() else each.reshape(-1).tolist() for each in gradients],
        "state": sorted(module.state_dict()) if module is not None else [],
    }


def modules(t: Any) -> dict[str, Any]:
    """Parametrizations, norms, pruning, fusion: each as in :func:`ran`."""
    nn = t.nn
    utils = {
        name: importlib.import_module(f"{t.__name__}.nn.utils.{name}")
        for name in ("parametrizations", "parametrize", "prune", "fusion", "stateless")
    }
    p, prune = utils["parametrizations"], utils["prune"]
    results: dict[str, Any] = {}

    def add(name: str, module: Any, *shape: int) -> None:
        results[name] = ran(t, module, shape, module=module)

    for dim in (0, 1, None):
        add(f"weight_norm {dim}", p.weight_norm(_filled(t, nn.Linear(4, 3)), dim=dim), 2, 4)
        module = nn.utils.weight_norm(_filled(t, nn.Linear(4, 3)), dim=dim)
        add(f"older weight_norm {dim}", module, 2, 4)
        add(f"older weight_norm {dim}, removed", nn.utils.remove_weight_norm(module), 2, 4)
    add("weight_norm of LSTM", p.weight_norm(_filled(t, nn.LSTM(3, 2)), "weight_hh_l0"), 4, 1, 3)
    for name, norm in (("spectral_norm", p.spectral_norm), ("older spectral_norm", nn.utils.spectral_norm)):
        module = _filled(t, norm(nn.Conv2d(2, 3, 3)))
        add(name, module, 1, 2, 5, 5)
        add(f"{name}, again", module, 1, 2, 5, 5)
        add(f"{name}, eval", module.eval(), 1, 2, 5, 5)
        add(f"{name}, transposed", _filled(t, norm(nn.ConvTranspose2d(2, 3, 3), n_power_iterations=3)), 1, 2, 5, 5)
    for kind, (columns, rows) in itertools.product(("matrix_exp", "cayley", "householder"), ((3, 3), (5, 3), (3, 5))):
        module = p.orthogonal(nn.Linear(columns, rows), orthogonal_map=kind, use_trivialization=False)
        original = module.parametrizations.weight.original
        values = numbers(rows, columns)
        if kind == "householder":
            values = (np.tril(values * 0.4, -1) if rows >= columns else np.triu(values * 0.4, 1)) - np.eye(rows, columns)
        original.data, module.bias.data = t.tensor(values.astype("float32")), t.zeros(rows)
        add(f"orthogonal {kind} {rows} {columns}", module, 2, columns)

    class Symmetric(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, x: Any) -> Any:
            return x.triu()

    class Twice(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2.0

    module = _filled(t, nn.Linear(3, 3))
    utils["parametrize"].register_parametrization(module, "weight", Symmetric())
    module.weight = t.tensor(numbers(3, 3).astype("float32"))
    add("assigned", module, 2, 3)
    utils["parametrize"].register_parametrization(module, "weight", Twice())
    add("two parametrizations", module, 2, 3)
    add("removed", utils["parametrize"].remove_parametrizations(module, "weight"), 2, 3)

    scores = t.tensor(np.arange(20.0).reshape(4, 5).astype("float32"))
    prunings = {
        "l1": lambda m: prune.l1_unstructured(m, "weight", 0.4),
        "l1 count": lambda m: prune.l1_unstructured(m, "weight", 3),
        "l1 scores": lambda m: prune.l1_unstructured(m, "weight", 0.5, importance_scores=scores),
        "ln": lambda m: prune.ln_structured(m, "weight", 0.5, 2, 0),
        "ln 1": lambda m: prune.ln_structured(m, "weight", 1, 1, 1),
        "ln inf": lambda m: prune.ln_structured(m, "weight", 2, float("inf"), -1),
        "identity": lambda m: prune.identity(m, "weight"),
        "mask": lambda m: prune.custom_from_mask(m, "weight", (scores % 3 > 0).to(scores.dtype)),
        "l1, ln": lambda m: (prune.l1_unstructured(m, "weight", 0.3), prune.ln_structured(m, "weight", 1, 2, 0)),
        "ln, l1, l1": lambda m: (
            prune.ln_structured(m, "weight", 1, 2, 1),
            prune.l1_unstructured(m, "weight", 0.5),
            prune.l1_unstructured(m, "weight", 0.2),
        ),
        "global": lambda m: prune.global_unstructured(
            [(m, "weight"), (m, "bias")], prune.L1Unstructured, amount=0.5
        ),
    }
    for name, change in prunings.items():
        module = _filled(t, nn.Linear(5, 4))
        change(module)
        add(f"pruned by {name}", module, 2, 5)
        add(f"pruned by {name}, removed", prune.remove(module, "weight"), 2, 5)
    for name, layer, transpose in (("Conv2d", nn.Conv2d, False), ("ConvTranspose2d", nn.ConvTranspose2d, True)):
        pair = _filled(t, nn.Sequential(layer(2, 3, 3, bias=not transpose), nn.BatchNorm2d(3))).eval()
        pair[1].running_var.data = t.tensor([0.5, 1.0, 2.0])
        add(f"fused {name}", utils["fusion"].fuse_conv_bn_eval(pair[0], pair[1], transpose), 1, 2, 5, 5)
    module = _filled(t, nn.Linear(2, 3))
    call = utils["stateless"].functional_call
    results["functional_call"] = ran(t, lambda x, w: call(module, {"weight": w}, (x,)), (4, 2), (3, 2), module=module)
    return results


def functions(t: Any) -> dict[str, Any]:
    """Rarer functions and layers, as in :func:`ran`."""
    nn = t.nn
    F = importlib.import_module(f"{t.__name__}.nn.functional")
    results: dict[str, Any] = {}
    for dims, mode, padding, align in itertools.product(
        (2, 3), ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (True, False)
    ):
        if dims == 2 or mode != "bicubic":
            sizes, places = ((4, 5), (3, 4)) if dims == 2 else ((3, 4, 2), (2, 3, 2))
            results[f"grid_sample {dims} {mode} {padding} {align}"] = ran(
                t,
                lambda x, g, m=mode, p=padding, a=align: F.grid_sample(x, g, m, p, a),
                (2, 2, *sizes),
                (2, *places, dims),
            )
    for align in (True, False):
        results[f"affine_grid {align}"] = ran(t, lambda x, a=align: F.affine_grid(x, (2, 3, 4, 5), a), (2, 2, 3))
        results[f"affine_grid 3 {align}"] = ran(t, lambda x, a=align: F.affine_grid(x, (2, 3, 4, 5, 1), a), (2, 3, 4))
    # Odd powers have no root of what is below zero.
    results["lp_pool1d"] = ran(t, lambda x: F.lp_pool1d(x, 2, 3, 2), (2, 3, 9))
    results["lp_pool2d"] = ran(t, nn.LPPool2d(3, (2, 3), (2, 1), ceil_mode=True), (2, 3, 7, 6), low=0.1)
    results["lp_pool3d"] = ran(t, nn.LPPool3d(2, 2), (1, 2, 4, 4, 4))
    for dims in (1, 2, 3):
        pool = getattr(nn, f"MaxPool{dims}d")(2, return_indices=True)
        unpool = getattr(nn, f"MaxUnpool{dims}d")(2)
        size = (2, 3, *(5,) * dims)
        results[f"max_unpool{dims}d"] = ran(t, lambda x, p=pool, u=unpool, s=size: u(*p(x), output_size=s), size)
    results["channel_shuffle"] = ran(t, nn.ChannelShuffle(3), (2, 6, 4, 5))
    for order in (1.0, 2.0, float("inf")):
        results[f"pdist {order}"] = ran(t, lambda x, p=order: F.pdist(x, p), (5, 3))
    results["upsample_bilinear"] = ran(t, lambda x: F.upsample_bilinear(x, size=(5, 7)), (1, 2, 3, 4))
    results["leaky_relu_"] = ran(t, lambda x: F.leaky_relu_(x * 2.0, 0.2), (7,))
    layer = _filled(t, nn.AdaptiveLogSoftmaxWithLoss(8, 12, [2, 5, 9], div_value=2.0, head_bias=True))
    targets = t.tensor([0, 3, 11, 8, 5, 2])
    results["adaptive softmax"] = ran(t, lambda x: layer(x, targets).output, (6, 8), module=layer)
    results["adaptive softmax, all"] = ran(t, layer.log_prob, (6, 8), module=layer)
    return results


def results(t: Any) -> dict[str, Any]:
    """All results."""
    names = [*SCHEDULES, *SCHEDULES_FROM_0]
    return {
        "optimizers": [trained(t, *case) for case in OPTIMIZERS],
        "rates": {f"{name} {kind}": rates(t, name, kind) for name in names for kind in ("SGD", "Adam")},
        "resumed": {name: rates(t, name, "SGD", 5) for name in SCHEDULES},
        "modules": modules(t),
        "functions": functions(t),
    }
