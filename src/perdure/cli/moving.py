"""The commands `fork`, `checkpoint`, `undo`, `redo` and `rollback`: going back and trying another
way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from perdure import Conflict
from perdure.agents import Agent
from perdure.cli import plain
from perdure.cli.attention import holder
from perdure.cli.failures import UsageError
from perdure.cli.session import (
    WHERE_HELP,
    AgentArgument,
    BranchOption,
    CancelRunOption,
    Session,
    at_the_head,
    opened,
    where,
)
from perdure.cli.story import Changes, cause_words
from perdure.cli.terminal import Screen, stdout_console, text
from perdure.cli.words import count
from perdure.errors import Hint
from perdure.system.done_already import DoneAlready
from perdure.types import BranchMove


def fork(
    ctx: typer.Context,
    agent: AgentArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new branch's name.")],
    at: Annotated[
        str | None, typer.Option("--at", metavar="WHERE", help=f"{WHERE_HELP}; default: the head.")
    ] = None,
    branch: BranchOption = "main",
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="RUN", help="With the state before this run began."),
    ] = None,
) -> None:
    """Make a new branch at any commit. It costs one commit, and copies nothing."""
    if at is not None and before is not None:
        raise UsageError("say either --at or --before")
    with DoneAlready() as done, opened(ctx) as session:
        handle = session.agent(agent, branch)
        place = None if at is None else where(handle, at)
        at_the_head(lambda: handle.fork(name, at=place, before=before))
        done.is_now(
            f"branch {name} is made, and could not be read back",
            f"do not make it again; `{session.command('state', agent, branch=name)}` reads it",
        )
        commit = handle.commit(name)
        if session.json:
            plain.put({"branch": name, "from": commit.parent, "commit": plain.commit_json(commit)})
            return
        stdout_console().print(
            text(
                "branch ",
                (name, "bold green"),
                f" begins with the state of commit {commit.parent} (commit {commit.seq})",
            )
        )


def checkpoint(
    ctx: typer.Context,
    agent: AgentArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The recovery point's name.")],
    dependency: Annotated[
        list[str] | None,
        typer.Option("--dependency", metavar="DIST", help="Record this distribution's version."),
    ] = None,
    branch: BranchOption = "main",
) -> None:
    """Name a branch's head as a recovery point, with the hash of its state."""
    with DoneAlready() as done, opened(ctx) as session:
        handle = session.agent(agent, branch)
        point = at_the_head(lambda: handle.checkpoint(name, dependencies=dependency or ()))
        done.is_now(f"checkpoint {name} is made", "do not make it again")
        if session.json:
            plain.put(plain.of(point))
            return
        words = text("checkpoint ", (name, "bold green"), f" at commit {point.seq}, state ")
        stdout_console().print(text(words, (point.state_hash, "dim")))


def undo(
    ctx: typer.Context,
    agent: AgentArgument,
    branch: BranchOption = "main",
    cancel_run: CancelRunOption = False,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="All that this run changed.")
    ] = None,
    turns: Annotated[
        int | None,
        typer.Option("--turns", metavar="N", min=1, help="Only in its last turns, so many."),
    ] = None,
) -> None:
    """Take back the latest change that is not taken back yet, or what a run changed, as a new
    commit.

    Refused when later commits touched the same places. What tools did stays done.
    """
    if turns is not None and run is None:
        raise UsageError("--turns counts those of a run: say --run, too")
    how: dict[str, Any] = {"run": run, "turns": turns, "cancel_run": cancel_run}
    _move(ctx, agent, branch, lambda handle: handle.undo(**how))


def redo(
    ctx: typer.Context,
    agent: AgentArgument,
    branch: BranchOption = "main",
    cancel_run: CancelRunOption = False,
) -> None:
    """Take back the latest undo, as a new commit."""
    _move(ctx, agent, branch, lambda handle: handle.redo(cancel_run=cancel_run))


def rollback(
    ctx: typer.Context,
    agent: AgentArgument,
    to: Annotated[str, typer.Argument(metavar="TO", help=WHERE_HELP + ".")],
    branch: BranchOption = "main",
    cancel_run: CancelRunOption = False,
) -> None:
    """Give a branch the state of an earlier commit, as a new commit: nothing is lost.

    What tools did stays done; those calls are listed.
    """

    def move(handle: Agent[Any]) -> BranchMove:
        return handle.rollback(where(handle, to), cancel_run=cancel_run)

    _move(ctx, agent, branch, move)


def _move(
    ctx: typer.Context, agent: str, branch: str, move: Callable[[Agent[Any]], BranchMove]
) -> None:
    with DoneAlready() as done, opened(ctx) as session:
        handle = session.agent(agent, branch)
        moved = _moved(session, handle, lambda: move(handle))
        done.is_now(
            f"commit {moved.commit.seq} did it, and what it changed could not be read",
            f"do not repeat this; `{session.command('log', agent, branch=branch)}` shows it",
        )
        _say(session, handle, moved)


def _moved(session: Session, agent: Agent[Any], move: Callable[[], BranchMove]) -> BranchMove:
    """Moves the head; a run in the way can only be ended if no living executor has it."""
    try:
        return at_the_head(move)
    except Conflict as error:
        executor = holder(session, agent)
        if error.hint != Hint.RUN_UNFINISHED or executor is None:
            raise
        raise Conflict(
            f"{error.problem}: executor {executor} is running it",
            target=error.target,
            hint=Hint.BRANCH_HELD,
        ) from error


def _say(session: Session, agent: Agent[Any], moved: BranchMove) -> None:
    commit = moved.commit
    if session.json:
        calls = [plain.to_json(dict(call)) for call in moved.tool_calls]
        untold = {"untold": True} if moved.untold else {}
        plain.put({"commit": plain.commit_json(commit), "tool_calls": calls, **untold})
        return
    console = stdout_console()
    console.print(
        text((f"{commit.seq}", "bold yellow"), "  ", cause_words(commit), f"  on {commit.branch}")
    )
    for line in Changes(lambda seq: agent.at(seq).plain, whole=False).of(commit):
        console.print(text("   ", line))
    _warn_of_calls(console, moved)


def _warn_of_calls(console: Screen, moved: BranchMove) -> None:
    if moved.untold:
        words = (
            "some of these commits are damaged, or were removed by retention: what they did to the "
            "world is not known"
        )
        console.print(text(("! ", "bold yellow"), words))
    if not moved.tool_calls:
        return
    previews: dict[tuple[str, str], str] = {}
    attempts: dict[tuple[str, str], int] = {}
    for call in moved.tool_calls:
        key = str(call.get("run")), str(call.get("place"))
        previews[key] = str(call.get("preview", ""))
        attempts[key] = max(attempts.get(key, 1), call.get("attempt", 1))
    number = count(len(previews), "tool call")
    console.print(
        text(("! ", "bold yellow"), f"this takes back no tool call in the world; {number}:")
    )
    for (run, place), preview in previews.items():
        again = f"  {attempts[run, place]} attempts" if attempts[run, place] > 1 else ""
        console.print(text("    ", (place, "bold"), f"({preview}){again}"))
