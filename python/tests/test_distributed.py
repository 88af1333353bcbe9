"""Process groups: values of collectives, gradients, and data parallelism, against one process that has everything."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any

import neurenix as nx
import neurenix.distributed as dist
import pytest
from neurenix import nn
from neurenix.distributed import functional
from on_ranks import batch, close, loss, part

CASES = [
    *((size, name) for size in (2, 3) for name in ("values", "objects", "gradients", "the_whole_batch")),
    *((2, name) for name in ("accumulated_gradients", "unused_parameters", "buffers", "a_shared_loss")),
    *((2, name) for name in ("compressed_gradients", "samples", "one_rank_sends", "what_cannot_be", "a_copied_input")),
    (2, "a_compiled_step"),
    (4, "groups"),
    (4, "a_mesh"),
]


@pytest.mark.parametrize(("size", "name"), CASES)
def test_on_ranks(size: int, name: str, ranks: Any) -> None:
    ranks.check(size, name)


def numbers(rank: int, *shape: int) -> nx.Tensor:
    """Small whole numbers that differ from rank to rank, and are as exact in any order of summation."""
    count = math.prod(shape)
    return nx.tensor([float((7 * at + 13 * rank) % 5 + 1) for at in range(count)]).reshape(shape)


def everyones(*shape: int) -> list[nx.Tensor]:
    return [numbers(rank, *shape) for rank in range(dist.get_world_size())]


def same(found: nx.Tensor, expected: nx.Tensor) -> None:
    assert found.shape == expected.shape and found.tolist() == expected.tolist(), f"{found} is not {expected}"


def values() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    own, all_of_them = numbers(rank, 2, 3), everyones(2, 3)
    stacked = nx.stack(all_of_them)
    for op, expected in [
        (dist.ReduceOp.SUM, stacked.sum(0)),
        (dist.ReduceOp.AVG, stacked.sum(0) / size),
        (dist.ReduceOp.PRODUCT, stacked.prod(0)),
        (dist.ReduceOp.MIN, stacked.amin(0)),
        (dist.ReduceOp.MAX, stacked.amax(0)),
    ]:
        x = own.clone()
        assert dist.all_reduce(x, op) is None
        same(x, expected)
        same(functional.all_reduce(own, op), expected)
    x = own.clone()
    work = dist.all_reduce(x, async_op=True)
    assert work is not None and work.wait() and work.is_completed()
    x = own.clone()
    dist.reduce(x, 1)
    same(x, stacked.sum(0) if rank == 1 else own)
    x = own.clone()
    dist.broadcast(x, src=1)
    same(x, all_of_them[1])
    x = own.clone()
    dist.broadcast(x, group_src=0)
    same(x, all_of_them[0])
    parts = [nx.zeros(2, 3) for _ in range(size)]
    dist.all_gather(parts, own)
    [same(part, expected) for part, expected in zip(parts, all_of_them, strict=True)]
    for shape in [(2 * size, 3), (size, 2, 3)]:
        whole = nx.zeros(shape)
        dist.all_gather_into_tensor(whole, own)
        same(whole, stacked.reshape(shape))
    parts = [nx.zeros(2, 3) for _ in range(size)]
    dist.gather(own, parts if rank == 1 else None, dst=1)
    if rank == 1:
        [same(part, expected) for part, expected in zip(parts, all_of_them, strict=True)]
    wide = everyones(size, 4)
    part = nx.zeros(4)
    dist.reduce_scatter(part, list(wide[rank]))
    same(part, nx.stack(wide).sum(0)[rank])
    dist.reduce_scatter_tensor(part, wide[rank], dist.ReduceOp.AVG)
    same(part, nx.stack(wide).sum(0)[rank] / size)
    whole = nx.zeros(size, 4)
    dist.all_to_all_single(whole, wide[rank])
    same(whole, nx.stack([each[rank] for each in wide]))
    parts = [nx.zeros(4) for _ in range(size)]
    dist.all_to_all(parts, list(wide[rank]))
    same(nx.stack(parts), whole)
    part = nx.zeros(4)
    dist.scatter(part, list(wide[0]) if rank == 0 else None, src=0)
    same(part, wide[0][rank])
    count = nx.tensor(rank + 1)
    dist.all_reduce(count)
    assert count.item() == size * (size + 1) // 2 and count.dtype == nx.int64
    # A weight that gradients are collected for.
    weight = nn.Parameter(own)
    dist.all_reduce(weight.data)
    same(weight.detach(), stacked.sum(0))
    assert weight.requires_grad and weight.is_leaf


def one_rank_sends() -> None:
    x = numbers(0, 5)
    if dist.get_rank() == 0:
        dist.send(x, 1)
        dist.send(x * 2, group_dst=1)
        assert dist.recv(x, src=1) == 1
        same(x, numbers(0, 5) * 6)
    else:
        y, z = nx.zeros(5), nx.zeros(5)
        assert dist.recv(y, src=0) == 0 and dist.recv(z, group_src=0) == 0
        same(y, x)
        same(z, x * 2)
        dist.send(y + z + y + z, 0)
    # Gradients come back.
    if dist.get_rank() == 0:
        w = numbers(0, 3).requires_grad_()
        functional.send(w * 2, 1).sum().backward()
        same(w.grad, 4 * numbers(0, 3) * 2)
    else:
        template = nx.zeros(3).requires_grad_()
        received = functional.receive(template, 0)
        received.square().sum().backward()
        # The gradient is sent when it is computed.
        same(template.grad, nx.zeros(3))
        same(received.detach(), numbers(0, 3) * 2)


def objects() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    own = {"rank": rank, "text": "x" * rank, "tensor": numbers(rank, 2)}
    found: list[Any] = [None] * size
    dist.all_gather_object(found, own)
    assert [each["text"] for each in found] == ["x" * other for other in range(size)]
    same(found[1]["tensor"], numbers(1, 2))
    found = [None] * size
    dist.gather_object(rank, found if rank == 1 else None, dst=1)
    assert found == (list(range(size)) if rank == 1 else [None] * size)
    pair: list[Any] = [rank, "a"] if rank == 0 else [None, None]
    dist.broadcast_object_list(pair, src=0)
    assert pair == [0, "a"]
    box: list[Any] = [None]
    dist.scatter_object_list(box, [f"for {other}" for other in range(size)] if rank == 0 else None, src=0)
    assert box == [f"for {rank}"]


def gradients() -> None:
    """Those of the sum of all ranks' losses, a weighted sum of squares on each, against one process."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def check(collective: Any, alone: Any, *shape: int) -> None:
        """``collective`` of a rank's tensor; ``alone`` gives the results of all ranks from the tensors of all."""
        x = numbers(rank, *shape).requires_grad_()
        result = collective(x)
        (result.square() * numbers(rank + 5, *result.shape)).sum().backward()
        every = [each.requires_grad_() for each in everyones(*shape)]
        results = alone(every)
        same(result.detach(), results[rank].detach())
        losses = [(each.square() * numbers(at + 5, *each.shape)).sum() for at, each in enumerate(results)]
        nx.stack(losses).sum().backward()
        close(x.grad, nx.zeros(shape) if every[rank].grad is None else every[rank].grad)

    total = lambda every: nx.stack(every).sum(0)
    check(functional.all_reduce, lambda every: [total(every)] * size, 3, 2)
    check(lambda x: functional.all_reduce(x, "avg"), lambda every: [total(every) / size] * size, 3, 2)
    check(functional.reduce_scatter, lambda every: list(total(every).chunk(size)), 2 * size, 3)
    check(functional.all_gather, lambda every: [nx.concat(every)] * size, 2, 3)
    check(lambda x: functional.broadcast(x, 1), lambda every: [every[1]] * size, 4)
    check(
        lambda x: functional.reduce(x, 1),
        lambda every: [total(every) if at == 1 else total(every) * 0 for at in range(size)],
        4,
    )
    check(
        functional.all_to_all,
        lambda every: [nx.concat([each.chunk(size)[at] for each in every]) for at in range(size)],
        2 * size,
        3,
    )
    # Only sums have a gradient.
    x = numbers(rank, 2).requires_grad_()
    with pytest.raises(RuntimeError, match="no_grad"):
        functional.all_reduce(x, "max").sum().backward()
    # Gradients of gradients.
    x = numbers(rank, 2).requires_grad_()
    (slope,) = nx.grad(functional.all_reduce(x**3).sum(), [x], create_graph=True)
    slope.sum().backward()
    same(x.grad, 6.0 * size * numbers(rank, 2))


