"""Batch normalisation over the rows of all ranks, and optimisers whose state is divided among them, against one
process."""

from __future__ import annotations

from typing import Any

import neurenix as nx
import neurenix.distributed as dist
import pytest
from neurenix import nn
from neurenix.distributed.optim import ZeroRedundancyOptimizer
from on_ranks import alone, batch, close, loss, network, part, same_states, same_training, steps

CASES = [
    *((size, name) for size in (2, 3) for name in ("a_synchronized_norm", "an_equal_optimizer")),
    *((2, name) for name in ("the_optimizers_state", "groups_of_parameters", "an_optimizer_in_python", "recorded_functions")),
]


@pytest.mark.parametrize(("size", "name"), CASES)
def test_on_ranks(size: int, name: str, ranks: Any) -> None:
    ranks.check(size, name)


def a_synchronized_norm() -> None:
    """Ranks have different numbers of rows. The mean is far from zero."""
    rank, size = dist.get_rank(), dist.get_world_size()
    counts = [3 + 2 * other for other in range(size)]
    first = sum(counts[:rank])
    for shape, kind in [((4,), nn.BatchNorm1d), ((4, 5), nn.BatchNorm1d), ((4, 3, 2), nn.BatchNorm2d)]:
        for momentum in (0.1, None):
            for track in (True, False):
                nx.manual_seed(7)
                whole = nx.randn(sum(counts), *shape) * 2 + 30
                weights = nx.randn(sum(counts), *shape)
                layers = [kind(4, momentum=momentum, track_running_stats=track) for _ in range(2)]
                with nx.no_grad():
                    for layer in layers:
                        layer.weight.copy_(nx.tensor([0.5, 2.0, 1.0, -1.0]))
                        layer.bias.copy_(nx.tensor([0.0, 1.0, -2.0, 3.0]))
                expected, layer = layers[0], nn.SyncBatchNorm.convert_sync_batchnorm(layers[1])
                assert layer.weight is layers[1].weight and layer.running_mean is layers[1].running_mean
                rows = slice(first, first + counts[rank])
                for _ in range(2):
                    x, own = whole.clone().requires_grad_(), whole[rows].clone().requires_grad_()
                    y, result = expected(x), layer(own)
                    (y.square() * weights).sum().backward()
                    (result.square() * weights[rows]).sum().backward()
                    # Numbers near 30 have 2e-6 for their last digit.
                    close(result.detach(), y.detach()[rows], 4e-5)
                    close(own.grad, x.grad[rows], 4e-5)
                for name, gradient in (("weight", layer.weight.grad), ("bias", layer.bias.grad)):
                    gradient = gradient.clone()
                    dist.all_reduce(gradient)
                    close(gradient, getattr(expected, name).grad, 4e-5)
                for name, buffer in expected.named_buffers():
                    close(getattr(layer, name).double(), buffer.double())
                close(layer.eval()(whole), expected.eval()(whole), 4e-5)
    assert nn.SyncBatchNorm.convert_sync_batchnorm(layer) is layer
    half = nn.SyncBatchNorm(4)(whole[rows].half())
    assert half.dtype == nx.float16
    with pytest.raises(ValueError, match=r"\(N, 4, \.\.\.\)"):
        nn.SyncBatchNorm(4)(nx.zeros(3, 5))


def an_equal_optimizer() -> None:
    model, optimizer, expected = alone()
    own = network()
    parallel = nn.parallel.DistributedDataParallel(own)
    divided = ZeroRedundancyOptimizer(parallel.parameters(), nx.optim.AdamW, lr=0.01)
    schedules = [nx.optim.lr_scheduler.ExponentialLR(each, 0.5) for each in (optimizer, divided)]
    same_training(steps(parallel, divided, part), expected)
    for schedule in schedules:
        schedule.step()
    assert divided.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] == 0.005
    steps(model, optimizer, lambda rows: rows, 2), steps(parallel, divided, part, 2)
    same_states(own.state_dict(), model.state_dict(), 1e-5)
    # Every parameter has its state on one rank, and the ranks have about as many elements.
    held: list[Any] = [None] * dist.get_world_size()
    names = {id(parameter): name for name, parameter in own.named_parameters()}
    dist.all_gather_object(held, {names[id(parameter)]: parameter.numel() for parameter in divided.state})
    assert sorted(name for each in held for name in each) == sorted(names.values())
    sizes = [sum(each.values()) for each in held]
    assert max(sizes) - min(sizes) <= max(parameter.numel() for parameter in own.parameters())


