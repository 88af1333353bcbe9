"""Checkpoints that one layout of ranks writes and another one reads, against the values of one process."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import neurenix as nx
import neurenix.distributed as dist
import numpy as np
import pytest
from neurenix import nn
from neurenix.distributed import checkpoint
from neurenix.distributed._shard import boxes, copies
from neurenix.distributed.checkpoint import Part, Shard
from neurenix.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from neurenix.distributed.optim import ZeroRedundancyOptimizer
from neurenix.distributed.tensor_parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
    vocab_parallel_cross_entropy,
)
from neurenix.nn import functional as F
from on_ranks import same_states

# In this order: each reads what those before it have written.
CASES = [
    (3, "one_to_three_of_zero"),
    *((2, name) for name in ("three_of_zero_to_two", "one_to_two_of_tensors", "problems_of_one_rank")),
    *((4, name) for name in ("two_of_tensors_to_four", "one_to_a_mesh", "a_mesh_to_other_units", "a_mesh_to_zero")),
]


def folder() -> Path:
    return Path(os.environ["NEURENIX_TEST_CHECKPOINTS"])


@pytest.fixture(scope="module", autouse=True)
def _written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The checkpoint of one process, and its values in a plain file."""
    patch = pytest.MonkeyPatch()
    patch.setenv("NEURENIX_TEST_CHECKPOINTS", str(tmp_path_factory.mktemp("checkpoints")))
    dist.init_process_group()
    nx.set_default_device("cpu")
    model = Network()
    optimizer = nx.optim.AdamW(model.parameters(), lr=0.01)
    train(model, optimizer, 3)
    own = optimizer.state_dict()["state"]
    kept = {name: own.get(number, {}) for number, (name, _) in enumerate(model.named_parameters())}
    nx.save({"model": model.state_dict(), "optimizer": kept}, folder() / "expected")
    write("one", model, optimizer)
    yield
    dist.destroy_process_group()
    patch.undo()


@pytest.mark.parametrize(("size", "name"), CASES)
def test_on_ranks(size: int, name: str, ranks: Any) -> None:
    ranks.check(size, name)


class Network(nn.Module):
    """13 tokens and 10 features cannot be divided evenly. The last layer has the table's weight."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        nx.manual_seed(seed)
        self.embed, self.norm = nn.Embedding(13, 8), nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 10), nn.Linear(10, 8)
        self.head = nn.Linear(8, 13, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(nx.full((), 0.5))
        self.frozen = nn.Parameter(nx.randn(3), requires_grad=False)
        self.register_buffer("count", nx.full((2,), float(seed)))

    def forward(self, tokens: nx.Tensor) -> nx.Tensor:
        x = self.embed(tokens)
        x = x + self.scale * self.down(self.up(self.norm(x)).gelu())
        return self.head(x + self.frozen.sum())


# The dimension along which tensor parallelism divides a parameter.
DIVIDED = {"embed.weight": 0, "head.weight": 0, "up.weight": 0, "up.bias": 0, "down.weight": 1}


def divided(group: Any, seed: int = 9) -> Network:
    plan = {"embed": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel(), "head": ColwiseParallel()}
    return parallelize_module(Network(seed), group, plan)


def train(model: Any, optimizer: Any, count: int, rows: slice = slice(None), group: Any = None) -> list[float]:
    losses = []
    for step in range(count):
        nx.manual_seed(50 + step)
        tokens, targets = nx.randint(0, 13, (4, 5))[rows], nx.randint(0, 13, (4, 5))[rows]
        optimizer.zero_grad()
        scores = model(tokens)
        if group is None:
            loss = F.cross_entropy(scores.reshape(-1, 13), targets.reshape(-1))
        else:
            loss = vocab_parallel_cross_entropy(scores, targets, num_classes=13, group=group)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def parts(model: Any, optimizer: Any, step: int = 0) -> dict[str, Any]:
    return {
        "model": checkpoint.get_model_state_dict(model),
        "optimizer": checkpoint.get_optimizer_state_dict(model, optimizer),
        "step": step,
    }


def write(name: str, model: Any, optimizer: Any) -> None:
    checkpoint.save(parts(model, optimizer, 3), folder() / name)


def read(name: str, model: Any, optimizer: Any) -> None:
    state = checkpoint.load(parts(model, optimizer), folder() / name)
    assert state["step"] == 3
    checkpoint.set_model_state_dict(model, state["model"])
    checkpoint.set_optimizer_state_dict(model, optimizer, state["optimizer"])
    assert optimizer.param_groups[0]["lr"] == 0.01


def expected(group: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What this rank of a tensor-parallel group has of the values of one process."""
    state = nx.load(folder() / "expected")

    def own(name: str, value: nx.Tensor) -> nx.Tensor:
        is_divided = group is not None and name in DIVIDED and value.ndim > 0
        return value.chunk(group.size(), DIVIDED[name])[group.rank()] if is_divided else value

    kept = {name: {key: own(name, each) for key, each in values.items()} for name, values in state["optimizer"].items()}
    return {name: own(name, value) for name, value in state["model"].items()}, kept


