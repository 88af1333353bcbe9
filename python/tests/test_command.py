"""``python -m neurenix``, the device report, and progress in a notebook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import neurenix as nx
import pytest
from neurenix.__main__ import main
from neurenix.data import _progress


def run(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "neurenix", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)


def test_the_version_is_the_packages() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"neurenix {nx.__version__}\n", "")
    assert nx.version() == nx.__version__


def test_help_lists_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    for name in ("devices", "train", "predict", "verify", "bench", "explain", "completions"):
        assert f"  {name}" in done.stdout


def own(names: Iterable[str]) -> list[str]:
    """The engine's devices: NPUs, of installed runtimes, run whole networks and hold no tensors."""
    return [name for name in names if not name.startswith("npu")]


def test_devices_are_those_of_the_package() -> None:
    done = run("devices", "--json")
    assert done.returncode == 0, done.stderr
    listing = json.loads(done.stdout)
    assert own(device["name"] for device in listing["devices"]) == [device.name for device in nx.devices()]
    missing = {entry["kind"] for entry in listing["missing"]}
    assert missing == {entry["device"] for entry in nx.hardware.report() if not entry["found"]}


def test_the_packages_of_the_interpreter_are_searched(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def absent() -> str:
        assert main(["devices", "--json"]) == 0
        missing = json.loads(capfd.readouterr().out)["missing"]
        return next(entry["reason"] for entry in missing if "Edge TPU" in entry["reason"])

    given = os.environ.get("RNN_NPU_PATH")
    assert "the program edgetpu_compiler" in absent()
    (tmp_path / ("edgetpu_compiler" + (".exe" if os.name == "nt" else ""))).touch()
    monkeypatch.setattr(sysconfig, "get_paths", lambda: dict.fromkeys(("purelib", "platlib", "scripts"), str(tmp_path)))
    assert "the program edgetpu_compiler" not in absent()
    assert os.environ.get("RNN_NPU_PATH") == given


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "Usage: neurenix"),
        (("fly",), 2, "unrecognized subcommand 'fly'"),
        (("verify", "--device", "nowhere:0"), 1, "error: "),
        (("predict", "absent", "absent.csv"), 1, "error: "),
    ],
)
def test_mistakes_are_told(arguments: tuple[str, ...], code: int, message: str, tmp_path: Path) -> None:
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == code and message in done.stderr, done
    assert done.stdout == "" and "Traceback" not in done.stderr and "panicked" not in done.stderr


def test_the_function_gives_the_exit_code(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--version"]) == 0
    assert main(["fly"]) == 2
    monkeypatch.setattr(sys, "argv", ["neurenix", "--version"])
    assert main() == 0
    told = capfd.readouterr()
    assert told.out == f"neurenix {nx.__version__}\n" * 2 and "fly" in told.err


def test_the_report_has_all_kinds_of_devices() -> None:
    report = nx.hardware.report()
    kinds = {entry["kind"] for entry in report}
    assert {"cpu", "cuda", "hip", "opencl", "directml", "npu"} <= kinds
    assert {"vulkan", "metal", "dx12", "gl"} <= kinds
    assert own(entry["device"] for entry in report if entry["found"]) == [device.name for device in nx.devices()]
    for entry in report:
        if entry["found"]:
            kind = "npu" if entry["device"].startswith("npu") else nx.Device(entry["device"]).type
            assert entry["kind"] == kind and entry["model"]
            assert entry["nature"] in ("host CPU", "hardware", "emulator") and "reason" not in entry
        else:
            assert entry["reason"] and "memory" not in entry and "model" not in entry


@pytest.mark.parametrize(
    ("shell", "is_seen"),
    [(SimpleNamespace(kernel=object()), True), (SimpleNamespace(kernel=None), False), (object(), False), (None, False)],
    ids=["notebook", "no kernel", "terminal", "not running"],
)
def test_progress_is_seen_in_a_notebook(
    shell: object, is_seen: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert _progress._visible() is is_seen
    assert list(nx.data.progress(iter([1, 2]), "reading")) == [1, 2]
    shown = capsys.readouterr().err
    if is_seen:
        assert shown.startswith("\rreading ") and "\rreading 2 0:0" in shown and shown.endswith("\n")
    else:
        assert shown == ""


def test_progress_ends_its_line_where_the_loop_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_progress, "_visible", lambda: True)
    for _number in nx.data.progress(range(5)):
        break
    with pytest.raises(ZeroDivisionError):
        for number in nx.data.progress(range(5)):
            1 / (number - 1)
    assert capsys.readouterr().err.count("\n") == 2
    assert list(nx.data.progress([])) == []
    assert "0" in capsys.readouterr().err


def test_long_durations_have_hours() -> None:
    assert [_progress._duration(seconds) for seconds in (0, 59.9, 61, 3600, 36_125)] == [
        "0:00",
        "0:59",
        "1:01",
        "1:00:00",
        "10:02:05",
    ]
