"""Python may exit while devices work: drivers are not torn down while their threads run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import neurenix as nx

# The program does not wait for this work. Its last lines end it normally or with an uncaught exception.
PROGRAM = """
import sys
import neurenix as nx

nx.set_default_device({device!r})
kept = []
for number in range(6):
    x = nx.rand(96, 96)
    kept.append(nx.softmax(x @ x + number, -1))
    nx.evaluate(kept)
{end}
"""
ENDS = {"": 0, "sys.exit(3)": 3, "raise ValueError(number)": 1}
CACHES = ("POCL_CACHE_DIR", "RNN_OPENCL_CACHE_PATH", "RNN_VULKAN_CACHE_PATH")


@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends_while_devices_work(end: str, tmp_path: Path) -> None:
    names = [device.name for device in nx.devices() if device.name != "cpu"]
    if not names:
        pytest.skip("no device but the CPU is here")
    for name in names:
        # Empty caches force the drivers to compile.
        environment = dict(os.environ, MESA_SHADER_CACHE_DISABLE="1")
        for cache in CACHES:
            folder = tmp_path / name.replace(":", "-") / cache
            folder.mkdir(parents=True)
            environment[cache] = str(folder)
        program = PROGRAM.format(device=name, end=end)
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=environment
        )
        assert done.returncode == ENDS[end], name + done.stdout + done.stderr


def test_a_forked_child_ends_without_the_devices_of_its_parent() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    program = """
import atexit, os
import neurenix as nx

x = [nx.full((64, 64), 2.0, device=device) + 1.0 for device in nx.devices()]
for one in x:
    nx.evaluate([one])
child = os.fork()
if child == 0:
    # Naming a device in the child does not open it there.
    nx.Device("cpu")
    # Run Python's exit functions only: the drivers' own may join threads that a forked child lacks.
    atexit._run_exitfuncs()
    os._exit(5)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), {one.sum().item() for one in x})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.split(maxsplit=1) == ["5", "{12288.0}\n"], done.stdout + done.stderr
