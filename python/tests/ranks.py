"""Runs functions of a test file on several ranks, each of which is a process.

A test file has ``CASES``, pairs of a number of ranks and the name of a function without arguments, and one test that calls
``ranks.check`` with each pair. All functions for one number of ranks run in the same processes, one after the other.
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
from collections.abc import Sequence
from pathlib import Path

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
    problems = {name: f"not run, because {failed} failed" for name in names[names.index(failed) :]} if failed else {}
    if failed:
        problems[failed] = "\n".join(said)
    return {name: problems.get(name, "") for name in names}


def main() -> None:
    """Runs on a rank: notes which functions have returned."""
    file, result, *names = sys.argv[1:]
    import neurenix as nx
    import neurenix.distributed as dist

    nx.set_default_device("cpu")
    nx.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("functions", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
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