def the_optimizers_state() -> None:
    model, optimizer, _ = alone()
    own = network()
    divided = ZeroRedundancyOptimizer(own.parameters(), nx.optim.AdamW, lr=0.01)
    parallel = nn.parallel.DistributedDataParallel(own)
    steps(parallel, divided, part)
    with pytest.raises(RuntimeError, match=f"consolidate_state_dict.to={dist.get_rank()}"):
        divided.state_dict()
    divided.consolidate_state_dict(to=1)
    box = [divided.state_dict() if dist.get_rank() == 1 else None]
    dist.broadcast_object_list(box, src=1)
    same_states({"state": box[0]["state"]}, {"state": optimizer.state_dict()["state"]}, 1e-5)
    assert box[0]["param_groups"] == optimizer.state_dict()["param_groups"]
    # It is that of the last step.
    divided.consolidate_state_dict(to=0)
    steps(parallel, divided, part, 1), steps(model, optimizer, lambda rows: rows, 1)
    with pytest.raises(RuntimeError, match="consolidate_state_dict"):
        divided.state_dict()
    divided.consolidate_state_dict(to=1)
    box = [divided.state_dict() if dist.get_rank() == 1 else None]
    dist.broadcast_object_list(box, src=1)
    same_states({"state": box[0]["state"]}, {"state": optimizer.state_dict()["state"]}, 1e-5)
    # Into another one, and into an ordinary optimiser: all go on alike.
    models = [network(), network()]
    for each in models:
        each.load_state_dict(own.state_dict())
    others = [
        ZeroRedundancyOptimizer(models[0].parameters(), nx.optim.AdamW, lr=1.0),
        nx.optim.AdamW(models[1].parameters(), lr=1.0),
    ]
    for each in others:
        each.load_state_dict(box[0])
        assert each.param_groups[0]["lr"] == 0.01
    found = [steps(each, other, lambda rows: rows, 2)[1][0] for each, other in zip(models, others)]
    assert found[0].item() == found[1].item()
    same_states(models[0].state_dict(), models[1].state_dict())
    with pytest.raises(ValueError, match="parameter groups"):
        divided.load_state_dict({"state": {}, "param_groups": []})


def groups_of_parameters() -> None:
    def optimizers(model: nn.Sequential, kind: Any) -> Any:
        made = kind([{"params": model[0].parameters(), "lr": 0.3}, {"params": model[1].parameters()}])
        loss(model, batch(0)).backward()
        made.step()
        made.zero_grad()
        made.add_param_group({"params": model[3].parameters(), "momentum": 0.5})
        for step in range(2):
            loss(model, batch(step)).backward()
            made.step()
            made.zero_grad()
        return made

    model, own = network(), network()
    optimizers(model, lambda groups: nx.optim.SGD(groups, lr=0.1, momentum=0.9))
    divided = optimizers(own, lambda groups: ZeroRedundancyOptimizer(groups, nx.optim.SGD, lr=0.1, momentum=0.9))
    same_states(own.state_dict(), model.state_dict())
    assert [len(group["params"]) for group in divided.param_groups] == [2, 6, 2]
    with pytest.raises(ValueError, match="more than one"):
        divided.add_param_group({"params": model[0].parameters()[:0] + own[0].parameters()})
    # A rank without parameters.
    single = nn.Parameter(nx.ones(2))
    few = ZeroRedundancyOptimizer([single], nx.optim.SGD, lr=0.5)
    single.sum().backward()
    few.step()
    assert single.tolist() == [0.5, 0.5] and (few.optim is None) == (dist.get_rank() == 1)
    for settings, error in [({"overlap_with_ddp": True}, NotImplementedError), ({"rate": 1.0}, TypeError)]:
        with pytest.raises(error):
            ZeroRedundancyOptimizer([single], nx.optim.SGD, **settings)


class Signs(nx.optim.Optimizer):
    """A user's optimiser."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                with nx.no_grad():
                    parameter.sub_(group["lr"] * parameter.grad.sign())
                self.state[parameter]["count"] = self.state[parameter].get("count", 0) + 1


def recorded_functions() -> None:
    """The optimiser's step comes after one, or within it, where the ranks record different updates."""
    plain, own = network(), network()
    optimizer = nx.optim.AdamW(plain.parameters(), lr=0.01)
    divided = ZeroRedundancyOptimizer(own.parameters(), nx.optim.AdamW, lr=0.01)

    @nx.compile
    def gradients(x: nx.Tensor, y: nx.Tensor) -> nx.Tensor:
        divided.zero_grad()
        value = loss(own, (x, y))
        value.backward()
        return value.detach()

    for step in range(4):
        optimizer.zero_grad()
        loss(plain, batch(step)).backward()
        optimizer.step()
        gradients(*batch(step))
        divided.step()
    same_states(own.state_dict(), plain.state_dict())

    @nx.compile
    def whole_step(x: nx.Tensor, y: nx.Tensor) -> nx.Tensor:
        divided.zero_grad()
        value = loss(own, (x, y))
        value.backward()
        divided.step()
        return value.detach()

    for step in range(4):
        optimizer.zero_grad()
        expected = loss(plain, batch(step))
        expected.backward()
        optimizer.step()
        divided.consolidate_state_dict()
        close(whole_step(*batch(step)), expected)
        # A replay takes a step, too.
        with pytest.raises(RuntimeError, match="consolidate_state_dict"):
            divided.state_dict()
    same_states(own.state_dict(), plain.state_dict(), 1e-6)


def an_optimizer_in_python() -> None:
    model, own = network(), network()
    plain, divided = Signs(model.parameters(), 0.1), ZeroRedundancyOptimizer(own.parameters(), Signs, lr=0.1)
    for step in range(2):
        for each, optimizer in ((model, plain), (own, divided)):
            optimizer.zero_grad()
            loss(each, batch(step)).backward()
            optimizer.step()
    same_states(own.state_dict(), model.state_dict())
    assert 0 < len(divided.state) < len(plain.state) and all(state == {"count": 2} for state in divided.state.values())
