"""Networks whose parameters, gradients and optimiser state are divided among ranks, against one process."""

from __future__ import annotations

import copy
import functools
import gc
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import neurenix as nx
import neurenix.distributed as dist
import pytest
from neurenix import nn
from neurenix.distributed import checkpoint
from neurenix.distributed.fsdp import (
    FlatParameter,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
    fully_shard,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)
from neurenix.utils.checkpoint import checkpoint as recomputed
from on_ranks import Block, alone, batch, close, loss, mean, network, part, same_states, same_training, steps

CASES = [
    (2, "equal_losses"),
    (3, "equal_losses"),
    *((2, name) for name in ("shares_of_memory", "several_precisions", "accumulated_gradients", "states")),
    *((2, name) for name in ("whole_parameters", "recorded_steps", "scaled_losses", "policies")),
    *((2, name) for name in ("buffers_and_random_numbers", "what_cannot_be", "checkpoints_in_units", "waiting_gradients")),
]


@pytest.mark.parametrize(("size", "name"), CASES)
def test_on_ranks(size: int, name: str, ranks: Any) -> None:
    ranks.check(size, name)


def in_place(model: Any) -> Any:
    for block in model[1:3]:
        fully_shard(block)
    return fully_shard(model)


WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {
    **{
        strategy.name: functools.partial(
            FullyShardedDataParallel, sharding_strategy=strategy, auto_wrap_policy={Block, nn.Linear}
        )
        for strategy in ShardingStrategy
    },
    "one unit": FullyShardedDataParallel,
    "blocks": functools.partial(FullyShardedDataParallel, auto_wrap_policy={Block}),
    "in place": in_place,
    "kept": lambda model: fully_shard(model, reshard_after_forward=False),
}


def equal_losses() -> None:
    plain, plain_optimizer, expected = alone()
    for way in WAYS.values():
        model = way(network())
        optimizer = nx.optim.AdamW(model.parameters(), lr=0.01)
        same_training(steps(model, optimizer, part), expected)
        same_states(model.state_dict(), plain.state_dict(), 1e-5)
        parameters = model.parameters()
        assert all(isinstance(each, FlatParameter) for each in parameters)
        state = FullyShardedDataParallel.optim_state_dict(model, optimizer)["state"]
        own = plain_optimizer.state_dict()["state"]
        named = {name: own[number] for number, (name, _) in enumerate(plain.named_parameters())}
        same_states(dict(sorted(state.items())), dict(sorted(named.items())), 1e-4)


def shares_of_memory() -> None:
    width, blocks = 256, 6
    device = nx.zeros(1).device

    def allocated() -> int:
        gc.collect()
        return int(device.memory()["allocated"])

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)

        def forward(self, x: nx.Tensor) -> nx.Tensor:
            return x + self.outer(self.inner(x).relu())

    block = 4 * 2 * width * (width + 1)
    x = nx.randn(4, width).evaluate()
    for strategy, share, again in [
        (ShardingStrategy.FULL_SHARD, 2, True),
        (ShardingStrategy.SHARD_GRAD_OP, 2, False),
        (ShardingStrategy.NO_SHARD, 1, False),
    ]:
        before = allocated()
        model = FullyShardedDataParallel(
            nn.Sequential(*(Wide() for _ in range(blocks))),
            sharding_strategy=strategy,
            auto_wrap_policy={Wide},
            sync_module_states=True,
        )
        parameters = blocks * block // share
        assert parameters <= allocated() - before < parameters * 1.02
        device.reset_peak_memory()
        value = model(x).square().mean()
        value.evaluate()
        after = allocated() - before
        if again:
            # Two units at a time are whole.
            peak = device.memory()["peak"] - before
            assert after < parameters * 1.1 and peak < parameters + 2.5 * block, (after / block, peak / block)
        device.reset_peak_memory()
        value.backward()
        nx.evaluate([parameter.grad for parameter in model.parameters()])
        peak = device.memory()["peak"] - before
        if again:
            # And its gradients, which are joined.
            assert peak < 2 * parameters + 4 * block, peak / block
        del value
        assert allocated() - before < 2 * parameters * 1.02
        with nx.no_grad():
            device.reset_peak_memory()
            model(x).evaluate()
            peak = device.memory()["peak"] - before
            assert peak < 2 * parameters + 2.5 * block, peak / block
        del model
        # Nothing stays.
        assert allocated() - before < block / 8


