"""DistributedDataParallel: passes that are not synchronised, and parameters that are frozen."""

from __future__ import annotations

import copy
from typing import Any

import neurenix as nx
import neurenix.distributed as dist
import pytest
from neurenix import nn
from neurenix.nn.parallel import DistributedDataParallel

CASES = [(2, name) for name in ("nested_pauses", "passes_of_one_rank", "frozen_parameters", "a_frozen_network")]


@pytest.mark.parametrize(("size", "name"), CASES)
def test_on_ranks(size: int, name: str, ranks: Any) -> None:
    ranks.check(size, name)


def own_input() -> nx.Tensor:
    """A row of ones on rank 0, and of twos on rank 1: a linear layer has this gradient."""
    return nx.full((1, 2), float(dist.get_rank() + 1))


def nested_pauses() -> None:
    model = DistributedDataParallel(nn.Linear(2, 1))
    with model.no_sync():
        with model.no_sync():
            pass
        model(own_input()).sum().backward()
        assert model.module.weight.grad.tolist() == own_input().tolist()
    model(own_input()).sum().backward()
    assert model.module.weight.grad.tolist() == [[3.0, 3.0]]


def passes_of_one_rank() -> None:
    """Ranks may accumulate different numbers of gradients, also of a network with buffers."""
    model = DistributedDataParallel(nn.BatchNorm1d(2, momentum=1.0))
    x = nx.tensor([[1.0, 3.0], [3.0, 5.0]]) * (dist.get_rank() + 1)
    with model.no_sync():
        for _ in range(1 + 2 * dist.get_rank()):
            model(x).sum().backward()
        assert model.module.running_mean.tolist() == x.mean(0).tolist()
    model.module.momentum = 0.0
    model(x).sum().backward()
    assert model.module.running_mean.tolist() == [2.0, 4.0]


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(2, 2), nn.Linear(2, 1)

    def forward(self, x: nx.Tensor) -> nx.Tensor:
        return self.head(self.body(x))


def frozen_parameters() -> None:
    network = Parts()
    network.head.requires_grad_(False)
    model = DistributedDataParallel(network)
    model(own_input()).sum().backward()
    network.head.requires_grad_(True)
    with pytest.raises(RuntimeError, match=r"head\.weight was frozen when the network was wrapped"):
        model(own_input())
    for tolerates in (False, True):
        network = Parts()
        model = DistributedDataParallel(network, find_unused_parameters=tolerates)
        network.body.requires_grad_(False)
        if tolerates:
            model(own_input()).sum().backward()
            assert network.body.weight.grad is None and network.head.weight.grad is not None
            continue
        with pytest.raises(RuntimeError, match=r"body\.weight was frozen after .* find_unused_parameters=True"):
            model(own_input())
        with nx.no_grad():
            model(own_input())


def a_frozen_network() -> None:
    """As a discriminator while the generator is trained."""
    network = Parts()
    model = DistributedDataParallel(copy.deepcopy(network))
    x = own_input().requires_grad_()
    model.requires_grad_(False)
    model(x).sum().backward()
    assert (x.grad == network.head.weight @ network.body.weight).all().item()
    model.requires_grad_(True)
    model(own_input()).sum().backward()
    assert model.module.head.bias.grad.tolist() == [1.0]
