"""Unusual files: invalid bools, permissions, pipes, and what an interrupted call leaves behind."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import neurenix as nx
import pytest


def test_bools_are_zero_or_one(tmp_path: Path) -> None:
    header = json.dumps({"t": {"dtype": "BOOL", "shape": [4], "data_offsets": [0, 4]}}).encode()
    path = tmp_path / "other.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes([0, 1, 128, 255]))
    pickled = pickle.dumps(nx.asarray([False, True, True, True])).replace(b"\x00\x01\x01\x01", b"\x00\x01\x80\xff")
    assert b"\x00\x01\x80\xff" in pickled
    for t in (nx.load(path)["t"], pickle.loads(pickled)):
        assert t.sum().item() == 3 and t.tobytes() == b"\x00\x01\x01\x01" and t.tolist() == [False, True, True, True]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_saving_keeps_the_files_mode(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    nx.save({"x": nx.ones(2)}, path)
    for mode in (0o600, 0o664):
        path.chmod(mode)
        nx.save({"x": nx.zeros(2)}, path)
        assert path.stat().st_mode & 0o777 == mode


class Stops(io.BytesIO):
    """A file whose methods raise after some bytes."""

    left = 1

    def read(self, size: int | None = -1) -> bytes:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        return super().read(size)

    def write(self, data: object) -> int:
        raise ZeroDivisionError("no more")


def test_open_files_go_through_no_temporary_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    monkeypatch.setattr("tempfile.tempdir", None)
    state = {"x": nx.arange(1 << 19)}
    whole = io.BytesIO()
    nx.save(state, whole)
    whole.seek(0)
    assert (nx.load(whole)["x"] == state["x"]).all().item()
    # Exceptions raised by the file's methods reach the caller.
    with pytest.raises(KeyboardInterrupt):
        nx.load(Stops(whole.getvalue()))
    with pytest.raises(ZeroDivisionError, match="no more"):
        nx.save(state, Stops())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere such waits are the system's")
def test_ctrl_c_ends_a_load_from_a_pipe_that_nobody_writes(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import os, signal, sys, threading
        import neurenix as nx
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            nx.load(sys.argv[1])
        except KeyboardInterrupt:
            print("interrupted")
    """)
    os.mkfifo(tmp_path / "pipe")
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "pipe"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "interrupted\n", done.stderr


def test_what_does_not_fit_into_memory_is_a_memory_error(tmp_path: Path) -> None:
    size = 1 << 43
    header = json.dumps({"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path = tmp_path / "hole.safetensors"
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        try:
            file.truncate(8 + len(header) + size)
        except OSError:
            pytest.skip("this file system has no files of eight terabytes")
    with pytest.raises(MemoryError, match="hole.safetensors: reading it takes"):
        nx.load(path)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
def test_control_characters_in_names_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2J"
    # Text would be refused before the engine reads it.
    path.write_bytes(b"\xffno tensors")
    with pytest.raises(ValueError) as refused:
        nx.load(path)
    assert "\x1b" not in str(refused.value) and r"a\u{1b}[2J" in str(refused.value)


def test_a_script_that_computes_prints_nothing_else() -> None:
    # If these variables are unset, Mesa's device selection layer would print a warning.
    environment = {k: v for k, v in os.environ.items() if k not in ("XDG_RUNTIME_DIR", "NODEVICE_SELECT")}
    program = "import neurenix as nx; print((nx.ones(3) * 2).sum().item(), len(nx.devices()) > 0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
    assert (done.stdout, done.stderr) == ("6.0 True\n", "")


def test_a_process_trains_twice_and_keeps_its_handlers(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import signal, sys
        from neurenix.__main__ import main
        signal.signal(signal.SIGINT, signal.default_int_handler)
        options = ["--epochs", "1", "--hidden", "8", "--device", "cpu"]
        codes = [main(["train", "digits", *options, "--out", name]) for name in ("first", "second")]
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            print(codes, file=sys.stderr)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert done.stderr == "[0, 0]\n", done
    assert (tmp_path / "second" / "report.html").exists()


# The command, interrupted when its standard input ends: Windows has no signals between processes.
INTERRUPTED = """
import signal, sys, threading
from neurenix.__main__ import main

def wait():
    sys.stdin.read()
    signal.raise_signal(signal.SIGINT)

threading.Thread(target=wait, daemon=True).start()
sys.exit(main())
"""


def test_the_first_ctrl_c_stops_a_training_run(tmp_path: Path) -> None:
    program = ["-c", INTERRUPTED] if os.name == "nt" else ["-m", "neurenix"]
    arguments = ["train", "digits", "--epochs", "100000", "--device", "cpu", "--out", "run"]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, *program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    # Wait for the first epoch.
    while not process.stdout.readline().startswith("epoch"):
        assert process.poll() is None
    if os.name != "nt":
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "train --resume run" in errors, errors
