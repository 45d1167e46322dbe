"""The commands `state`, `diff` and `branches`: what an agent knew, and what differs."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli import plain
from perdure.cli.attention import branch_json
from perdure.cli.named_rows import NamedRows
from perdure.cli.session import (
    WHERE_HELP,
    AgentArgument,
    BranchOption,
    opened,
    where,
)
from perdure.cli.story import cause_words, difference
from perdure.cli.terminal import put_document, stderr_console, stdout_console, text
from perdure.cli.words import count, moment
from perdure.model import id_text


def state(
    ctx: typer.Context,
    agent: AgentArgument,
    at: Annotated[
        str | None, typer.Option("--at", metavar="WHERE", help=f"{WHERE_HELP}; default: the head.")
    ] = None,
    branch: BranchOption = "main",
) -> None:
    """Print the state at a commit, as it was written, as JSON; with --json also its place and
    time."""
    with opened(ctx) as session:
        handle = session.agent(agent, branch)
        past = handle.at(branch if at is None else where(handle, at))
        commit = past.commit
        value = plain.to_json(past.plain)
        if session.json:
            plain.put(
                {
                    "agent": agent,
                    "seq": past.seq,
                    "id": id_text(commit.id),
                    "at": plain.time_json(commit.at),
                    "branch": commit.branch,
                    "schema": plain.schema_json(commit.schema_id, commit.schema_version),
                    "mismatches": [str(mismatch) for mismatch in past.mismatches],
                    "state": value,
                }
            )
            return
        notes = stderr_console()
        if notes.is_terminal:
            words = text(f"commit {past.seq}  ", cause_words(commit), f"  {moment(commit.at)}")
            words.stylize("dim")
            notes.print(words)
        put_document(plain.dumps(value, indent=2))
        for mismatch in past.mismatches:
            notes.print(text(("guard does not hold: ", "yellow"), str(mismatch)))


def diff(
    ctx: typer.Context,
    agent: AgentArgument,
    a: Annotated[str, typer.Argument(metavar="A", help=WHERE_HELP + ".")],
    b: Annotated[
        str | None, typer.Argument(metavar="B", help="As A; default: the branch's head.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", "-p", help="Show values in full.")] = False,
    branch: BranchOption = "main",
) -> None:
    """Show the differences between two states, path by path. The exit code is 0 whether or not they
    differ."""
    with opened(ctx) as session:
        handle = session.agent(agent, branch)
        old = where(handle, a)
        new = branch if b is None else where(handle, b)
        changes = handle.diff(old, new)
        if session.json:
            plain.put_all(plain.change_json(change) for change in changes)
            return
        console = stdout_console()
        for change in changes:
            console.print(difference(change, whole=whole or not console.is_terminal))
        if not changes:
            console.print(text(("nothing differs", "dim")))
        elif len(changes) > 1:
            console.print()
            console.print(text((f"{count(len(changes), 'change')}", "dim")))


def branches(
    ctx: typer.Context,
    agent: AgentArgument,
    every: Annotated[bool, typer.Option("--all", "-a", help="Include deleted ones.")] = False,
) -> None:
    """List the agent's branches and checkpoints."""
    with opened(ctx) as session:
        handle = session.agent(agent)
        found = [branch for branch in handle.branches() if every or not branch.deleted]
        points = sorted(handle.checkpoints(), key=lambda point: point.seq)
        if session.json:
            plain.put(
                {
                    "branches": [branch_json(session, branch) for branch in found],
                    "checkpoints": [plain.of(point) for point in points],
                }
            )
            return
        console = stdout_console()
        rows = NamedRows("branch", "head", "last change", "", right=("head",))
        for branch in found:
            last = handle.commit(branch.head, damaged_too=True)
            style = "dim strike" if branch.deleted else "green"
            rows.add(
                text((branch.name, style)),
                str(branch.head),
                moment(last.at),
                cause_words(last),
            )
        console.print(rows.on(console))
        if points:
            console.print()
            rows = NamedRows("checkpoint", "commit", "made", right=("commit",))
            for point in points:
                made = moment(handle.commit(point.seq, damaged_too=True).at)
                rows.add(text((point.name, "green")), str(point.seq), made)
            console.print(rows.on(console))