def a_shared_loss() -> None:
    x = numbers(dist.get_rank(), 3).requires_grad_()
    functional.all_reduce(x * x, shared=True).sum().backward()
    same(x.grad, 2 * numbers(dist.get_rank(), 3))


def a_copied_input() -> None:
    """Only this use of the tensor has its gradient summed, however often it is copied."""
    rank = dist.get_rank()
    x = numbers(0, 3).requires_grad_()
    for _ in range(2):
        x.grad = None
        ((functional.copy(x) * (rank + 1)).sum() + (x * 10).sum()).backward()
        same(x.grad, nx.full((3,), 13.0))


def what_cannot_be() -> None:
    x = nx.zeros(3)
    for call, message in [
        (lambda: dist.all_reduce(x, "mean"), "must be one of ReduceOp"),
        (lambda: dist.broadcast(x, 7), "rank 7 is not in the group"),
        (lambda: dist.broadcast(x, 0, group_src=0), "pass src or group_src"),
        (lambda: dist.all_gather([x], x), "list of 2 tensors"),
        (lambda: functional.reduce_scatter(x), "multiple of 2"),
        (lambda: dist.all_reduce(x > 0), "convert"),
        (lambda: dist.send(x, dist.get_rank()), "is this process"),
        (lambda: dist.new_group([0, 0]), "twice"),
        (lambda: dist.init_device_mesh("cpu", (3,)), "does not fit a job of 2"),
        (lambda: dist.init_process_group(), "initialised already"),
    ]:
        with pytest.raises((ValueError, RuntimeError, TypeError), match=message):
            call()


