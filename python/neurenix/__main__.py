"""``python -m neurenix``: the command."""

from __future__ import annotations

import sys

from ._engine import run_command


def main(arguments: list[str] | None = None) -> int:
    """Runs the command, with the program's arguments unless others are given; the result is the exit code."""
    try:
        return run_command(["neurenix", *(sys.argv[1:] if arguments is None else arguments)])
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
