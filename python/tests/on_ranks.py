"""Runs functions of a test file on several ranks, each of which is a process; and what those functions share.

A test file has ``CASES``, pairs of a number of ranks and the name of a function without arguments, and one test that
calls ``ranks.check`` with each pair. All functions for one number of ranks run in the same processes, one after the
other.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import neurenix as nx
import neurenix.distributed as dist
from neurenix import nn

LIMIT = 120
"""Seconds for all functions on one number of ranks."""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Ranks:
    """The outcomes of a test file's functions: empty, or what went wrong on which rank."""

    def __init__(self, file: str, cases: Sequence[tuple[int, str]]) -> None:
        self.file, self.cases = file, cases
        self.outcomes: dict[int, dict[str, str]] = {}

    def check(self, size: int, name: str) -> None:
        """Fails if the function failed on a rank."""
        if size not in self.outcomes:
            self.outcomes[size] = launch(size, self.file, [each for number, each in self.cases if number == size])
        problem = self.outcomes[size][name]
        assert not problem, problem


def launch(size: int, file: str, names: Sequence[str]) -> dict[str, str]:
    """What went wrong in each of these functions, on this number of ranks."""
    environment = {
        **os.environ,
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    with tempfile.TemporaryDirectory() as folder:
        results = [Path(folder) / f"{rank}.json" for rank in range(size)]
        logs = [open(Path(folder) / f"{rank}.log", "w+", encoding="utf-8") for rank in range(size)]
        processes = [
            subprocess.Popen(
                [sys.executable, __file__, file, str(results[rank]), *names],
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            for rank, log in enumerate(logs)
        ]
        ended = []
        for process in processes:
            try:
                ended.append(f"ended with {process.wait(LIMIT)}")
            except subprocess.TimeoutExpired:
                ended.append(f"was ended after {LIMIT} s")
        for process in processes:
            process.kill()
            process.wait()
        said = []
        for rank, log in enumerate(logs):
            log.seek(0)
            said.append(f"rank {rank} of {size} {ended[rank]}: {log.read()}")
            log.close()
        found = [json.loads(result.read_text()) if result.exists() else {} for result in results]
    failed = next((name for name in names if not all(name in each for each in found)), None)
    if failed is None and any(each != "ended with 0" for each in ended):
        # After the last function.
        failed = names[-1]
    problems = {name: f"not run, because {failed} failed" for name in names[names.index(failed) :]} if failed else {}
    if failed:
        problems[failed] = "\n".join(said)
    return {name: problems.get(name, "") for name in names}


# What the functions share.


def close(found: nx.Tensor, expected: nx.Tensor, bound: float = 1e-5) -> None:
    """Fails unless they are equal up to this share of the greatest number."""
    worst, scale = (found - expected).abs().max().item(), expected.abs().max().item()
    assert found.shape == expected.shape and worst <= bound * max(scale, 1e-3), f"differs by {worst} of {scale}"


def same_states(found: Any, expected: Any, bound: float = 0.0) -> None:
    """Fails unless dictionaries have the same keys in the same order, and tensors that are close."""
    assert list(found) == list(expected), f"{list(found)} are not {list(expected)}"
    for name, value in expected.items():
        if isinstance(value, nx.Tensor):
            close(found[name].double(), value.double(), bound)
        elif isinstance(value, dict):
            same_states(found[name], value, bound)
        else:
            assert found[name] == value, f"{name}: {found[name]} is not {value}"


def part(tensors: Sequence[nx.Tensor], group: Any = None) -> list[nx.Tensor]:
    """This rank's rows."""
    return [each.chunk(dist.get_world_size(group))[dist.get_rank(group)] for each in tensors]


def batch(step: int) -> tuple[nx.Tensor, nx.Tensor]:
    """Inputs and targets of a step."""
    nx.manual_seed(100 + step)
    return nx.randn(12, 5), nx.randn(12, 3)


def loss(model: Any, rows: Sequence[nx.Tensor]) -> nx.Tensor:
    """The mean of a network's squared errors."""
    return (model(rows[0]) - rows[1]).square().mean()


def steps(model: Any, optimizer: Any, rows_of: Callable[[Any], Any], count: int = 4) -> list[tuple[nx.Tensor, nx.Tensor]]:
    """Trains. Returns the losses, and the norms of the gradients, which are clipped."""
    found = []
    for step in range(count):
        optimizer.zero_grad()
        value = loss(model, rows_of(batch(step)))
        value.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.4)
        optimizer.step()
        found.append((value.detach(), norm))
    return found


def mean(value: nx.Tensor) -> nx.Tensor:
    """The mean over the ranks."""
    value = value.clone()
    dist.all_reduce(value, dist.ReduceOp.AVG)
    return value


def same_training(found: list[tuple[nx.Tensor, nx.Tensor]], expected: list[tuple[nx.Tensor, nx.Tensor]]) -> None:
    """Compares what :func:`steps` returns on ranks with what it returns for the whole batches."""
    for (value, norm), (expected_value, expected_norm) in zip(found, expected, strict=True):
        close(mean(value), expected_value)
        close(norm, expected_norm)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(8), nn.Linear(8, 13), nn.Linear(13, 8)

    def forward(self, x: nx.Tensor) -> nx.Tensor:
        return x + self.outer(self.inner(self.norm(x)).gelu())


def network(seed: int = 3) -> nn.Sequential:
    """A network with blocks."""
    nx.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), Block(), Block(), nn.Linear(8, 3))


def alone(count: int = 4) -> tuple[nn.Sequential, Any, list[tuple[nx.Tensor, nx.Tensor]]]:
    """A network that one process has trained with the whole batches, its optimiser, and what :func:`steps` says."""
    model = network()
    optimizer = nx.optim.AdamW(model.parameters(), lr=0.01)
    return model, optimizer, steps(model, optimizer, lambda rows: rows, count)


def main() -> None:
    """Runs on a rank: notes which functions have returned."""
    file, result, *names = sys.argv[1:]
    sys.path.append(str(Path(__file__).parent))
    nx.set_default_device("cpu")
    nx.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("functions", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # So that objects of its classes can be pickled.
    sys.modules["functions"] = module
    spec.loader.exec_module(module)
    finished: dict[str, bool] = {}
    dist.init_process_group("gloo", timeout=60)
    try:
        for name in names:
            nx.manual_seed(0)
            getattr(module, name)()
            dist.barrier()
            finished[name] = True
    except BaseException:
        print(f"{name} failed:")
        traceback.print_exc(file=sys.stdout)
    finally:
        Path(result).write_text(json.dumps(finished))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
