"""The cost of the import, and the memory that many operations leave behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TIME = "import time; begun = time.perf_counter(); import neurenix; print(time.perf_counter() - begun)"
# These modules are imported on first use.
LATER = ("amp", "data", "hardware", "io", "nn", "optim", "_compile", "_custom", "_profile")
MODULES = f"""
import sys
import neurenix as nx

print(*(name for name in {LATER!r} if f"neurenix.{{name}}" in sys.modules))
print(nx.nn.Linear(2, 3)(nx.zeros(4, 2)).shape, nx.functional.relu(nx.ones(1)).item(), nx.optim.SGD.__name__)
"""
SIZE = """
import gc
import os
import neurenix as nx

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def work(count):
    x = nx.ones(4, device="cpu")
    for _ in range(count):
        y = x
        for _ in range(18):
            y = y * 0.5 + 1
        y.sum().item()

work(500)
before = resident()
work(2800)
print(resident() - before)
"""


def python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_import_opens_no_more_than_it_needs() -> None:
    opened, used = python(MODULES).splitlines()
    assert opened == ""
    assert used == "torch.Size([4, 3]) 1.0 SGD"


def test_an_import_takes_less_than_150_milliseconds() -> None:
    """A goal, not a condition: the time means little on a busy machine, so a miss is printed and is not a failure."""
    best = min(float(python(TIME)) for _ in range(5))
    if best >= 0.15:
        pytest.xfail(f"the best of five imports took {best * 1000:.0f} ms")


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a process is read on Linux")
def test_100_000_operations_leave_no_memory_behind() -> None:
    # A leaked node would take more than 40 bytes.
    assert int(python(SIZE)) < 40 * 100_000
