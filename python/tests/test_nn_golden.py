"""Layers, losses, optimisers and schedules against PyTorch's numbers in golden/nn.json (``make_golden.py``)."""

import json
import pathlib

import numpy as np
import pytest

import neurenix as nx
from neurenix import nn, optim

GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden" / "nn.json").read_text())


def tensor(given):
    if isinstance(given, dict) and "dtype" in given:
        return nx.tensor(np.array(given["data"], dtype=given["dtype"]).reshape(given["shape"]))
    return given


def close(actual, expected, tolerance=2e-5):
    array = np.array(expected["data"], dtype=expected["dtype"]).reshape(expected["shape"])
    assert tuple(actual.shape) == array.shape
    np.testing.assert_allclose(actual.detach().numpy(), array, rtol=tolerance, atol=tolerance)


def names(cases):
    return [f"{number}-{case['name']}" for number, case in enumerate(cases)]


def flat(value):
    return [t for each in value for t in flat(each)] if isinstance(value, (tuple, list)) else [value]


@pytest.mark.parametrize("case", GOLDEN["layers"], ids=names(GOLDEN["layers"]))
def test_layer(case):
    module = getattr(nn, case["name"])(*case["args"], **case["kwargs"]).train(case["train"])
    assert list(module.state_dict()) == list(case["state"])
    module.load_state_dict({name: tensor(value) for name, value in case["state"].items()})
    inputs = [tensor(x) for x in case["inputs"]]
    for x in inputs:
        x.requires_grad = x.is_floating_point()
    outputs = [out for out in flat(module(*inputs)) if out is not None]
    total = 0.0
    for out, expected in zip(outputs, case["outputs"], strict=True):
        close(out, expected)
        total = total + (out * nx.linspace(-1, 1, out.numel()).reshape(out.shape)).sum()
    total.backward()
    for x, expected in zip([x for x in inputs if x.requires_grad], case["input_grads"], strict=True):
        close(x.grad, expected, 1e-4)
    for name, parameter in module.named_parameters():
        close(parameter.grad, case["grads"][name], 1e-4)
    for name, value in module.state_dict().items():
        close(value, case["after"][name])


@pytest.mark.parametrize("case", GOLDEN["losses"], ids=names(GOLDEN["losses"]))
def test_loss(case):
    loss = getattr(nn, case["name"])(**{key: tensor(value) for key, value in case["kwargs"].items()})
    first, *others = [tensor(x) for x in case["inputs"]]
    first.requires_grad_()
    result = loss(first, *others)
    close(result, case["loss"])
    result.sum().backward()
    close(first.grad, case["grad"])


@pytest.mark.parametrize("case", GOLDEN["ctc"])
def test_ctc_loss(case):
    scores, targets = (tensor(x) for x in case["inputs"])
    scores.requires_grad_()
    loss = nn.CTCLoss(**case["kwargs"])(scores.log_softmax(-1), targets, *case["lengths"])
    close(loss, case["loss"])
    loss.sum().backward()
    close(scores.grad, case["grad"])


def given(value):
    if isinstance(value, list):
        return [given(each) for each in value]
    return tensor(value)


@pytest.mark.parametrize("case", GOLDEN["methods"], ids=names(GOLDEN["methods"]))
def test_method(case):
    x, args = tensor(case["x"]), given(case["args"])
    kwargs = {key: given(value) for key, value in case["kwargs"].items()}
    if case["grad"] is not None:
        x.requires_grad_()
    results = flat(getattr(x, case["name"])(*args, **kwargs))
    for result, expected in zip(results, case["results"], strict=True):
        close(result, expected)
        assert result.dtype.name == expected["dtype"]
    if hasattr(nx, case["name"]):
        again = flat(getattr(nx, case["name"])(x, *args, **kwargs))
        assert all(each.detach().allclose(result.detach(), equal_nan=True) for each, result in zip(again, results))
    if case["grad"] is not None:
        weights = nx.linspace(-1, 1, results[0].numel()).reshape(results[0].shape)
        nx.where(results[0].isnan(), 0.0, results[0] * weights).sum().backward()
        close(x.grad, case["grad"], 1e-4)


def run(case, optimizer, w, steps):
    for step in steps:
        optimizer.zero_grad()
        ((w**4).sum() + (w * nx.tensor([1.0, 2.0, 3.0]) * (step - 3)).sum()).backward()
        optimizer.step()
        np.testing.assert_allclose(w.detach().numpy(), case["path"][step], rtol=3e-5, atol=1e-5)


@pytest.mark.parametrize("case", GOLDEN["optimizers"], ids=names(GOLDEN["optimizers"]))
def test_optimizer(case):
    w = nn.Parameter(case["start"])
    run(case, getattr(optim, case["name"])([w], **case["kwargs"]), w, range(8))


@pytest.mark.parametrize("case", GOLDEN["optimizers"], ids=names(GOLDEN["optimizers"]))
def test_state_of_pytorch_goes_on(case):
    w = nn.Parameter(case["path"][3])
    optimizer = getattr(optim, case["name"])([w])
    state = {int(k): {n: tensor(v) for n, v in values.items()} for k, values in case["state"].items()}
    optimizer.load_state_dict({"state": state, "param_groups": case["groups"]})
    run(case, optimizer, w, range(4, 8))


@pytest.mark.parametrize("case", GOLDEN["schedules"], ids=names(GOLDEN["schedules"]))
def test_schedule(case):
    optimizer = optim.SGD([nn.Parameter([1.0])], lr=0.4, momentum=0.9)
    schedule = getattr(optim.lr_scheduler, case["name"])(optimizer, **case["kwargs"])
    for rate, momentum in zip(case["rates"], case["momenta"], strict=True):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate, rel=1e-7, abs=1e-12)
        assert optimizer.param_groups[0]["momentum"] == pytest.approx(momentum, rel=1e-7)
        schedule.step()


def test_schedules_one_after_the_other():
    optimizer = optim.SGD([nn.Parameter([1.0])], lr=0.4)
    linear = optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
    schedule = optim.lr_scheduler.SequentialLR(
        optimizer, [linear, optim.lr_scheduler.ExponentialLR(optimizer, 0.9)], milestones=[4]
    )
    for rate in GOLDEN["sequential"]:
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate, rel=1e-7)
        schedule.step()


def test_plateau():
    optimizer = optim.SGD([nn.Parameter([1.0])], lr=0.4)
    schedule = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1, cooldown=1, factor=0.5)
    for result, rate in zip(GOLDEN["plateau"]["results"], GOLDEN["plateau"]["rates"], strict=True):
        schedule.step(result)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate, rel=1e-7)
