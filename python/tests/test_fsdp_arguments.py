"""Arguments of sharded networks, and calls that need whole parameters."""

from __future__ import annotations

from collections.abc import Iterator

import neurenix as nx
import neurenix.distributed as dist
import pytest
from neurenix import nn
from neurenix.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard


@pytest.fixture(autouse=True)
def _group() -> Iterator[None]:
    dist.init_process_group()
    yield
    dist.destroy_process_group()


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: nx.Tensor) -> nx.Tensor:
        return self.layer(x)

    def generate(self, x: nx.Tensor) -> nx.Tensor:
        return self(self(x))

    def total(self) -> nx.Tensor:
        return self.layer.weight.sum()

    def mistaken(self) -> nx.Tensor:
        raise TypeError("None of the parameters matter")

    def size(self) -> int:
        return self.layer.in_features


def test_what_would_be_ignored_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="keep_low_precision_grads"):
        MixedPrecision(keep_low_precision_grads=True)
    with pytest.raises(NotImplementedError, match="use_orig_params"):
        FullyShardedDataParallel(Network(), use_orig_params=True)
    with pytest.raises(TypeError, match="mp_policy must be a MixedPrecisionPolicy, not MixedPrecision"):
        fully_shard(Network(), mp_policy=MixedPrecision())


def test_a_policy_casts_inputs_and_results_of_every_module() -> None:
    seen = []
    model = nn.Sequential(Network(), Network())
    for network in model:
        network.layer.register_forward_pre_hook(lambda _, args: seen.append(args[0].dtype))
    policies = [
        MixedPrecisionPolicy(param_dtype=nx.bfloat16, output_dtype=nx.float32),
        MixedPrecisionPolicy(param_dtype=nx.float16, output_dtype=nx.float64),
    ]
    for network, policy in zip(model, policies):
        fully_shard(network, mp_policy=policy)
    fully_shard(model)
    x = nx.ones(2, 3)
    y = model(x)
    assert seen == [nx.bfloat16, nx.float16] and y.dtype == nx.float64
    y.sum().backward()
    assert all(each.dtype == each.grad.dtype == nx.float32 for each in model.parameters())
    uncast = fully_shard(Network(), mp_policy=MixedPrecisionPolicy(param_dtype=nx.bfloat16, cast_forward_inputs=False))
    uncast.layer.register_forward_pre_hook(lambda _, args: seen.append(args[0].dtype))
    uncast(x)
    assert seen[2:] == [nx.float32]


def test_methods_of_a_wrapped_network() -> None:
    x = nx.ones(2, 3)
    model = FullyShardedDataParallel(Network())
    for call in (lambda: model.generate(x), lambda: model.total()):
        with pytest.raises(RuntimeError, match=r"(generate|total)\(\) found layers without parameters.*summon_full_params"):
            call()
    assert model.size() == 3
    with nx.no_grad(), FullyShardedDataParallel.summon_full_params(model):
        assert model.generate(x).shape == (2, 3) and model.total().shape == ()
        with pytest.raises(TypeError, match="matter"):
            model.mistaken()
    assert fully_shard(Network()).generate(x).shape == (2, 3)
