"""The commands `runs` and `why`: which runs there are, and why one of them is not moving."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer
from msgspec import Struct
from msgspec.structs import replace
from rich.console import Group, RenderableType

from perdure.cli import plain
from perdure.cli.attention import (
    executor_of,
    print_explanation,
    print_ways_out,
    run_status,
)
from perdure.cli.attention import (
    why as one_line,
)
from perdure.cli.failures import UsageError
from perdure.cli.named_rows import NamedRows
from perdure.cli.naming import (
    AgentOption,
    Filter,
    FunctionOption,
    NewerOption,
    OlderOption,
    QueueOption,
    RunArgument,
    StatusOption,
    begun,
    find_run,
)
from perdure.cli.session import Session, number_option, opened
from perdure.cli.terminal import Screen, stdout_console, text
from perdure.cli.timeline import why_json
from perdure.cli.watching import watch
from perdure.cli.words import ago, moment
from perdure.model import UNFINISHED
from perdure.types import RunInfo
from perdure.visible import visible

LIMIT = 50


def runs(
    ctx: typer.Context,
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="Only its runs.")] = None,
    status: StatusOption = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", "-u", help="Only unfinished runs.")
    ] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Same as --status failed.")] = False,
    of_agent: AgentOption = None,
    function: FunctionOption = None,
    queue: QueueOption = None,
    older: OlderOption = None,
    newer: NewerOption = None,
    number: Annotated[int | None, number_option("the newest runs", LIMIT, "--limit")] = None,
    newest_first: Annotated[
        bool, typer.Option("--newest-first", "-r", help="Show the newest runs first.")
    ] = False,
    parent: Annotated[
        str | None,
        typer.Option("--parent", "-p", metavar="RUN", help="Only runs that this run started."),
    ] = None,
    watched: Annotated[
        bool,
        typer.Option(
            "--watch",
            "-w",
            help="Show them again when one changes, until Ctrl-C; with --parent until RUN and "
            "all that it started have ended. In a pipe: a line for each change.",
        ),
    ] = False,
) -> None:
    """List the runs of one agent or of all, oldest first, including requested ones that have not
    begun; those that need a person stand out."""
    if agent is not None and of_agent not in (None, agent):
        given = visible(f"{agent} or --agent {of_agent}")
        raise UsageError(f"one agent, please: {given}")
    wanted = [*(status or ()), *(["failed"] if failed else [])]
    chosen_by = Filter.of(
        agent or of_agent, wanted, function, queue, older, newer, unfinished=unfinished
    )
    with opened(ctx) as session:
        if parent is not None:
            chosen_by = replace(chosen_by, parent=find_run(session, parent).id)
        listing = Listing(session, chosen_by, session.shown_of(number, LIMIT), newest_first)
        if watched:
            listing.watch()
        elif session.json:
            plain.put_all(run_json(session, run) for run in listing.look())
        else:
            listing.print()


class Listing(Struct):
    """Runs of a store, as a list of at most so many; 0: all."""

    session: Session
    chosen_by: Filter
    limit: int
    newest_first: bool
    has_more: bool = False

    def look(self) -> list[RunInfo]:
        """Returns the runs as they are now."""
        limit = self.limit
        found = self.chosen_by.find(self.session, limit=limit + 1 if limit else 0)
        chosen = found[-limit:] if limit else found
        self.has_more = len(found) > len(chosen)
        return chosen[::-1] if self.newest_first else chosen

    def print(self) -> None:
        chosen, console = self.look(), stdout_console()
        console.print(self.shown(console, chosen))
        if chosen:
            print_ways_out(console, self.session, chosen)

    def shown(
        self, console: Screen, chosen: Sequence[RunInfo], *, drawn: bool = False
    ) -> RenderableType:
        """Returns the list as people see it; `drawn`: as `NamedRows.on` has it."""
        if not chosen:
            return text("no such runs" if self.chosen_by.narrow else "no runs")
        rows = _rows(self.session, chosen, short=console.is_terminal).on(console, drawn=drawn)
        if not self.has_more:
            return rows
        return Group(rows, text(("… and older ones; -n 0 shows all", "dim")))

    def watch(self) -> None:
        console = stdout_console()
        drawn = console.is_terminal and not self.session.json

        def tell(run: RunInfo) -> None:
            if self.session.json:
                plain.put(run_json(self.session, run))
                return
            why = one_line(run, self.session)
            status = run_status(self.session, run)
            line = text(moment(run.changed_at), "  ", (run.id, "bold"), "  ", status)
            console.print(text(line, f"  {why}" if why else ""))

        whole = partial(self.shown, console, drawn=True)
        watch(console if drawn else None, self.look, whole, tell, self._is_over)

    def _is_over(self) -> bool:
        """Returns True if there is a parent, and nothing of it can change any more."""
        parent = self.chosen_by.parent
        if parent is None or self.session.store.handle(parent).info.status in UNFINISHED:
            return False
        return not self.session.store.runs(parent=parent, unfinished=True, limit=1)


def _rows(session: Session, chosen: Sequence[RunInfo], *, short: bool) -> NamedRows:
    branches = any(run.branch != "main" for run in chosen)
    queues = any(run.queue != "default" for run in chosen)
    versions = any(run.version for run in chosen)
    more = [*(["branch"] * branches), *(["queue"] * queues), *(["version"] * versions)]
    rows = NamedRows("run", "status", *more, "begun", "why")
    for run in chosen:
        cells: list[Any] = [text((run.id, "bold")), run_status(session, run)]
        cells += [run.branch] * branches + [run.queue] * queues + [run.version] * versions
        rows.add(*cells, begun(run, short=short), one_line(run, session))
    return rows


def run_json(session: Session, run: RunInfo) -> dict[str, Any]:
    """Returns a run as a JSON object; for an unfinished one with its executor."""
    made = plain.run_json(run)
    if run.status in UNFINISHED:
        made["executor"] = executor_of(session, run)
    return made


# -- why ------------------------------------------------------------------------------------


def why(ctx: typer.Context, run: RunArgument) -> None:
    """Why is it not moving? One answer for any run, and what to do about it."""
    with opened(ctx) as session:
        info = find_run(session, run)
        said = session.store.handle(info.id).why()
        if session.json:
            plain.put(why_json(said))
            return
        console = stdout_console()
        since = ""
        if said.since is not None:
            since = f"  since {moment(said.since)} ({ago(said.since)})"
        console.print(text((info.id, "bold"), ": ", run_status(session, info), (since, "dim")))
        print_explanation(console, session, said)
