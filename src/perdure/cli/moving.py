"""`fork`, `checkpoint`, `undo`, `redo`, `rollback`: going back and trying another way."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from perdure import Moved
from perdure.agent import Agent
from perdure.cli import plain
from perdure.cli.session import (
    WHERE_HELP,
    AgentArgument,
    BranchOption,
    CancelRunOption,
    JsonOption,
    Session,
    StoreOption,
    opened,
    where,
)  # fmt: skip
from perdure.cli.story import Changes, cause_words
from perdure.cli.words import clean, count, stdout_console, text


def fork(
    ctx: typer.Context,
    agent: AgentArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the new branch.")],
    at: Annotated[
        str | None, typer.Option("--at", metavar="WHERE", help=f"{WHERE_HELP}; default: the head.")
    ] = None,
    branch: BranchOption = "main",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a new branch at any commit. It costs one commit, and copies nothing."""
    with opened(ctx) as session:
        handle = session.agent(agent, branch)
        made = handle.fork(name, at=None if at is None else where(handle, at))
        commit = handle.commit(made.seq)
        if session.json:
            plain.put({"branch": name, "from": commit.parent, "commit": plain.commit_json(commit)})
            return
        stdout_console().print(
            text(
                "branch ", (clean(name), "bold green"),
                f" begins with the state of commit {commit.parent} (commit {commit.seq})",
            )
        )  # fmt: skip


def checkpoint(
    ctx: typer.Context,
    agent: AgentArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the recovery point.")],
    dependency: Annotated[
        list[str] | None,
        typer.Option("--dependency", metavar="DIST", help="Keep this distribution's version."),
    ] = None,
    branch: BranchOption = "main",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Name a branch's head as a recovery point, with the hash of its state."""
    with opened(ctx) as session:
        handle = session.agent(agent, branch)
        point = handle.checkpoint(name, dependencies=dependency or ())
        if session.json:
            plain.put(plain.of(point))
            return
        words = text("checkpoint ", (clean(name), "bold green"), f" at commit {point.seq}, state ")
        stdout_console().print(text(words, (point.state_hash, "dim")))


def undo(
    ctx: typer.Context, agent: AgentArgument, branch: BranchOption = "main",
    cancel_run: CancelRunOption = False, store: StoreOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Take back the latest change that is not taken back yet, as a new commit.

    Refused when later commits touched the same places. What tools did stays done.
    """
    with opened(ctx) as session:
        handle = session.agent(agent, branch)
        _say(session, handle, handle.undo(cancel_run=cancel_run))


def redo(
    ctx: typer.Context, agent: AgentArgument, branch: BranchOption = "main",
    cancel_run: CancelRunOption = False, store: StoreOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Take back the latest undo, as a new commit."""
    with opened(ctx) as session:
        handle = session.agent(agent, branch)
        _say(session, handle, handle.redo(cancel_run=cancel_run))


def rollback(
    ctx: typer.Context,
    agent: AgentArgument,
    to: Annotated[str, typer.Argument(metavar="TO", help=WHERE_HELP + ".")],
    branch: BranchOption = "main",
    cancel_run: CancelRunOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a branch the state of an earlier commit, as a new commit: nothing is lost.

    What tools did stays done; those calls are listed.
    """
    with opened(ctx) as session:
        handle = session.agent(agent, branch)
        _say(session, handle, handle.rollback(where(handle, to), cancel_run=cancel_run))


def _say(session: Session, agent: Agent[Any], moved: Moved) -> None:
    commit = moved.commit
    if session.json:
        calls = [plain.to_json(dict(call)) for call in moved.tool_calls]
        plain.put({"commit": plain.commit_json(commit), "tool_calls": calls})
        return
    console = stdout_console()
    console.print(
        text((f"{commit.seq}", "bold yellow"), "  ", cause_words(commit), f"  on {commit.branch}")
    )
    for line in Changes(lambda seq: agent.at(seq).plain, whole=False).of(commit):
        console.print(text("   ", line))
    _warn_of_calls(console, moved)


def _warn_of_calls(console: Console, moved: Moved) -> None:
    if not moved.tool_calls:
        return
    number = count(len(moved.tool_calls), "tool call")
    console.print(
        text(("! ", "bold yellow"), f"this takes back no tool call in the world; {number}:")
    )
    for call in moved.tool_calls:
        place, preview = clean(str(call.get("place"))), clean(str(call.get("preview", "")))
        console.print(text("    ", (place, "bold"), f"({preview})"))
