"""Programs under ``neurenix launch``: sharded checkpoints, and processes that end early."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import neurenix as nx
import neurenix.distributed as dist
import pytest
from neurenix.distributed import checkpoint

SCRIPT = """
import sys
import neurenix as nx
import neurenix.distributed as dist
from neurenix.distributed import checkpoint

mode, path = sys.argv[1:]
group = dist.init_process_group("gloo")
rank, size = group.rank(), group.size()
whole = nx.arange(10.0)
start, end = 10 * rank // size, 10 * (rank + 1) // size


def state(filled):
    number = 5.0 if filled else 0.0
    own = whole[start:end].clone() if filled else nx.zeros(end - start)
    return {
        "divided": checkpoint.Shard(own, checkpoint.Part((10,), start=start, length=end - start)),
        "model": {"x": nx.full((2, 3), number), "none": nx.zeros(0)},
        "step": 7 if filled else 0,
        "list": [1, "two", None] if filled else [0, "", 1],
    }


if mode == "save":
    checkpoint.save(state(True), path)
elif mode == "fail":
    broken = state(True)
    if rank == 1:
        broken["list"][0] = object()
    try:
        checkpoint.save(broken, path)
    except RuntimeError as error:
        assert "rank 1" in str(error), error
    else:
        raise AssertionError("it was saved")
else:
    found, expected = checkpoint.load(state(False), path), state(True)
    assert found["divided"].tensor.tolist() == expected["divided"].tensor.tolist()
    assert found["model"]["x"].tolist() == expected["model"]["x"].tolist()
    assert (found["step"], found["list"]) == (expected["step"], expected["list"])
dist.destroy_process_group()
"""


def launched(processes: int, script: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "neurenix", "launch", "-n", str(processes), str(script), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_page_runs_in_two_processes_and_after_a_restart(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text()
    script = tmp_path / "page.py"
    script.write_text("\n".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)))
    command = [sys.executable, "-m", "neurenix", "launch", "-n", "2", str(script)]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    assert checkpoint.latest(tmp_path / "checkpoints") == tmp_path / "checkpoints" / "step-2"


WAITING = """
import os, sys, time

# In one piece, so that the lines of ranks do not mix.
os.write(1, f"process {os.getpid()} waits\\n".encode())
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(1)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals between processes")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_passed_on_to_the_ranks(number: signal.Signals, code: int, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(WAITING)
    words = ["launch", "-n", "2", "--restarts", "3", "--tag", str(script)]
    # Processes that a shell starts in the background ignore SIGINT, and their children inherit it.
    main = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    main += f"from neurenix.__main__ import main; raise SystemExit(main({words!r}))"
    launcher = subprocess.Popen([sys.executable, "-c", main], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    begun = [launcher.stdout.readline() for _ in range(2)]
    assert sorted(line[:3] for line in begun) == ["[0]", "[1]"], begun
    launcher.send_signal(number)
    output, errors = launcher.communicate(timeout=60)
    assert launcher.returncode == code, errors
    assert "starting again" not in errors
    if number == signal.SIGINT:
        assert sorted(output.splitlines()) == ["[0] interrupted", "[1] interrupted"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not end processes with their parents")
def test_ranks_end_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(WAITING)
    command = [sys.executable, "-m", "neurenix", "launch", "-n", "2", str(script)]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    ranks = [int(launcher.stdout.readline().split()[1]) for _ in range(2)]
    launcher.kill()
    # The pipe closes when the last process that holds it has ended.
    with launcher.stdout:
        assert launcher.stdout.read() == ""
    launcher.wait(timeout=60)
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{rank}/cmdline").exists() and Path(f"/proc/{rank}/cmdline").read_bytes() for rank in ranks):
        assert time.monotonic() < deadline
        time.sleep(0.05)


EARLY = """
import time
import neurenix as nx
import neurenix.distributed as dist

rank = dist.init_process_group("gloo").rank()
dist.barrier()
if rank == 1:
    time.sleep(0.7)
    dist.send(nx.ones(3), 2)
if rank == 2:
    received = nx.zeros(3)
    dist.recv(received, 1)
    assert received.tolist() == [1.0] * 3
"""


def test_a_process_that_ends_without_a_word_leaves_the_others_alone(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(EARLY)
    launched(3, script)


def test_other_numbers_of_ranks_read_it(tmp_path: Path) -> None:
    script, path = tmp_path / "program.py", str(tmp_path / "step-12")
    script.write_text(SCRIPT)
    launched(2, script, "save", path)
    for ranks in (1, 2, 3):
        launched(ranks, script, "load", path)
    # A failure of one rank leaves the older checkpoint as it was.
    launched(2, script, "fail", path)
    launched(2, script, "load", path)
    assert checkpoint.latest(tmp_path) == Path(path)


@pytest.fixture
def alone() -> object:
    dist.init_process_group()
    yield None
    dist.destroy_process_group()


def test_what_is_missing_or_incomplete_is_refused(alone: None, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no complete checkpoint"):
        checkpoint.load({}, tmp_path)
    checkpoint.save({"x": nx.ones(3)}, tmp_path / "one")
    x = nx.zeros(4)
    with pytest.raises(ValueError, match=r"x has shape \(3,\)"):
        checkpoint.load({"x": x}, tmp_path / "one")
    with pytest.raises(ValueError, match="does not have y"):
        checkpoint.load({"y": x}, tmp_path / "one")
    assert x.tolist() == [0.0] * 4
    index = tmp_path / "one" / "index.json"
    content = json.loads(index.read_text())
    content["tensors"]["x"]["parts"] = []
    index.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"does not have x\[0:3\]"):
        checkpoint.load({"x": nx.zeros(3)}, tmp_path / "one")


def test_the_latest_checkpoint(alone: None, tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) is None
    for name in ("step-9", "step-100", "step-20"):
        checkpoint.save({"step": name}, tmp_path / name)
    (tmp_path / "step-500.unfinished").mkdir()
    (tmp_path / "step-500.unfinished" / "index.json").write_text("{}")
    assert checkpoint.latest(tmp_path) == tmp_path / "step-100"
    # It is replaced as a whole.
    checkpoint.save({"step": 1, "x": nx.ones(1)}, tmp_path / "step-9")
    assert checkpoint.load({"step": 0}, tmp_path / "step-9") == {"step": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-100", "step-20", "step-500.unfinished", "step-9"]
