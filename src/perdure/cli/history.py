"""The command `log`: an agent's commits, newest first, as people know it from git."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from perdure import Corrupt, UnsupportedFormat
from perdure.agents import Agent
from perdure.cli import plain
from perdure.cli.attention import print_ways_out
from perdure.cli.overview import Unreadable, heads_of, tell_of
from perdure.cli.session import (
    AgentArgument,
    BranchOption,
    Session,
    number_option,
    opened,
)
from perdure.cli.story import Changes, byline, headline, provenance, record_lines
from perdure.cli.terminal import Screen, stdout_console, text
from perdure.cli.words import count
from perdure.types import Commit

LIMIT = 20
CHUNK = 200
"""Commits that are told together: newest first, their states are folded from the oldest."""


def log(
    ctx: typer.Context,
    agent: AgentArgument,
    number: Annotated[int | None, number_option("commits", LIMIT)] = None,
    oldest_first: Annotated[
        bool, typer.Option("--oldest-first", help="From the beginning; -n counts from there.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Show commits of all branches.")
    ] = False,
    patch: Annotated[
        bool,
        typer.Option("-p", "--patch", help="Show every change in full, with ids and executors."),
    ] = False,
    branch: BranchOption = "main",
) -> None:
    """Show the commits of a branch, newest first: when, why, and what each changed.

    Rolled-back commits are included: the log is history. --all shows the log of a deleted agent. A
    damaged commit is shown as far as it can be read, and the exit code says so.
    """
    with opened(ctx) as session:
        info = session.find(agent, deleted_too=every)
        handle = session.agent(agent, branch, deleted_too=every)
        damage: list[Unreadable] = []
        read = handle.log(newest_first=not oldest_first, all_branches=every, damaged_too=True)
        found = _noting(read, handle, damage)
        limit = session.shown_of(number, LIMIT)
        chosen = islice(found, limit) if limit else found
        if session.json:
            plain.put_all(plain.commit_json(commit) for commit in chosen)
            tell_of(session, damage)
            return
        console = stdout_console()
        printer = _Printer(console, handle, patch=patch, show_branch=every)
        shown = 0
        for commit in _told(chosen, printer, reverse=not oldest_first):
            printer.print(commit, first=shown == 0)
            shown += 1
        left = info.seq - shown
        if limit and shown == limit and left > 0 and next(found, None) is not None:
            console.print()
            console.print(text((f"{count(shown, 'commit')}, and there are more: -n 0", "dim")))
        _print_attention(console, session, agent)
        tell_of(session, damage)


def _noting(
    commits: Iterable[Commit], agent: Agent[Any], damage: list[Unreadable]
) -> Iterator[Commit]:
    """Yields the commits as they come; the error of the first damaged one is added to `damage`."""
    for commit in commits:
        if commit.damaged and not damage:
            try:
                agent.commit(commit.seq)
            except (Corrupt, UnsupportedFormat) as error:
                damage.append(error)
        yield commit


def _told(commits: Iterable[Commit], printer: _Printer, *, reverse: bool) -> Iterator[Commit]:
    """Yields the commits as they come; their changes are printed chunk by chunk, each from its
    oldest."""
    source = iter(commits)
    while chunk := list(islice(source, CHUNK)):
        for commit in reversed(chunk) if reverse else chunk:
            printer.tell(commit)
        yield from chunk


def _print_attention(console: Screen, session: Session, agent: str) -> None:
    info = session.store.find(agent)
    runs = session.store.runs(agent, unfinished=True)
    print_ways_out(console, session, [run for run in runs if info and run.agent_no == info.no])


class _Printer:
    def __init__(
        self, console: Screen, agent: Agent[Any], *, patch: bool, show_branch: bool
    ) -> None:
        self._console = console
        self._patch = patch
        self._show_branch = show_branch
        self._heads = heads_of(agent)
        self._changes = Changes(lambda seq: agent.at(seq).plain, whole=patch)
        self._lines: dict[int, list[Any]] = {}

    def tell(self, commit: Commit) -> None:
        lines = record_lines(commit, whole=self._patch)
        self._lines[commit.seq] = [*lines, *self._changes.of(commit)]

    def print(self, commit: Commit, *, first: bool) -> None:
        console = self._console
        if not first and self._patch:
            console.print()
        console.print(headline(commit, heads=self._heads, show_branch=self._show_branch))
        console.print(byline(commit))
        if self._patch:
            console.print(provenance(commit))
        for line in self._lines.pop(commit.seq):
            console.print(text(" " * 7, line))
