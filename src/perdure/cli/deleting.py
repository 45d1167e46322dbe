"""The command `delete`: deletes agents, with their runs and what was requested of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from perdure.cli import plain
from perdure.cli.attention import BLOCKS_MAX
from perdure.cli.failures import UsageError
from perdure.cli.naming import YesOption, age
from perdure.cli.progress import bar
from perdure.cli.session import Session, opened
from perdure.cli.terminal import stderr_console, stdout_console, text
from perdure.cli.words import count
from perdure.system.done_already import DoneAlready


def delete(
    ctx: typer.Context,
    agent: Annotated[
        str | None, typer.Argument(metavar="AGENT", help="The agent; or --prefix.")
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", metavar="TEXT", help="All agents whose names begin with this."),
    ] = None,
    cancel_runs: Annotated[
        bool,
        typer.Option(
            "--cancel-runs",
            help="End runs that are executed, and wait: they leave at their next step.",
        ),
    ] = False,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout", metavar="AGE", help="With --cancel-runs: wait no longer, e.g. 90s."
        ),
    ] = None,
    purge: Annotated[
        bool,
        typer.Option("--purge", help="Permanently remove what they leave, as `purge` does."),
    ] = False,
    yes: YesOption = False,
) -> None:
    """Delete an agent, or all whose names begin alike, with their runs, their messages, and what
    was requested of them and has not begun.

    Each is deleted in whole or not at all; one that an executor has keeps none of the others. A log
    stays, for an audit, unless you say --purge, or `perdure purge AGENT` later. The name may be
    used again.
    """
    if (agent is None) == (prefix is None):
        raise UsageError("give either AGENT, or --prefix TEXT")
    if prefix == "":
        raise UsageError("--prefix is empty: that would delete all agents; is a variable unset?")
    if timeout is not None and not cancel_runs:
        raise UsageError("--timeout is for --cancel-runs: without, this does not wait")
    longest = age("--timeout", timeout)
    with DoneAlready() as done, opened(ctx) as session:
        names = _meant(session, agent, prefix)
        if names and not yes:
            _agree(session, names, purge=purge)
        with bar() as progress:
            progress.begin("deleting")
            deleted = session.store.delete(
                agent, prefix=prefix, purge=purge, cancel_runs=cancel_runs, timeout=longest
            )
            words = deleted[0] if len(deleted) == 1 else count(len(deleted), "agent")
            rest = session.command("purge")
            done.is_now(f"{words} deleted", f"`{rest}` removes what is left, if that is to go")
            if purge:
                progress.begin("removing what they left")
                session.store.purge()
        if session.json:
            plain.put({"deleted": deleted, "purged": purge})
            return
        console = stdout_console()
        console.print(text(("✓ ", "bold green"), (words, "bold"), " deleted"))
        if not purge:
            one = deleted[0] if len(deleted) == 1 else "AGENT"
            command = session.command("purge", one)
            console.print(text((f"  the log stays, for an audit: `{command}` removes it", "dim")))


def _meant(session: Session, agent: str | None, prefix: str | None) -> list[str]:
    """Returns the names of the agents that are meant, of those included that are only requested.

    Raises:
        NotFound: there is none of that name; the error names similar ones.
    """
    if agent is not None:
        session.find_with_runs(agent)
        return [agent]
    assert prefix is not None
    names = {info.name for info in session.all_agents(prefix)}
    names |= {run.agent for run in session.store.runs(status=["pending"])}
    return sorted(name for name in names if name.startswith(prefix))


def _agree(session: Session, names: Sequence[str], *, purge: bool) -> None:
    """Asks a person.

    Raises:
        UsageError: nobody is there to agree. typer.Exit: they do not.
    """
    many = count(len(names), "agent")
    if session.json or not sys.stdin.isatty():
        raise UsageError(f"that would delete {many}: pass --yes to do it without asking")
    console = stderr_console()
    for name in names[:BLOCKS_MAX]:
        runs = count(len(session.store.runs(name, unfinished=True)), "unfinished run")
        console.print(text(f"  {name}  ", (runs, "dim")))
    if len(names) > BLOCKS_MAX:
        console.print(f"  … and {len(names) - BLOCKS_MAX:,} more")
    what = "Delete and permanently remove" if purge else "Delete"
    if not typer.confirm(
        f"{what} {'this agent' if len(names) == 1 else f'these {many}'}?", err=True
    ):
        raise typer.Exit(0)
