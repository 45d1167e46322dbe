"""The command `backup`: a verified copy of the store, while programs use it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from perdure.backing_up import backup as back_up
from perdure.cli import plain
from perdure.cli.command_options import Settings
from perdure.cli.failures import UsageError
from perdure.cli.progress import bar
from perdure.cli.session import store_url
from perdure.cli.terminal import stdout_console, text
from perdure.cli.words import count, size
from perdure.system.urls import shown


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Context manager in which what ends a process by default unwinds it first: a backup that is
    interrupted leaves no file."""
    numbers = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in numbers:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def backup(
    ctx: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The copy; nothing may be there yet.")
    ],
) -> None:
    """Copy a SQLite store into a file, while programs use it, and verify the copy.

    It is the store of one moment, in whole: every page and every log in it is checked before it
    gets its name, so a backup that fails or is interrupted leaves no file. Put it in the place of
    the store to go back to it, or look into it with --store FILE.

    A store in PostgreSQL is backed up by its server (pg_dump, pg_basebackup), or copied into a file
    by `perdure replicate`.
    """
    url = store_url(ctx)
    settings = ctx.ensure_object(Settings)
    settings.proving = True
    with bar() as progress:
        begun: list[str] = []

        def at(part: str, done: int, of: int) -> None:
            if begun[-1:] != [part]:
                begun.append(part)
                verb = "copying" if part == "pages" else "verifying"
                progress.begin(f"{verb} {part}", of)
            progress.at(done, of)

        try:
            with _ended_by_signals():
                made = back_up(url, file, progress=at)
        except ValueError as error:
            raise UsageError(str(error)) from error
    if settings.json:
        plain.put(
            {
                "ok": True,
                "store": shown(url),
                "file": made.path,
                "bytes": made.size_bytes,
                "agents": made.agents,
                "commits": made.commits,
            }
        )
        return
    what = [count(made.agents, "agent"), count(made.commits, "commit"), size(made.size_bytes)]
    stdout_console().print(text(("✓ ", "bold green"), f"{made.path}: {', '.join(what)}; verified"))