def check(model: Any, optimizer: Any, group: Any = None) -> None:
    """Compares whole parameters, and what the optimiser of this rank keeps, with the values of one process."""
    values, kept = expected(group)
    found = model.state_dict()
    same_states(dict(sorted(found.items())), dict(sorted(values.items())))
    if isinstance(optimizer, ZeroRedundancyOptimizer):
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        state = {names[id(parameter)]: each for parameter, each in optimizer.state.items()}
        assert len(state) < len(names) - 1
        kept = {name: kept[name] for name in state}
    elif isinstance(model, FullyShardedDataParallel) or not hasattr(model, "embed"):
        state = FullyShardedDataParallel.optim_state_dict(model, optimizer)["state"]
    else:
        own = optimizer.state_dict()["state"]
        state = {name: own.get(number, {}) for number, (name, _) in enumerate(model.named_parameters())}
    kept, state = ({name: each for name, each in sorted(states.items()) if each} for states in (kept, state))
    same_states(state, kept)


def zero(model: Any, group: Any = None) -> ZeroRedundancyOptimizer:
    return ZeroRedundancyOptimizer(model.parameters(), nx.optim.AdamW, process_group=group, lr=0.5)


def adam(model: Any) -> Any:
    return nx.optim.AdamW(model.parameters(), lr=0.5)


def one_to_three_of_zero() -> None:
    model = Network(9)
    optimizer = zero(model)
    read("one", nn.parallel.DistributedDataParallel(model), optimizer)
    check(model, optimizer)
    write("zero-3", model, optimizer)


def three_of_zero_to_two() -> None:
    models = [Network(9), Network(9)]
    optimizers = [zero(models[0]), adam(models[1])]
    for model, optimizer in zip(models, optimizers):
        read("zero-3", model, optimizer)
        check(model, optimizer)
    # Into one that has taken steps, too.
    train(models[0], optimizers[0], 1)
    read("zero-3", models[0], optimizers[0])
    check(models[0], optimizers[0])
    assert train(models[0], optimizers[0], 2) == train(models[1], optimizers[1], 2)


def one_to_two_of_tensors() -> None:
    group = dist.GroupMember.WORLD
    model = divided(group)
    assert model.embed.weight.shape[0] in (7, 6) and model.head.weight is model.embed.weight
    optimizer = adam(model)
    read("one", model, optimizer)
    check(model, optimizer, group)
    write("tensors-2", model, optimizer)
    # The same layout goes on bit for bit.
    other = divided(group)
    other_optimizer = adam(other)
    read("tensors-2", other, other_optimizer)
    assert train(model, optimizer, 2, group=group) == train(other, other_optimizer, 2, group=group)
    same_states(model.state_dict(), other.state_dict())


def two_of_tensors_to_four() -> None:
    group = dist.GroupMember.WORLD
    model = divided(group)
    assert model.embed.weight.shape[0] in (4, 1) and model.up.weight.shape[0] in (3, 1)
    optimizer = adam(model)
    read("tensors-2", model, optimizer)
    check(model, optimizer, group)
    write("tensors-4", model, optimizer)


def mesh() -> Any:
    return dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))


def one_to_a_mesh() -> None:
    grid = mesh()
    rows, tensor = slice(2 * grid.get_local_rank("data"), 2 * grid.get_local_rank("data") + 2), grid.get_group("tensor")

    def made() -> tuple[Any, Any]:
        model = FullyShardedDataParallel(
            divided(tensor), device_mesh=grid["data"], sharding_strategy=ShardingStrategy.SHARD_GRAD_OP
        )
        return model, adam(model)

    model, optimizer = made()
    read("one", model, optimizer)
    check(model, optimizer, tensor)
    write("mesh", model, optimizer)
    # Every element is written once.
    index = json.loads((folder() / "mesh" / "index.json").read_text())
    for entry in index["tensors"].values():
        assert sum(part["length"] for part in entry["parts"]) == math.prod(entry["shape"])
    train(model, optimizer, 2, rows, tensor)
    write("mesh-later", model, optimizer)
    other, other_optimizer = made()
    read("mesh-later", other, other_optimizer)
    found = [train(*pair, 2, rows, tensor) for pair in ((model, optimizer), (other, other_optimizer))]
    assert found[0] == found[1]
    same_states(model.state_dict(), other.state_dict())