def several_precisions() -> None:
    _, _, expected = alone()
    for reduce_dtype in (None, nx.float32):
        seen = []

        class Seeing(nn.Linear):
            def forward(self, input: nx.Tensor) -> nx.Tensor:
                seen.append((input.dtype, self.weight.dtype))
                return super().forward(input)

        model = network()
        model[3] = Seeing(8, 3)
        model[3].load_state_dict(network()[3].state_dict())
        precision = MixedPrecision(param_dtype=nx.bfloat16, reduce_dtype=reduce_dtype)
        sharded = FullyShardedDataParallel(model, mixed_precision=precision, auto_wrap_policy={Block})
        optimizer = nx.optim.AdamW(sharded.parameters(), lr=0.01)
        for (value, norm), (expected_value, expected_norm) in zip(steps(sharded, optimizer, part), expected):
            # 8 bits, and several layers.
            close(mean(value.float()), expected_value, 0.03)
            close(norm, expected_norm, 0.06)
        assert set(seen) == {(nx.bfloat16, nx.bfloat16)}
        assert all(each.dtype == nx.float32 == each.grad.dtype for each in sharded.parameters())


def accumulated_gradients() -> None:
    for way in WAYS.values():
        model, plain = way(network()), network()
        loss(plain, batch(0)).backward()
        loss(plain, batch(1)).backward()
        if way is in_place:
            model.set_requires_gradient_sync(False)
            loss(model, part(batch(0))).backward()
            model.set_requires_gradient_sync(True)
        else:
            with model.no_sync():
                loss(model, part(batch(0))).backward()
        assert all(not each.grad.any().item() for each in model.parameters())
        loss(model, part(batch(1))).backward()
        norm = model.clip_grad_norm_(1e9)
        close(norm, nn.utils.clip_grad_norm_(plain.parameters(), 1e9))
        close(model.clip_grad_norm_(1e9, float("inf")), nn.utils.clip_grad_norm_(plain.parameters(), 1e9, float("inf")))
        # Without it, every pass reduces: the sum is the same.
        model.zero_grad()
        loss(model, part(batch(0))).backward()
        loss(model, part(batch(1))).backward()
        close(model.clip_grad_norm_(1e9), norm)


def states() -> None:
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    path = Path(folder[0]) / "step-4"
    model = WAYS["blocks"](network())
    optimizer = nx.optim.AdamW(model.parameters(), lr=0.01)
    steps(model, optimizer, part)
    whole, optimizer_state = model.state_dict(), FullyShardedDataParallel.optim_state_dict(model, optimizer)
    parts = checkpoint.get_model_state_dict(model)
    assert list(sorted(parts)) == sorted(whole)
    own = sum(shard.tensor.numel() for shard in parts.values())
    assert abs(own * 2 - sum(each.numel() for each in whole.values())) <= 3
    checkpoint.save({"model": parts, "optim": FullyShardedDataParallel.sharded_optim_state_dict(model, optimizer)}, path)

    # The same network, and one that is divided in other units.
    for name in ("blocks", "one unit", "in place"):
        other = WAYS[name](network(seed=9))
        other_optimizer = nx.optim.AdamW(other.parameters(), lr=0.5)
        steps(other, other_optimizer, part, 1)
        read = checkpoint.load(
            {
                "model": checkpoint.get_model_state_dict(other),
                "optim": FullyShardedDataParallel.sharded_optim_state_dict(other, other_optimizer),
            },
            path,
        )
        checkpoint.set_model_state_dict(other, read["model"])
        to_load = FullyShardedDataParallel.optim_state_dict_to_load(other, other_optimizer, read["optim"])
        other_optimizer.load_state_dict(to_load)
        same_states(other.state_dict(), whole)
        found = FullyShardedDataParallel.optim_state_dict(other, other_optimizer)
        same_states(dict(sorted(found["state"].items())), dict(sorted(optimizer_state["state"].items())))
        assert other_optimizer.param_groups[0]["lr"] == 0.01
        # Whole states.
        third = WAYS[name](network(seed=10))
        assert third.load_state_dict(whole) == ([], [])
        same_states(third.state_dict(), whole)
        third_optimizer = nx.optim.AdamW(third.parameters(), lr=0.5)
        third_optimizer.load_state_dict(
            FullyShardedDataParallel.optim_state_dict_to_load(third, third_optimizer, optimizer_state)
        )
        values = [steps(*pair, part, 2)[1][0].item() for pair in ((other, other_optimizer), (third, third_optimizer))]
        assert values[0] == values[1]
    # What does not fit changes nothing.
    before = model.state_dict()
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict({"0.weight": whole["0.weight"] * 0})
    same_states(model.state_dict(), before)
    with pytest.raises(ValueError, match="only in one"):
        checkpoint.set_model_state_dict(model, {})
    plain = network(seed=11)
    plain.load_state_dict(model.state_dict())
    same_states(plain.state_dict(), before)