def groups() -> None:
    rank = dist.get_rank()
    assert dist.get_process_group_ranks() == [0, 1, 2, 3] and dist.get_backend() == "tcp"
    even, odd = dist.new_group([0, 2]), dist.new_group([3, 1], sort_ranks=False)
    own, other = (even, odd) if rank % 2 == 0 else (odd, even)
    assert other is dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(other) == dist.get_world_size(other) == -1
    assert dist.get_rank(own) == {0: 0, 2: 1, 3: 0, 1: 1}[rank] and dist.get_world_size(own) == 2
    assert dist.get_global_rank(own, 1) == (2 if rank % 2 == 0 else 1) and dist.get_group_rank(own, rank) == dist.get_rank(own)
    x = numbers(rank, 3)
    dist.all_reduce(x, group=own)
    same(x, numbers(0, 3) + numbers(2, 3) if rank % 2 == 0 else numbers(1, 3) + numbers(3, 3))
    gathered = functional.all_gather(numbers(rank, 1), own)
    same(gathered, nx.concat([numbers(each, 1) for each in ([0, 2] if rank % 2 == 0 else [3, 1])]))
    with pytest.raises(ValueError, match="not in the group"):
        dist.all_reduce(x, group=other)
    dist.destroy_process_group(own)
    with pytest.raises(ValueError, match="closed"):
        dist.all_reduce(x, group=own)
    dist.barrier()


def a_mesh() -> None:
    rank = dist.get_rank()
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    assert mesh.get_coordinate() == [rank // 2, rank % 2] and mesh.shape == (2, 2) and mesh.size() == 4
    assert mesh.get_group("data").ranks == [rank % 2, rank % 2 + 2]
    assert mesh["tensor"].get_group().ranks == [rank - rank % 2, rank - rank % 2 + 1]
    assert mesh.get_local_rank("tensor") == rank % 2 and mesh.get_local_rank(0) == rank // 2
    x = numbers(rank, 2)
    dist.all_reduce(x, group=mesh.get_group("data"))
    same(x, numbers(rank % 2, 2) + numbers(rank % 2 + 2, 2))
    dist.all_reduce(x, group=mesh.get_group("tensor"))
    same(x, nx.stack(everyones(2)).sum(0))
    with pytest.raises(KeyError, match="no axis"):
        mesh.get_group("pipeline")


def network() -> nn.Sequential:
    nx.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))


