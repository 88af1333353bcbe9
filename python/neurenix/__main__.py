"""``python -m neurenix``: the command, as far as Python has it."""

from __future__ import annotations

import argparse
import sys


def _devices() -> None:
    from .hardware import report

    for entry in report():
        if entry["found"]:
            memory = "" if entry["memory"] is None else f", {entry['memory'] / 2**30:.1f} GiB"
            print(f"{entry['device']:<12} {entry['model']} ({entry['nature']}{memory})")
        else:
            print(f"{entry['device']:<12} not found: {entry['reason']}")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command."""
    from ._engine import __version__

    parser = argparse.ArgumentParser("neurenix", description="Neural networks on whatever accelerator you have.")
    parser.add_argument("--version", action="version", version=f"neurenix {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("devices", help="the devices of this machine, and why others are missing")
    parser.parse_args(arguments)
    _devices()
    return 0


if __name__ == "__main__":
    sys.exit(main())