def whole_parameters() -> None:
    model = WAYS["blocks"](network())
    names = [name for name, _ in model.named_parameters()]
    x = batch(0)[0]
    with FullyShardedDataParallel.summon_full_params(model):
        shapes = {name: tuple(each.shape) for name, each in model.named_parameters()}
        assert shapes == {name: tuple(each.shape) for name, each in network().named_parameters()}
        with nx.no_grad():
            close(model(x), network()(x))
            model.module[0].weight.fill_(2.0)
    assert [name for name, _ in model.named_parameters()] == names
    assert model.state_dict()["0.weight"].tolist() == [[2.0] * 5] * 8
    with FullyShardedDataParallel.summon_full_params(model, writeback=False), nx.no_grad():
        model.module[0].weight.fill_(3.0)
    assert model.state_dict()["0.weight"].tolist() == [[2.0] * 5] * 8
    # Moved and converted in place.
    model.double()
    assert model(x.double()).dtype == nx.float64 and model.state_dict()["0.weight"].dtype == nx.float64


def recorded_steps() -> None:
    _, _, expected = alone()
    for way in WAYS:
        model = WAYS[way](network())
        optimizer = nx.optim.AdamW(model.parameters(), lr=0.01)

        @nx.compile
        def step(x: nx.Tensor, y: nx.Tensor) -> tuple[nx.Tensor, nx.Tensor]:
            optimizer.zero_grad()
            value = loss(model, (x, y))
            value.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.4)
            optimizer.step()
            return value.detach(), norm

        same_training([step(*part(batch(number))) for number in range(4)], expected)


def scaled_losses() -> None:
    """All ranks skip a step if one of them has an infinite gradient."""
    model = WAYS["blocks"](network())
    optimizer = nx.optim.SGD(model.parameters(), lr=0.1)
    scaler = nx.amp.GradScaler(init_scale=8.0, growth_interval=1)
    before = model.state_dict()
    rows = part(batch(0))
    for scale, is_bad in ((4.0, True), (8.0, False)):
        optimizer.zero_grad()
        scaler.scale(loss(model, rows)).backward()
        if is_bad and dist.get_rank() == 1:
            # In this rank's part only.
            bad = model.parameters()[0]
            bad.grad = bad.grad * float("inf")
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
        if is_bad:
            same_states(model.state_dict(), before)
    assert model.state_dict()["0.weight"].tolist() != before["0.weight"].tolist()


def policies() -> None:
    def units(policy: Any, **settings: Any) -> list[str]:
        model = FullyShardedDataParallel(network(), auto_wrap_policy=policy, **settings)
        loss(model, part(batch(0))).backward()
        return [name.removesuffix("flat_param") for name, _ in model.named_parameters()]

    assert units({Block}) == ["", "module.1.", "module.2."]
    blocks = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    assert units(blocks) == ["", "module.1.", "module.2."]
    inner = [f"module.{block}.module.{name}." for block in (1, 2) for name in ("inner", "outer")]
    expected = ["module.0.", "module.1.", *inner[:2], "module.2.", *inner[2:], "module.3."]
    assert sorted(units({Block, nn.Linear})) == sorted(expected)
    large = functools.partial(size_based_auto_wrap_policy, min_num_params=200)
    assert units(large) == ["", "module.1.", "module.2."]
    model = network()
    sharded = FullyShardedDataParallel(model, ignored_modules=[model[1]], auto_wrap_policy={Block})
    names = [name for name, each in sharded.named_parameters() if isinstance(each, FlatParameter)]
    assert names == ["flat_param", "module.2.flat_param"] and len(sharded.parameters()) == 2 + 6
    same_states(sharded.state_dict(), network().state_dict())
    # Frozen parameters are divided, too.
    model = network()
    model[1].requires_grad_(False)
    sharded = FullyShardedDataParallel(model)
    loss(sharded, part(batch(0))).backward()
    assert [each.grad is None for each in sharded.parameters()] == [False, True]
    # Shared parameters, in one unit.
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    plain = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    plain.load_state_dict(model.state_dict())
    plain[1].weight = plain[0].weight
    sharded = FullyShardedDataParallel(model)
    x = nx.ones(2, 4)
    sharded(x).sum().backward()
    plain(x).sum().backward()
    close(sharded.clip_grad_norm_(1e9), nn.utils.clip_grad_norm_(plain.parameters(), 1e9))


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.dropout = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)

    def forward(self, x: nx.Tensor, scale: float = 1.0) -> dict[str, Any]:
        return {"result": self.dropout(self.norm(self.linear(x))) * scale, "kept": None}


