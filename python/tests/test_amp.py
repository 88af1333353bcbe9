"""Loss scaling, and the states of random generators."""

from __future__ import annotations

import copy
import pickle

import neurenix as nx
import neurenix.torch
import numpy as np
import pytest


@pytest.mark.parametrize(
    ("dtype", "scaled"), [("float64", "float64"), ("float32", "float32"), ("float16", "float32"), ("bfloat16", "float32")]
)
def test_a_scaled_loss_is_not_narrowed(dtype: str, scaled: str) -> None:
    scaler = nx.amp.GradScaler(init_scale=2.0**16)
    loss = scaler.scale(nx.tensor(1 + 2.0**-30, dtype="float64").to(dtype))
    assert loss.dtype.name == scaled
    assert loss.item() == (2.0**16 + 2.0**-14 if dtype == "float64" else 2.0**16)


def test_a_generator_is_copied_and_pickled_with_its_state() -> None:
    generator = nx.Generator(7)
    nx.rand(5, generator=generator)
    copies = [copy.copy(generator), copy.deepcopy(generator), pickle.loads(pickle.dumps(generator))]
    expected = nx.rand(5, generator=generator).tolist()
    for each in copies:
        assert each.initial_seed() == 7
        assert nx.rand(5, generator=each).tolist() == expected, "each goes on by itself from where it was copied"


def scaled_steps(optimizer: nx.optim.Optimizer, weights: list[nx.Tensor], factors: list[float]) -> nx.amp.GradScaler:
    """Takes one step for each factor on the loss, with a scaler that adapts."""
    scaler = nx.amp.GradScaler(init_scale=2.0**10, growth_interval=2)
    for factor in factors:
        optimizer.zero_grad()
        scaler.scale(sum((w**2).sum().to(weights[0].device) for w in weights) * factor).backward()
        scaler.unscale_(optimizer)
        nx.nn.utils.clip_grad_norm_(weights, 1.0)
        scaler.step(optimizer)
        scaler.update()
    return scaler


# Others take a closure, matrices only, or leave rows out.
OTHERS = ("LBFGS", "Muon", "Optimizer", "SparseAdam", "lr_scheduler", "swa_utils")
RULES = [name for name in nx.optim.__all__ if name not in OTHERS]


@pytest.mark.parametrize("rule", RULES)
def test_a_step_that_is_left_out_on_the_device_leaves_no_trace(rule: str) -> None:
    options = {"SGD": {"momentum": 0.9, "dampening": 0.5}, "Adagrad": {"lr_decay": 0.1}}.get(rule, {})

    def trained(factors: list[float]) -> tuple[list[float], dict[str, object]]:
        w = nx.nn.Parameter([1.0, -2.0, 3.0])
        optimizer = getattr(nx.optim, rule)([w], lr=0.1, **options)
        scaled_steps(optimizer, [w], factors)
        state = optimizer.state_dict()["state"][0]
        return w.tolist(), {name: value.tolist() for name, value in state.items()}

    infinite = float("inf")
    values, state = trained([infinite, 1.0, infinite, infinite, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    expected, expected_state = trained([1.0] * 7)
    assert values == pytest.approx(expected, rel=2e-6)
    assert state.keys() == expected_state.keys() and state.get("step") == expected_state.get("step")
    for name, value in state.items():
        assert value == pytest.approx(expected_state[name], rel=2e-6)


def test_a_changed_scale_makes_no_plan_and_a_step_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    w = nx.nn.Parameter([1.0, 2.0])
    optimizer = nx.optim.AdamW([w], lr=0.1)
    # Growth of the scale, a skipped step, and the step after each need one plan each.
    scaler = scaled_steps(optimizer, [w], [1.0, float("inf"), 1.0, 1.0, 1.0])
    before, plans = scaler.get_scale(), nx._engine.plan_count()
    scales = []
    for factor in (1.0, 1.0, float("inf"), 1.0, 1.0, 1.0):
        with monkeypatch.context() as patched:
            for name in ("item", "tolist", "numpy", "__bool__", "__float__"):
                patched.setattr(nx.Tensor, name, None)
            optimizer.zero_grad()
            scaler.scale((w**2).sum() * factor).backward()
            scaler.unscale_(optimizer)
            nx.nn.utils.clip_grad_norm_([w], 1.0)
            scaler.step(optimizer)
            scaler.update()
        scales.append(scaler.get_scale())
    assert before == 1024.0 and scales == [2048.0, 2048.0, 1024.0, 1024.0, 2048.0, 2048.0]
    assert nx._engine.plan_count() == plans


def test_the_scale_follows_pytorchs_rule() -> None:
    w = nx.nn.Parameter([1.0])
    optimizer = nx.optim.SGD([w], lr=0.0)
    scaler = nx.amp.GradScaler(init_scale=2.0**126, growth_interval=2)
    seen = []
    for factor in (2.0**-126, 2.0**-126, 2.0**-127, 2.0**-127, float("nan"), 2.0**-126):
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), scaler.state_dict()["_growth_tracker"]))
    # The scale does not grow to infinity.
    most = 2.0**127
    assert seen == [(2.0**126, 1), (most, 0), (most, 1), (most, 0), (2.0**126, 0), (2.0**126, 1)]
    scaler.update(nx.tensor(3.0))
    assert scaler.get_scale() == 3.0
    scaler.update(5)
    assert scaler.get_scale() == 5.0
    with pytest.raises(RuntimeError, match="closure"):
        scaler.step(optimizer, closure=lambda: None)