def a_mesh_to_other_units() -> None:
    grid = mesh()
    # The other way round: tensor parallelism over the first axis.
    model: Any = divided(grid.get_group("data"))
    for inner in (model.up, model.down):
        fully_shard(inner, mesh=grid["tensor"])
    optimizer = adam(model)
    read("mesh", model, optimizer)
    values, kept = expected(grid.get_group("data"))
    same_states(model.state_dict(), values)
    found = FullyShardedDataParallel.optim_state_dict(model, optimizer)["state"]
    same_states(found, {name: kept[name] for name in found})
    assert len(found) == len(kept) - 1


def a_mesh_to_zero() -> None:
    grid = mesh()
    tensor = grid.get_group("tensor")
    model = divided(tensor)
    optimizer = zero(model, grid.get_group("data"))
    read("mesh", model, optimizer)
    check(model, optimizer, tensor)
    write("zero-mesh", model, optimizer)


@pytest.mark.parametrize("name", ["one", "zero-3", "tensors-2", "tensors-4", "mesh", "zero-mesh"])
def test_one_process_reads_all(name: str, request: pytest.FixtureRequest) -> None:
    if not (folder() / name).exists():
        pytest.skip("it was not written")
    model = Network(9)
    optimizer = adam(model)
    read(name, model, optimizer)
    check(model, optimizer)
    # A state of its own, with numbers for parameters, takes steps as well.
    assert optimizer.state_dict()["param_groups"][0]["params"] == list(range(len(model.parameters())))
    assert math.isfinite(train(model, optimizer, 1)[0])


def problems_of_one_rank() -> None:
    """All ranks know of them, and nothing is changed."""
    rank = dist.get_rank()
    x = nx.zeros(13, 8)
    with pytest.raises(ValueError if rank == 1 else RuntimeError, match="does not have model/y"):
        checkpoint.load({"model": {"y" if rank == 1 else "embed.weight": x, **({} if rank else rest())}}, folder() / "one")
    assert not x.any().item()
    part = nx.ones(2 + rank)
    with pytest.raises(RuntimeError, match="x is not of one shape .* get_model_state_dict"):
        checkpoint.save({"x": part}, folder() / "bad")
    assert not (folder() / "bad").exists()
    # A rank may have names of its own.
    checkpoint.save({"all": {f"rank {rank}": nx.full((2,), float(rank)), f"plain {rank}": [rank, {}]}}, folder() / "own")
    # What all have is written by one, in turn.
    checkpoint.save({"all": [nx.ones(3) for _ in range(6)]}, folder() / "same")
    index = json.loads((folder() / "same" / "index.json").read_text())
    writers = [part["file"] for entry in index["tensors"].values() for part in entry["parts"]]
    assert writers == ["rank-0.safetensors", "rank-1.safetensors"] * 3
    found = checkpoint.load({"all": {}}, folder() / "own")["all"]
    assert found["rank 0"].tolist() == [0.0, 0.0] and found["rank 1"].tolist() == [1.0, 1.0]
    assert (found["plain 0"], found["plain 1"]) == ([0, {}], [1, {}])


def rest() -> dict[str, Any]:
    return {name: value for name, value in Network().state_dict().items() if name not in ("embed.weight", "head.weight")}


def test_parts_against_numpy() -> None:
    random.seed(1)

    def part(shape: tuple[int, ...]) -> Part:
        offset = tuple(random.randint(0, size - 1) for size in shape)
        box = tuple(random.randint(1, size - first) for size, first in zip(shape, offset))
        start = random.choice((0, random.randint(0, math.prod(box))))
        return Part(shape, offset, box, start, random.randint(0, math.prod(box) - start))

    def own(whole: Any, part: Part) -> Any:
        box = whole[tuple(slice(first, first + size) for first, size in zip(part.offset, part.box))]
        return box.reshape(-1)[part.start : part.start + part.length]

    for _ in range(500):
        shape = tuple(random.randint(1, 5) for _ in range(random.randint(0, 4)))
        whole = np.arange(math.prod(shape)).reshape(shape)
        target, sources = part(shape), [part(shape) for _ in range(random.randint(0, 6))]
        assert len(list(boxes(target))) <= max(1, 2 * len(shape) - 1)
        found, missing = copies(target, sources)
        result = np.full(target.length, -1)
        for number, given in found:
            for copy in given:
                for start, place, count in copy.runs():
                    assert (result[place : place + count] == -1).all()
                    result[place : place + count] = own(whole, sources[number])[start : start + count]
        known = np.concatenate([np.zeros(0, int), *(own(whole, source) for source in sources)])
        wanted = own(whole, target)
        assert result.tolist() == np.where(np.isin(wanted, known), wanted, -1).tolist()
        assert (missing is None) == (-1 not in result)
    for wrong in (((3,), (2,), (2,)), ((3,), (0, 0)), ((3,), (), (), 2, 2), ((3,), (-1,), (1,))):
        with pytest.raises(ValueError, match="Part: "):
            Part(*wrong)
    with pytest.raises(ValueError, match="not a part of 3"):
        Shard(nx.zeros(2), Part((3,)))


