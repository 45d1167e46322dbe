"""The command line `perdure`: the operators' view of a store. It talks to the store only."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """The entry point of the installed command."""
    try:
        _main()
    except KeyboardInterrupt:  # while it starts, or ends: a command catches it by itself
        sys.exit(130)  # as it does: the module that names this may be what was interrupted


def _main() -> None:
    from perdure.cli.app import app  # typer and all commands: only where they are needed
    from perdure.cli.terminal import guard_python

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale without "→" gets an escape, no crash
            stream.reconfigure(errors="backslashreplace")
    guard_python()
    app(prog_name="perdure")