def the_whole_batch() -> None:
    """Several processes train as one with the whole batch."""
    alone, model = network(), network()
    if dist.get_rank() > 0:
        # Rank 0 decides.
        nn.init.zeros_(model[0].weight)
    # Several buckets.
    parallel = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1e-4)
    optimizers = [nx.optim.AdamW(each.parameters(), lr=0.01) for each in (alone, parallel)]
    for step in range(6):
        rows = batch(step)
        for each, optimizer, own in ((alone, optimizers[0], rows), (parallel, optimizers[1], part(rows))):
            optimizer.zero_grad()
            found = loss(each, own)
            found.backward()
            optimizer.step()
        for a, b in zip(model.parameters(), alone.parameters(), strict=True):
            close(a.detach(), b.detach(), 1e-5)
    assert list(parallel.state_dict()) == [f"module.{name}" for name in alone.state_dict()]


def accumulated_gradients() -> None:
    alone, model = network(), network()
    parallel = nn.parallel.DistributedDataParallel(model)
    first, second = batch(0), batch(1)
    loss(alone, first).backward()
    loss(alone, second).backward()
    with parallel.no_sync():
        loss(parallel, part(first)).backward()
    own = [p.grad.clone() for p in model.parameters()]
    everyone: list[Any] = [None, None]
    dist.all_gather_object(everyone, own[0])
    assert everyone[0].tolist() != everyone[1].tolist()
    loss(parallel, part(second)).backward()
    for a, b in zip(model.parameters(), alone.parameters(), strict=True):
        close(a.grad, b.grad, 1e-5)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.sometimes, self.never = nn.Linear(5, 3), nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x: nx.Tensor) -> nx.Tensor:
        y = self.used(x)
        return y + self.sometimes(x) if dist.get_rank() == 1 else y


def unused_parameters() -> None:
    nx.manual_seed(1)
    model = Branches()
    strict = nn.parallel.DistributedDataParallel(model)
    with pytest.raises((RuntimeError, ValueError), match=r"never\.weight.*find_unused_parameters"):
        loss(strict, part(batch(0))).backward()
    del strict
    nx.manual_seed(1)
    model = Branches()
    tolerant = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    rows = part(batch(0))
    loss(tolerant, rows).backward()
    assert model.never.weight.grad is None and model.sometimes.weight.grad is not None
    shares: list[Any] = [None, None]
    dist.all_gather_object(shares, model.sometimes.weight.grad)
    same(shares[0], shares[1])
    nx.manual_seed(1)
    alone = Branches()
    loss(alone, rows).backward()
    expected: list[Any] = [None, None]
    dist.all_gather_object(expected, alone.sometimes.weight.grad)
    assert expected[0] is None
    close(shares[0], expected[1] / 2)


def buffers() -> None:
    rank = dist.get_rank()
    model = nn.BatchNorm1d(3)
    nn.init.constant_(model.running_mean, float(rank + 5))
    parallel = nn.parallel.DistributedDataParallel(model)
    same(model.running_mean, nx.full((3,), 5.0))
    x = nx.ones(4, 3) * (rank + 1)
    parallel(x).sum().backward()
    same(model.running_mean, nx.full((3,), 5.0 * 0.9 + 0.1 * (rank + 1)))
    parallel(x).sum().backward()
    # Rank 0's again, then this rank's own step.
    close(model.running_mean, nx.full((3,), 4.6 * 0.9 + 0.1 * (rank + 1)))
    before = model.running_mean.clone()
    parallel.eval()(x)
    same(model.running_mean, before)


def a_compiled_step() -> None:
    alone, model = network(), network()
    parallel = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1e-4)
    optimizers = [nx.optim.AdamW(each.parameters(), lr=0.01) for each in (alone, parallel)]

    @nx.compile
    def step(x: nx.Tensor, y: nx.Tensor) -> nx.Tensor:
        optimizers[1].zero_grad()
        found = loss(parallel, (x, y))
        found.backward()
        optimizers[1].step()
        return found.detach()

    for number in range(5):
        rows = batch(number)
        optimizers[0].zero_grad()
        expected = loss(alone, rows)
        expected.backward()
        optimizers[0].step()
        found = step(*part(rows))
        dist.all_reduce(found, dist.ReduceOp.AVG)
        close(found, expected.detach(), 1e-5)
    for a, b in zip(model.parameters(), alone.parameters(), strict=True):
        close(a.detach(), b.detach(), 1e-5)


