"""``python -m neurenix``: the command."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ._engine import run_command, stop_training
from .hardware._deployed import folders


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit code. ``arguments`` defaults to the program's arguments.

    On the main thread, the first Ctrl-C lets a training run write a checkpoint, and is passed on to launched processes;
    any other Ctrl-C ends the command.
    """
    try:
        with _stopping(), _searching_packages():
            program = [sys.executable, "-m", "neurenix"]
            return run_command(program, ["neurenix", *(sys.argv[1:] if arguments is None else arguments)])
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


@contextmanager
def _stopping() -> Iterator[None]:
    """While active, signals that would end the program stop a training run first. The handlers are restored
    afterwards."""
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]
        # None means a handler that was not installed from Python: it could not be restored.
        handlers = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) not in (None, signal.SIG_IGN)}

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def stop(number: int, _frame: FrameType | None) -> None:
        if not stop_training(number):
            restore()
            signal.raise_signal(number)

    for number in handlers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()


@contextmanager
def _searching_packages() -> Iterator[None]:
    """While active, runtimes of NPUs are searched in this interpreter's packages first, as ``NPUBackend`` does."""
    given = os.environ.get("RNN_NPU_PATH")
    os.environ["RNN_NPU_PATH"] = os.pathsep.join([*folders(), *([given] if given else [])])
    try:
        yield
    finally:
        if given is None:
            del os.environ["RNN_NPU_PATH"]
        else:
            os.environ["RNN_NPU_PATH"] = given


if __name__ == "__main__":
    sys.exit(main())
