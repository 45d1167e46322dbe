"""The command `trim`: removes the old history of living agents, and frees its room."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

import typer

from perdure import Conflict, Corrupt, PerdureError, UnsupportedFormat
from perdure.adapters import Where, is_thread
from perdure.agents import Agent
from perdure.cli import plain
from perdure.cli.failures import UsageError, code_of
from perdure.cli.naming import age
from perdure.cli.progress import bar
from perdure.cli.session import (
    WHERE_HELP,
    Session,
    ShrinkOption,
    opened,
    where,
)
from perdure.cli.session import shrink as shrink_store
from perdure.cli.terminal import stdout_console, text
from perdure.cli.words import count, size
from perdure.types import AgentInfo, Trimmed

KEPT = (Conflict, Corrupt, UnsupportedFormat)
"""Why an agent is not trimmed: that is no reason not to trim the others."""


def trim(
    ctx: typer.Context,
    agent: Annotated[
        str | None,
        typer.Argument(metavar="AGENT", help="Only this one. Default: all, with --older-than."),
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="WHERE", help=f"Before {WHERE_HELP}.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="AGE", help="History older than this: 90s, 12h, 30d, 8w."
        ),
    ] = None,
    shrink: ShrinkOption = False,
) -> None:
    """Permanently remove what agents did before a commit or longer ago: changes, records, states.

    The log says what was removed, and still proves itself: the time and reason of each commit stay.
    So do the states of branches, checkpoints and the latest checkpoints of threads, the arguments
    and results of runs, and calls in doubt. An unfinished run keeps what it needs. It may be killed
    at any moment: run it again. The store reuses the room. An agent that cannot be trimmed is
    named, and the others are trimmed.
    """
    with opened(ctx) as session:
        chosen = _chosen(agent, before, older_than)
        done: list[Trimmed] = []
        kept: list[tuple[str, PerdureError]] = []
        with bar() as progress:
            infos = list(_agents(session, agent))
            progress.begin("removing old history", len(infos))
            for number, info in enumerate(infos, 1):
                try:
                    done += _trim(session, info, chosen)
                except KEPT as error:
                    if agent is not None:
                        raise
                    kept.append((info.name, error))
                progress.at(number, len(infos))
            if shrink:
                progress.begin("rewriting the store")
                emptied = count(sum(one.removed for one in done), "commit")
                shrink_store(session, f"{emptied} emptied")
        _say(session, done, kept, shrink=shrink)
        unreadable = [error for _, error in kept if not isinstance(error, Conflict)]
        if unreadable:
            raise typer.Exit(code_of(unreadable[0]))


def _chosen(agent: str | None, before: str | None, older_than: str | None) -> str | timedelta:
    if (before is None) == (older_than is None):
        raise UsageError("give either --before WHERE or --older-than AGE")
    if before is not None and agent is None:
        raise UsageError("--before WHERE is a place in one agent's log: name the agent")
    return before if before is not None else age("--older-than", older_than) or timedelta(0)


def _agents(session: Session, name: str | None) -> Iterator[AgentInfo]:
    if name is None:
        yield from session.all_agents()
    else:
        yield session.find(name)


def _trim(session: Session, info: AgentInfo, chosen: str | timedelta) -> list[Trimmed]:
    handle = session.store.agent_of(info)
    place: Where | timedelta = where(handle, chosen) if isinstance(chosen, str) else chosen
    if not _is_thread(handle):
        return [handle.trim(place)]
    try:
        from perdure.integrations.langgraph import PerdureSaver
    except ImportError as error:
        raise Conflict(
            "is a LangGraph thread, and LangGraph is not installed here",
            target=f"agent {info.name!r}",
            hint="pip install 'perdure[langgraph]'",
        ) from error
    return PerdureSaver(session.store).trim(place, [info.name])


def _is_thread(handle: Agent[Any]) -> bool:
    commits = handle.log(all_branches=True, damaged_too=True)
    return is_thread(next((one.schema_id for one in commits if one.schema_id), ""))


def _say(
    session: Session, done: list[Trimmed], kept: list[tuple[str, PerdureError]], *, shrink: bool
) -> None:
    went = [one for one in done if one.removed]
    if session.json:
        plain.put(
            {
                "trimmed": [plain.of(one) for one in went],
                "kept": [{"agent": name, "why": str(error)} for name, error in kept],
                "shrunk": shrink,
            }
        )
        return
    console = stdout_console()
    if not went:
        console.print(text(("✓ ", "bold green"), "nothing to remove"))
    for one in went:
        console.print(
            text(
                ("✓ ", "bold green"),
                (one.agent, "bold"),
                f"  {count(one.removed, 'commit')} emptied, {size(one.freed)} free; "
                f"whole from commit {one.before} on, {count(one.bases, 'earlier state')} kept",
            )
        )
    for name, error in kept:
        console.print(text(("  kept ", "yellow"), (name, "bold"), f": {error.problem}"))
        if not isinstance(error, Conflict):
            console.print(text("    → ", session.say(error.hint)))