def buffers_and_random_numbers() -> None:
    """The second forward pass draws the same numbers, and leaves running statistics alone."""
    found = []
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP):

        class Around(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                nx.manual_seed(4 + dist.get_rank())
                self.first, self.second = Noisy(), Noisy()

            def forward(self, x: nx.Tensor) -> nx.Tensor:
                return self.second(self.first(x, scale=2.0)["result"])["result"]

        model = FullyShardedDataParallel(
            Around(), sharding_strategy=strategy, auto_wrap_policy={Noisy}, sync_module_states=True
        )
        nx.manual_seed(5 + dist.get_rank())
        x = nx.randn(6, 8)
        model(x).square().sum().backward()
        found.append((model.clip_grad_norm_(1e9).item(), {name: each.clone() for name, each in model.state_dict().items()}))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    same_states(found[0][1], found[1][1], 1e-6)
    assert found[0][1]["first.norm.num_batches_tracked"].item() == 1


def what_cannot_be() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    with pytest.raises(ValueError, match=r"1\.weight is shared|weight is shared"):
        FullyShardedDataParallel(model, auto_wrap_policy={nn.Linear})
    with pytest.raises(ValueError, match="wrapped already"):
        FullyShardedDataParallel(FullyShardedDataParallel(network()))
    with pytest.raises(NotImplementedError, match="cpu_offload"):
        FullyShardedDataParallel(network(), cpu_offload=True)
    with pytest.raises(TypeError, match="sharding_strategy"):
        FullyShardedDataParallel(network(), sharding_strategy="FULL_SHARD")
    with pytest.raises(ValueError, match="divided already"):
        fully_shard(fully_shard(network()))
    with pytest.raises(ValueError, match="not in the model"):
        other = nx.optim.SGD(network().parameters(), lr=0.1)
        FullyShardedDataParallel.optim_state_dict(FullyShardedDataParallel(network()), other)



class Saving(Block):
    """Computes its inside again in the backward pass."""

    def inside(self, x: nx.Tensor) -> nx.Tensor:
        return self.outer(self.inner(self.norm(x)).gelu())

    def forward(self, x: nx.Tensor) -> nx.Tensor:
        return x + recomputed(self.inside, x, use_reentrant=False)


class Around(nn.Module):
    """Computes a unit, and layers of its own, again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.block, self.last = nn.Linear(5, 8), Saving(), nn.Linear(8, 3)

    def forward(self, x: nx.Tensor) -> nx.Tensor:
        return recomputed(lambda x: self.last(self.block(self.first(x))), x, use_reentrant=False)


def checkpoints_in_units() -> None:
    nx.manual_seed(4)
    inside = nn.Sequential(nn.Linear(5, 8), Saving(), Saving(), nn.Linear(8, 3))
    for original in (inside, Around()):
        for strategy in ShardingStrategy:
            plain, own = copy.deepcopy(original), copy.deepcopy(original)
            sharded = FullyShardedDataParallel(own, auto_wrap_policy={Saving}, sharding_strategy=strategy)
            optimizers = [nx.optim.AdamW(model.parameters(), lr=0.01) for model in (plain, sharded)]
            expected = steps(plain, optimizers[0], lambda rows: rows, 2)
            same_training(steps(sharded, optimizers[1], part, 2), expected)
        same_states(sharded.state_dict(), plain.state_dict(), 1e-4)


class Skipping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.block, self.last = nn.Linear(5, 8), Block(), nn.Linear(8, 3)

    def forward(self, x: nx.Tensor, skips: bool = False) -> nx.Tensor:
        x = self.first(x)
        return self.last(x if skips else self.block(x))


def waiting_gradients() -> None:
    nx.manual_seed(4)
    original = Skipping()
    for strategy in ShardingStrategy:
        plain, own = copy.deepcopy(original), copy.deepcopy(original)
        sharded = FullyShardedDataParallel(own, auto_wrap_policy={Block}, sharding_strategy=strategy)

        def passes(model: Any, rows: Any, first: int, skips: bool) -> None:
            x, y = rows(batch(first))
            (model(x, skips) - y).square().mean().backward()

        def norms() -> None:
            for inner, outer in ((sharded.block, plain.block), (sharded, plain)):
                found = nn.utils.clip_grad_norm_(inner.parameters(), 1e9)
                close(found, nn.utils.clip_grad_norm_(outer.parameters(), 1e9))

        for removes in (
            lambda model: model.zero_grad(),
            lambda model: model.zero_grad(set_to_none=False),
            lambda model: nx.optim.SGD(model.parameters(), lr=0.1).zero_grad(),
            lambda model: [setattr(parameter, "grad", None) for parameter in model.parameters()],
        ):
            with sharded.no_sync():
                passes(sharded, part, 0, False)
            for model, rows in ((sharded, part), (plain, lambda rows: rows)):
                removes(model)
                passes(model, rows, 1, False)
            norms()
            removes(sharded), removes(plain)
        # A unit that the synchronised pass does not use.
        with sharded.no_sync():
            passes(sharded, part, 2, False)
            passes(sharded, part, 3, True)
        passes(sharded, part, 4, True)
        for step, skips in ((2, False), (3, True), (4, True)):
            passes(plain, lambda rows: rows, step, skips)
        norms()
        for model, rows in ((sharded, part), (plain, lambda rows: rows)):
            passes(model, rows, 5, False)
        norms()