def test_structures() -> None:
    path = folder() / "structures"
    state = {
        "a/b": {"~": nx.ones(2), "list": [nx.zeros(()), {"x": 1}]},
        "history": [1, 2, 3],
        "betas": (0.9, 0.99),
        "group": {"rate": 0.1, "first rate": 0.2},
        "none": {},
    }
    checkpoint.save(state, path)
    fresh = checkpoint.load({"a/b": {}, "history": [], "betas": (0, 0), "group": {}, "none": {}}, path)
    assert fresh["a/b"]["~"].tolist() == [1.0, 1.0] and fresh["a/b"]["list"][1] == {"x": 1}
    assert fresh["history"] == [1, 2, 3] and fresh["betas"] == (0.9, 0.99)
    assert fresh["group"] == state["group"] and fresh["none"] == {}
    # Plain values may be more or less; tensors may not.
    for history in ([0], [0, 0, 0, 0]):
        found = checkpoint.load({"history": history, "group": {"rate": 0.0}}, path)
        assert found == {"history": [1, 2, 3], "group": state["group"]}
    for wrong, message in [
        ({"a/b": {"~": nx.zeros(2)}}, "no a~1b/list to read into"),
        ({"a/b": {"~": nx.zeros(2), "list": []}, "other": 1}, "does not have other"),
        ({"group": {"rate": 0.0, "more": 1}}, "does not have group/more"),
        ({"a/b": {"~": nx.zeros(2, 1), "list": []}}, r"shape \(2,\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            checkpoint.load(wrong, path)
    with pytest.raises(RuntimeError, match="two keys"):
        checkpoint.save({1: 2, "1": 3}, path)
    with pytest.raises(RuntimeError, match=r"no rank has x\[0:2, 3:4\]"):
        checkpoint.save({"x": Shard(nx.zeros(2, 3), Part((2, 4), (0, 0), (2, 3)))}, path)
    index = path / "index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "version": 1}))
    with pytest.raises(ValueError, match="has version 1"):
        checkpoint.load({}, path)
    index.write_text("{")
    with pytest.raises(ValueError, match="index.json is damaged"):
        checkpoint.load({}, path)


def test_only_what_is_needed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage elsewhere goes unnoticed, damage in what is needed does not."""
    path = folder() / "large"
    x = nx.arange(3 * 2**18, dtype=nx.float32).reshape(3, 2**18)
    checkpoint.save({"x": x, "y": nx.full((3,), 5.0)}, path)
    file = path / "rank-0.safetensors"
    data = bytearray(file.read_bytes())
    # The file ends with the elements of y, before which are those of x.
    data[-20 - 2**20] ^= 1
    file.write_bytes(data)
    y = nx.zeros(3)
    with monkeypatch.context() as patch:
        # One process may read without a group.
        patch.setattr(dist.GroupMember, "WORLD", None)
        checkpoint.load({"y": y}, path)
    assert y.tolist() == [5.0] * 3
    for row in range(3):
        shard = Shard(nx.zeros(1, 2**18), Part((3, 2**18), (row, 0), (1, 2**18)))
        if row == 1:
            with pytest.raises(ValueError, match="damaged: the checksum of x"):
                checkpoint.load({"x": shard}, path)
        else:
            assert (checkpoint.load({"x": shard}, path)["x"].tensor == x[row]).all().item()
    file.write_bytes(data[:-1])
    with pytest.raises(ValueError, match="damaged: the checksum of y"):
        checkpoint.load({"y": y}, path)
    file.write_bytes(b"12345678")
    with pytest.raises(ValueError, match="damaged: its header"):
        checkpoint.load({"y": y}, path)


def test_what_a_vector_of_parameters_cannot_have() -> None:
    model = FullyShardedDataParallel(Network())
    optimizer = adam(model)
    train(model, optimizer, 1)
    state = checkpoint.get_optimizer_state_dict(model, optimizer)
    state["state"]["scale"] = {}
    with pytest.raises(ValueError, match="as one vector"):
        checkpoint.set_optimizer_state_dict(model, optimizer, state)
    with pytest.raises(ValueError, match="not in the model"):
        checkpoint.get_optimizer_state_dict(Network(), optimizer)
    with pytest.raises(TypeError, match="expected one Optimizer, got list"):
        checkpoint.get_optimizer_state_dict(model, [optimizer])
    with pytest.raises(ValueError, match="parameter groups"):
        checkpoint.set_optimizer_state_dict(model, optimizer, {"state": {}, "param_groups": []})
