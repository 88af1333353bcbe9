"""Hooks of modules and optimisers; states that PyTorch writes; lazy layers, averages of weights and compiled steps."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import neurenix as nx
import numpy as np
import pytest
from neurenix import nn, optim
from neurenix.nn import module as modules
from neurenix.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn


class Pair(nn.Module):
    def forward(self, a: nx.Tensor, factor: float, b: nx.Tensor) -> tuple[nx.Tensor, nx.Tensor]:
        return a * b, a + b * factor


def lists(gradients: Any) -> list[Any]:
    return [None if each is None else each.tolist() for each in gradients]


def test_backward_hooks_see_all_gradients_and_replace_them() -> None:
    module, seen = Pair(), []
    a, b = (nx.tensor(values, requires_grad=True) for values in ([1.0, 2.0], [3.0, 4.0]))
    module.register_full_backward_hook(lambda _, given, received: seen.append((lists(given), lists(received))))
    module.register_full_backward_hook(lambda _, given, received: (given[0] * 2, None, given[2] * 3))
    module.register_full_backward_pre_hook(lambda _, received: (received[0] * 10, received[1]))
    y, z = module(a, 2.0, b)
    (y.sum() + z.sum()).backward()
    # Those of y and z become 10 and 1: of a, 10 * b + 1; of b, 10 * a + 2.
    assert seen == [([[31.0, 41.0], None, [12.0, 22.0]], [[10.0, 10.0], [1.0, 1.0]])]
    assert a.grad.tolist() == [62.0, 82.0] and b.grad.tolist() == [36.0, 66.0]
    a.grad = b.grad = None
    y, _ = module(a, 2.0, b)
    y.sum().backward()
    assert seen[1] == ([[30.0, 40.0], None, [10.0, 20.0]], [[10.0, 10.0], None])
    with nx.no_grad():
        module(a, 2.0, b)
    assert len(seen) == 2


def test_a_backward_hook_of_a_first_layer_has_no_input_gradients() -> None:
    layer, seen = nn.Linear(2, 1), []
    handle = layer.register_full_backward_hook(lambda _, given, received: seen.append((lists(given), lists(received))))
    layer(nx.ones(1, 2)).sum().backward()
    assert seen == [([None], [[[1.0]]])] and layer.weight.grad.tolist() == [[1.0, 1.0]]
    handle.remove()
    layer(nx.ones(1, 2)).sum().backward()
    assert len(seen) == 1
    wrong = Pair()
    wrong.register_full_backward_hook(lambda *_: (nx.ones(2),))
    with pytest.raises(RuntimeError, match="1 gradients, expected 3"):
        wrong(nx.ones(2, requires_grad=True), 1.0, nx.ones(2))[0].sum().backward()


def test_hooks_of_all_modules_and_hooks_that_always_run() -> None:
    seen: list[Any] = []
    handles = [
        modules.register_module_forward_pre_hook(lambda m, args: seen.append(("before", type(m).__name__))),
        modules.register_module_forward_hook(lambda m, args, result: seen.append(("after", type(m).__name__))),
        modules.register_module_full_backward_hook(lambda m, *_: seen.append(("backward", type(m).__name__))),
    ]
    try:
        nn.Sequential(nn.Linear(2, 2))(nx.ones(1, 2)).sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    assert [each[1] for each in seen[:4]] == ["Sequential", "Linear", "Linear", "Sequential"]
    assert sorted(seen[4:]) == [("backward", "Linear"), ("backward", "Sequential")]
    nn.Linear(2, 2)(nx.ones(1, 2))
    assert len(seen) == 6

    class Failing(nn.Module):
        def forward(self, x: nx.Tensor) -> nx.Tensor:
            raise ArithmeticError("no")

    module = Failing()
    module.register_forward_hook(lambda m, args, kwargs, result: seen.append(result), always_call=True, with_kwargs=True)
    module.register_forward_hook(lambda m, args, result: seen.append("never"))
    with pytest.raises(ArithmeticError, match="no"):
        module(nx.ones(1))
    assert seen[6:] == [None]


def test_hooks_on_states() -> None:
    net, seen = nn.Sequential(nn.Linear(1, 1)), []
    net.register_state_dict_pre_hook(lambda module, prefix, keep_vars: seen.append(prefix))
    net[0].register_state_dict_post_hook(lambda module, state, prefix, _: state.update({f"{prefix}extra": nx.ones(1)}))
    state = net.state_dict()
    assert seen == [""] and list(state) == ["0.weight", "0.bias", "0.extra"]
    with pytest.raises(RuntimeError, match="Unexpected.*0.extra"):
        net.load_state_dict(state)
    net[0].register_load_state_dict_pre_hook(lambda module, state, prefix, *_: state.pop(f"{prefix}extra", None))
    net.register_load_state_dict_post_hook(lambda module, keys: seen.append(list(keys.unexpected_keys)))
    assert str(net.load_state_dict(state)) == "<All keys matched successfully>" and "0.extra" in state
    net.load_state_dict({**state, "other": nx.ones(1)}, strict=False)
    assert seen[1:] == [[], ["other"]]

    class Counting(nn.Module):
        count = 1

        def get_extra_state(self) -> int:
            return self.count

        def set_extra_state(self, state: int) -> None:
            self.count = state

    one, two = nn.Sequential(Counting()), nn.Sequential(Counting())
    one[0].count = 5
    two.load_state_dict(one.state_dict())
    assert two[0].count == 5 and list(one.state_dict()) == ["0._extra_state"]
    layer = nn.Linear(2, 2)
    before = layer.weight
    layer.load_state_dict({"weight": nx.ones(2, 2, dtype=nx.float64), "bias": nx.zeros(2)}, assign=True)
    assert layer.weight is not before and layer.weight.dtype == nx.float64 and layer.weight.requires_grad


def test_hooks_of_optimizers() -> None:
    w, seen = nn.Parameter([1.0]), []

    class Own(optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    optimizer = Own([w], lr=0.5)
    first = optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(w.item()))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, state: seen.append(sorted(state)))
    (w * 1.0).sum().backward()
    optimizer.step()
    assert seen == ["before", 0.5]
    first.remove()
    optimizer.step()
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    assert seen[2:] == [0.0, ["more", "param_groups", "state"]]
    for copied in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optim.SGD([w], lr=0.5)))):
        copied.step()
    assert len(seen) == 4
    scaler = nx.amp.GradScaler(init_scale=2.0)
    optimizer.zero_grad()
    scaler.scale((w * float("inf")).sum()).backward()
    scaler.step(optimizer)
    # No step, no hook.
    assert len(seen) == 4


def test_a_state_of_pytorch_is_continued() -> None:
    # What ``state_dict()`` of ``torch.optim.Rprop`` and ``ASGD`` has after a step, as arrays.
    settings = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False, "params": [0]}
    state = {"step": np.float32(1.0), "prev": np.float32([2.0]), "step_size": np.float32([0.5])}
    w = nn.Parameter([1.0])
    optimizer = optim.Rprop([w])
    group = {"lr": 0.01, "etas": (0.5, 1.2), "step_sizes": (1e-6, 50), **settings}
    optimizer.load_state_dict({"state": {0: state}, "param_groups": [group]})
    (w * 3.0).sum().backward()
    optimizer.step()
    # The gradient has kept its sign: the step is 0.5 * 1.2.
    assert w.item() == pytest.approx(0.4) and optimizer.state[w]["step"].item() == 2.0
    state = {"step": np.float32(1.0), "eta": np.float32(0.5), "mu": np.float32(1.0), "ax": np.float32([1.0])}
    optimizer = optim.ASGD([w], lambd=0.0)
    group = {"lr": 0.5, "lambd": 0.0, "alpha": 0.75, "t0": 1e6, "weight_decay": 0.0, **settings}
    optimizer.load_state_dict({"state": {0: state}, "param_groups": [group]})
    optimizer.step()
    assert w.item() == pytest.approx(0.4 - 0.5 * 3.0)


@pytest.mark.parametrize("settings", [{}, {"line_search_fn": "strong_wolfe"}])
def test_lbfgs_finds_the_minimum_and_continues_from_a_state(settings: dict[str, Any]) -> None:
    def make() -> tuple[Any, Any, Any]:
        w = nn.Parameter(nx.tensor([-1.2, 1.0], dtype=nx.float64))
        optimizer = optim.LBFGS([w], lr=1.0 if settings else 0.1, max_iter=5, tolerance_change=1e-15, **settings)

        def closure() -> nx.Tensor:
            optimizer.zero_grad()
            loss = 100.0 * (w[1] - w[0] ** 2) ** 2 + (1.0 - w[0]) ** 2
            loss.backward()
            return loss

        return w, optimizer, closure

    w, optimizer, closure = make()
    for _ in range(3):
        optimizer.step(closure)
    other, again, other_closure = make()
    other.data = w.detach().clone()
    again.load_state_dict(optimizer.state_dict())
    for _ in range(2):
        assert optimizer.step(closure).item() == again.step(other_closure).item()
    assert w.tolist() == other.tolist()
    for _ in range(200):
        optimizer.step(closure)
    assert np.allclose(w.tolist(), [1.0, 1.0], atol=1e-5)
    with pytest.raises(TypeError, match="closure"):
        optimizer.step()
    with pytest.raises(ValueError, match="parameter groups"):
        optim.LBFGS([{"params": [w]}, {"params": [nn.Parameter([1.0])]}])


def test_compiled_functions_take_steps_or_say_that_they_cannot() -> None:
    def steps(make: Any, compiled: bool) -> list[float]:
        nx.manual_seed(0)
        layer, x = nn.Linear(3, 2), nx.randn(4, 3)
        optimizer = make(layer.parameters())
        schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

        def step(x: nx.Tensor) -> nx.Tensor:
            optimizer.zero_grad()
            loss = (layer(x) ** 2).sum()
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss.detach()

        function = nx.compile(step) if compiled else step
        return [function(x).item() for _ in range(6)]

    for make in (
        lambda p: optim.Adam(p, lr=0.01, maximize=True),
        lambda p: optim.NAdam(p, lr=0.01, weight_decay=0.3, decoupled_weight_decay=True),
    ):
        assert steps(make, True) == steps(make, False)
    with pytest.raises(RuntimeError, match="Rprop's step runs in Python"):
        steps(lambda p: optim.Rprop(p), True)


def test_rows_without_a_gradient_stay_with_sparse_adam() -> None:
    w = nn.Parameter(nx.ones(3, 2))
    optimizer = optim.SparseAdam([w], lr=0.1)
    for row in (0, 2, 0):
        optimizer.zero_grad()
        w[row].sum().backward()
        optimizer.step()
    # Adam's first steps with a constant gradient are of length lr; the third counts as the third.
    assert w[1].tolist() == [1.0, 1.0] and w[2].tolist() != [1.0, 1.0] and w[0, 0].item() < w[2, 0].item() < 1.0


def test_averages_of_weights() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1))
    mean, moving = AveragedModel(model), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.75))
    for value in (1.0, 2.0, 6.0):
        model[0].weight.data = nx.tensor([[value]])
        for averaged in (mean, moving):
            averaged.update_parameters(model)
    assert mean.module[0].weight.item() == 3.0 and mean.n_averaged.item() == 3
    # 0.75 * (0.75 * 1 + 0.25 * 2) + 0.25 * 6
    assert moving.module[0].weight.item() == pytest.approx(2.4375)
    batches = [nx.tensor([[1.0], [3.0]]), (nx.tensor([[5.0], [7.0]]), None)]
    update_bn(batches, mean.eval())
    # The means of the batches are 3 * 2 and 3 * 6.
    assert mean.module[1].running_mean.item() == pytest.approx(12.0) and not mean.training
    assert mean.module[1].momentum == 0.1
    other = AveragedModel(model)
    other.load_state_dict(mean.state_dict())
    assert other.n_averaged.item() == 3


def test_lazy_layers() -> None:
    net = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    assert net[3].has_uninitialized_params() and repr(net[3]) == "LazyLinear(in_features=0, out_features=2, bias=True)"
    with pytest.raises(ValueError, match="call the network once"):
        optim.SGD(net.parameters(), lr=0.1)
    assert net(nx.zeros(2, 3, 5, 5)).shape == (2, 2)
    assert type(net[0]) is nn.Conv2d and net[0].in_channels == 3 and net[1].num_features == 4
    assert net[3].in_features == 36 and type(net[3]) is nn.Linear
    lazy = nn.LazyLinear(3, dtype=nx.float64)
    lazy.load_state_dict(nn.Linear(5, 3).state_dict())
    assert type(lazy) is nn.Linear and lazy.in_features == 5 and lazy.weight.dtype == nx.float64


def test_a_parametrized_layer_in_compiled_functions_and_copies() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    optimizer = optim.SGD(layer.parameters(), lr=0.1)
    copied = copy.deepcopy(layer)
    other = optim.SGD(copied.parameters(), lr=0.1)

    def step(layer: nn.Module, optimizer: optim.Optimizer, x: nx.Tensor) -> nx.Tensor:
        optimizer.zero_grad()
        loss = (layer(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled, x = nx.compile(lambda x: step(layer, optimizer, x)), nx.randn(4, 3)
    assert [compiled(x).item() for _ in range(4)] == [step(copied, other, x).item() for _ in range(4)]
    assert nn.utils.parametrize.is_parametrized(layer, "weight") and "weight" in dir(layer)
    with pytest.raises(ValueError, match="does not have a parametrization"):
        nn.utils.parametrize.remove_parametrizations(layer, "bias")
    old = {"weight_g": nx.ones(2, 1), "weight_v": nx.ones(2, 3), "bias": nx.zeros(2)}
    layer.load_state_dict(old)
    assert np.allclose(layer.weight.tolist(), 3.0**-0.5)


def test_noise_of_gumbel_and_alpha_dropout() -> None:
    nx.manual_seed(1)
    logits = nx.tensor([1.0, 2.0, 3.0])
    samples = nn.functional.gumbel_softmax(logits.expand(50_000, 3), hard=True)
    # Their frequencies are the probabilities, within five standard deviations.
    assert np.allclose(samples.mean(0).tolist(), logits.softmax(0).tolist(), atol=5 * (0.25 / 50_000) ** 0.5)
    dropped = nn.functional.alpha_dropout(nx.randn(100_000), 0.3, training=True)
    assert abs(dropped.mean().item()) < 0.02 and abs(dropped.std().item() - 1.0) < 0.02
    channels = nn.functional.feature_alpha_dropout(nx.ones(50, 40, 3), 0.5, training=True)
    assert (channels == channels[..., :1]).all().item() and len(set(channels.reshape(-1).tolist())) == 2


def test_hooks_on_registration() -> None:
    """The order and the arguments of the calls are PyTorch's."""
    seen: list[tuple[str, str, str]] = []

    def noting(kind: str) -> Callable[[nn.Module, str, Any], None]:
        return lambda module, name, member: seen.append((kind, type(module).__name__, f"{name}: {type(member).__name__}"))

    handles = [
        modules.register_module_parameter_registration_hook(noting("parameter")),
        modules.register_module_buffer_registration_hook(noting("buffer")),
        modules.register_module_module_registration_hook(noting("module")),
    ]
    model = nn.Sequential(nn.Linear(2, 3))
    model.norm = nn.BatchNorm1d(3, affine=False)
    model.norm.running_mean = nx.ones(3)
    model.scale = nn.Parameter(nx.zeros(1))
    model.norm = None
    for handle in handles:
        handle.remove()
    model.register_buffer("unseen", nx.zeros(1))
    assert seen == [
        ("parameter", "Linear", "weight: Parameter"),
        ("parameter", "Linear", "bias: Parameter"),
        ("module", "Sequential", "0: Linear"),
        ("buffer", "BatchNorm1d", "running_mean: Tensor"),
        ("buffer", "BatchNorm1d", "running_var: Tensor"),
        ("buffer", "BatchNorm1d", "num_batches_tracked: Tensor"),
        ("module", "Sequential", "norm: BatchNorm1d"),
        ("buffer", "BatchNorm1d", "running_mean: Tensor"),
        ("parameter", "Sequential", "scale: Parameter"),
        ("module", "Sequential", "norm: NoneType"),
    ]


def test_a_hook_on_registration_replaces_the_member() -> None:
    model = nn.Module()
    with modules.register_module_parameter_registration_hook(lambda module, name, parameter: nn.Parameter(parameter.detach() + 1)):
        model.weight = nn.Parameter(nx.zeros(2))
        model.register_parameter("bias", nn.Parameter(nx.ones(1)))
        model.register_parameter("none", None)
    assert model.weight.tolist() == [1.0, 1.0] and model.bias.tolist() == [2.0] and model.none is None
    with pytest.raises(TypeError, match="expected a function"):
        modules.register_module_parameter_registration_hook(3)  # type: ignore[arg-type]