def test_an_optimizer_with_a_step_of_its_own_is_asked_to_step_or_not() -> None:
    class Counting(nx.optim.SGD):
        count = 0

        def step(self, closure: object = None) -> object:
            self.count += 1
            return super().step()

    w = nx.nn.Parameter([1.0])
    optimizer = Counting([w], lr=0.5)
    scaled_steps(optimizer, [w], [1.0, float("inf")])
    assert optimizer.count == 1 and w.item() == pytest.approx(0.5)


@pytest.mark.parametrize("rule", RULES)
def test_parameters_on_several_devices_step_together(rule: str) -> None:
    def trained(other: nx.Device) -> list[list[float]]:
        values = [nx.tensor([1.0, -2.0]), nx.tensor([[0.5, 3.0]]).to(other), nx.tensor([4.0])]
        weights = [nx.nn.Parameter(value) for value in values]
        optimizer = getattr(nx.optim, rule)([{"params": weights[:2]}, {"params": weights[2:], "lr": 0.01}], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            sum((w**2).sum().cpu() for w in weights).backward()
            norm = nx.nn.utils.clip_grad_norm_(weights, 2.0)
            assert norm.device.name == "cpu"
            assert [w.grad.device for w in weights] == [w.device for w in weights]
            optimizer.step()
        scaled_steps(optimizer, weights, [1.0, float("inf"), 1.0])
        assert weights[1].device == other
        again = getattr(nx.optim, rule)(weights, lr=0.1)
        assert again.state_dict()["state"] == {}
        return [w.cpu().tolist() for w in weights]

    for found, expected in zip(trained(nx._engine.reference_device()), trained(nx.Device("cpu")), strict=True):
        assert np.allclose(found, expected, rtol=1e-5)


def test_the_greatest_gradient_is_found_on_several_devices() -> None:
    other = nx._engine.reference_device()
    weights = [nx.nn.Parameter([1.0]), nx.nn.Parameter(nx.tensor([4.0, 2.0]).to(other))]
    ((weights[0] * 3).sum() + (weights[1] * nx.tensor([2.0, 8.0]).to(other)).sum().cpu()).backward()
    assert nx.nn.utils.clip_grad_norm_(weights, 4.0, float("inf")).item() == 8.0
    assert [w.grad.cpu().tolist() for w in weights] == [pytest.approx([1.5]), pytest.approx([1.0, 4.0])]


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), 2.0**130])
def test_a_scale_that_would_skip_every_step_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="init_scale"):
        nx.amp.GradScaler(init_scale=scale)


def test_cuda_is_disabled_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nx._engine, "devices", lambda: [nx.Device("cpu")])
    x, amp = nx.ones(2, 2), nx.torch.cuda.amp
    contexts = (amp.autocast, lambda: nx.autocast("cuda"), lambda: nx.autocast("cuda:0", dtype=nx.float16))
    for make in contexts:
        with pytest.warns(UserWarning, match="CUDA is not available"):
            context = make()
        with context:
            assert (x @ x).dtype == nx.float32 and not nx.amp.is_autocast_enabled()
        assert context(lambda: x @ x)().dtype == nx.float32
        with nx.autocast("cpu"), context:
            assert (x @ x).dtype == nx.bfloat16
    with nx.autocast("cpu"), amp.autocast(enabled=False):
        assert (x @ x).dtype == nx.bfloat16
    for scaler in (amp.GradScaler, lambda: nx.amp.GradScaler("cuda")):
        with pytest.warns(UserWarning, match="CUDA is not available"):
            made = scaler()
        assert not made.is_enabled() and made.get_scale() == 1.0 and made.state_dict() == {}
    assert nx.amp.GradScaler("cpu").is_enabled() and not amp.GradScaler(enabled=False).is_enabled()


def test_cuda_is_enabled_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cuda:
        type = "cuda"

    monkeypatch.setattr(nx._engine, "devices", lambda: [Cuda()])
    with nx.torch.cuda.amp.autocast(dtype=nx.float16):
        assert (nx.ones(2, 2) @ nx.ones(2, 2)).dtype == nx.float16
    assert nx.torch.cuda.amp.GradScaler(2.0**8).get_scale() == 2.0**8
