"""The command `worker`: runs what `store.start` requested, until it is told to end."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from perdure import Worker
from perdure.cli.awaited_store import Stop, heeding, opened_in_time
from perdure.cli.command_options import Settings
from perdure.cli.failures import UsageError
from perdure.cli.session import Session
from perdure.cli.terminal import elsewhere, flush, outliving_readers, stdout_console, text
from perdure.cli.user_modules import agent_functions, user_function
from perdure.cli.words import STATUS_STYLES
from perdure.types import WorkerEvent

STYLES = {
    **STATUS_STYLES,
    "ready": "green",
    "started": "cyan",
    "resumed": "cyan",
    "draining": "yellow",
    "left": "yellow",
    "lost": "yellow",
    "trouble": "red",
    "unavailable": "bold red",
    "available": "green",
    "stopped": "dim",
}
KIND_WIDTH = max(map(len, STYLES))


def worker(
    ctx: typer.Context,
    functions: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:NAME,NAME",
            help="Agent functions of a module; without names, all of them. Modules are looked "
            "for in the current directory, too.",
        ),
    ],
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="NAME",
            help="Pick up runs of this queue; may be repeated. Default: default.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-l", min=1, help="Number of runs to execute at a time.")
    ] = 8,
    lifespan: Annotated[
        str | None,
        typer.Option(
            "--lifespan",
            metavar="MODULE:NAME",
            help="A function that makes a context manager: entered before the first run, left "
            "after the last. perdure.lifespan() is its value.",
        ),
    ] = None,
    create: Annotated[
        bool,
        typer.Option(
            "--create", help="Create the store if it does not exist; else it waits for one."
        ),
    ] = False,
) -> None:
    """Execute runs that `store.start` requested, resume those that waited, and take over those of
    dead executors.

    Several workers may share a store. One that no program has made yet is waited for.

    SIGTERM or SIGINT (Ctrl-C) ends it: it picks up nothing more, leaves each run at its next step
    for others to resume, and exits with 0. A second one ends it at once, as a crash would.

    It prints a line for each thing that happens; with --json each is one JSON object, and what the
    functions print goes to stderr.
    """
    queues = queue or ["default"]
    if "" in queues:
        raise UsageError("--queue is empty: is a variable unset?")
    with outliving_readers():  # before modules are loaded: their log handlers may keep stderr
        found = [function for words in functions for function in agent_functions(words)]
        life = None if lifespan is None else user_function(lifespan, "--lifespan")
        with (
            _events(ctx) as say,
            heeding() as stop,
            opened_in_time(ctx, say, stop, create=create) as session,
        ):
            if session is None:
                say(WorkerEvent("stopped"))
            else:
                _serve(session, found, queues, limit, life, say, stop)


def _serve(
    session: Session,
    functions: Sequence[Callable[..., Any]],
    queues: Sequence[str],
    limit: int,
    lifespan: Callable[[], Any] | None,
    say: Callable[[WorkerEvent], None],
    stop: Stop,
) -> None:
    """Works on an open store until it is told to end."""

    def on_event(event: WorkerEvent) -> None:
        if event.kind == "ready" and not session.json:
            served = f"queues {', '.join(queues)} · limit {limit} · {session.store.url}"
            event = replace(event, words=f"{event.words} · {served}")
        say(event)

    try:
        made = Worker(session.store, functions, queues, limit, on_event=on_event, lifespan=lifespan)
    except ValueError as error:
        raise UsageError(str(error)) from error
    stop.told = made.stop
    if stop.flag.is_set():  # since the store was opened
        made.stop()
    made.run()


@contextlib.contextmanager
def _events(ctx: typer.Context) -> Iterator[Callable[[WorkerEvent], None]]:
    """Gives a function that prints events on stdout."""
    if not ctx.ensure_object(Settings).json:
        yield _print
        return
    with elsewhere() as say:
        yield lambda event: say(_as_json(event))


def _print(event: WorkerEvent) -> None:
    parts = [event.run, event.words]
    if event.seconds:
        parts.append(f"{event.seconds:.2f} s")
    stdout_console().print(
        text(
            (datetime.now().astimezone().strftime("%H:%M:%S "), "dim"),
            (event.kind.ljust(KIND_WIDTH + 1), STYLES.get(event.kind, "")),
            "  ".join(part for part in parts if part),
        )
    )
    flush()


def _as_json(event: WorkerEvent) -> str:
    said: dict[str, Any] = {"at": datetime.now(UTC).isoformat(), "event": event.kind}
    if event.run:
        said["run"] = event.run
    if event.words:
        said["words"] = event.words
    if event.seconds:
        said["seconds"] = round(event.seconds, 6)
    return json.dumps(said)