def compressed_gradients() -> None:
    alone, model = network(), network()
    parallel = nn.parallel.DistributedDataParallel(model, compression=nx.bfloat16)
    rows = batch(0)
    loss(alone, rows).backward()
    loss(parallel, part(rows)).backward()
    for a, b in zip(model.parameters(), alone.parameters(), strict=True):
        assert a.grad.dtype == nx.float32 and a.grad.tolist() != b.grad.tolist()
        # Halves of numbers with 8 bits, and their sum.
        close(a.grad, b.grad, 2 * 2.0**-8)


def samples() -> None:
    data = nx.data.TensorDataset(nx.arange(11))
    sampler = nx.data.DistributedSampler(data, seed=4)
    assert (sampler.num_replicas, sampler.rank) == (2, dist.get_rank())
    sampler.set_epoch(1)
    loader = nx.data.DataLoader(data, batch_size=4, sampler=sampler)
    own = [value for (rows,) in loader for value in rows.tolist()]
    everyones_samples: list[Any] = [None, None]
    dist.all_gather_object(everyones_samples, own)
    joined = sorted(everyones_samples[0] + everyones_samples[1])
    assert len(own) == 6 and set(joined) == set(range(11)) and len(joined) == 12


# In this process alone.


def test_the_sampler_divides_as_pytorch_does() -> None:
    def indices(count: int, replicas: int, **settings: Any) -> list[list[int]]:
        every = [nx.data.DistributedSampler(range(count), replicas, rank, **settings) for rank in range(replicas)]
        assert all(len(list(each)) == len(each) for each in every)
        return [list(each) for each in every]

    assert indices(7, 3, shuffle=False) == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]
    assert indices(7, 3, shuffle=False, drop_last=True) == [[0, 3], [1, 4], [2, 5]]
    assert indices(2, 5, shuffle=False) == [[0], [1], [0], [1], [0]]
    assert indices(2, 5, shuffle=False, drop_last=True) == [[], [], [], [], []]
    assert indices(6, 1) == indices(6, 1) != indices(6, 1, seed=1)
    shuffled = indices(9, 3)
    assert sorted(sum(shuffled, [])) == list(range(9)) and shuffled[0] != [0, 3, 6]
    sampler = nx.data.DistributedSampler(range(50), 2, 1)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    for rank in (-1, 2):
        with pytest.raises(ValueError, match="from 0 to 1"):
            nx.data.DistributedSampler(range(3), 2, rank)


def test_without_a_launcher_there_is_a_group_of_one() -> None:
    program = """
import os, tempfile
import neurenix as nx, neurenix.distributed as dist

def use(group):
    model = nx.nn.parallel.DistributedDataParallel(nx.nn.BatchNorm1d(1))
    assert model.process_group is group
    with model.no_sync():
        model(nx.ones(2, 1)).sum().backward()
    assert model.module.bias.grad.tolist() == [2.0]
    assert list(nx.data.DistributedSampler(range(3), shuffle=False)) == [0, 1, 2]
    path = os.path.join(tempfile.mkdtemp(), "step-1")
    dist.checkpoint.save({"weight": nx.ones(2)}, path)
    assert dist.checkpoint.load({"weight": nx.zeros(2)}, path)["weight"].tolist() == [1.0, 1.0]

use(None)
os.environ["OMPI_COMM_WORLD_SIZE"] = "2"
for call in (lambda: use(None), lambda: nx.data.DistributedSampler(range(3)), lambda: dist.checkpoint.save({}, "x")):
    try:
        call()
    except ValueError as error:
        assert "init_process_group" in str(error)
    else:
        raise AssertionError("one of two processes went on alone")
del os.environ["OMPI_COMM_WORLD_SIZE"]
assert not dist.is_initialized() and dist.is_available() and not dist.is_torchelastic_launched()
try:
    dist.get_rank()
except ValueError as error:
    assert "init_process_group" in str(error)
group = dist.init_process_group()
assert (dist.get_rank(), dist.get_world_size(), group.ranks) == (0, 1, [0]) and dist.is_initialized()
x = nx.tensor([1.0, 2.0])
dist.all_reduce(x); dist.broadcast(x, 0); dist.barrier()
parts = [nx.zeros(2)]
dist.all_gather(parts, x)
assert x.tolist() == parts[0].tolist() == [1.0, 2.0]
w = nx.tensor([3.0]).requires_grad_()
use(group)
dist.functional.all_gather(w * w).sum().backward()
assert w.grad.tolist() == [6.0]
dist.destroy_process_group()
assert not dist.is_initialized()
"""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
