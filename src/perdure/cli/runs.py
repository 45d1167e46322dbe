"""The commands `runs` and `why`: which runs there are, and why one of them is not moving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

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
from perdure.cli.terminal import Screen, stdout_console, table, text
from perdure.cli.timeline import why_json
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
        limit = session.shown_of(number, LIMIT)
        found = chosen_by.find(session, limit=limit + 1 if limit else 0)
        chosen = found[-limit:] if limit else found
        if newest_first:
            chosen = chosen[::-1]
        if session.json:
            plain.put_all(run_json(session, run) for run in chosen)
            return
        console = stdout_console()
        if not chosen:
            console.print("no such runs" if chosen_by.narrow else "no runs")
            return
        _print_list(console, session, chosen)
        if len(found) > len(chosen):
            console.print(text(("… and older ones; -n 0 shows all", "dim")))
        print_ways_out(console, session, chosen)


def _print_list(console: Screen, session: Session, chosen: Sequence[RunInfo]) -> None:
    branches = any(run.branch != "main" for run in chosen)
    queues = any(run.queue != "default" for run in chosen)
    versions = any(run.version for run in chosen)
    more = [*(["branch"] * branches), *(["queue"] * queues), *(["version"] * versions)]
    heads = ["run", "status", *more, "begun", "why"]
    rows = table(*heads)
    widest = max(len(run.id) for run in chosen)
    if widest <= console.width // 2:  # an id in two pieces cannot be pasted
        rows.columns[0].no_wrap = True
    for run in chosen:
        cells: list[Any] = [text((run.id, "bold")), run_status(session, run)]
        cells += [run.branch] * branches + [run.queue] * queues + [run.version] * versions
        rows.add_row(*cells, begun(run, short=console.is_terminal), one_line(run, session))
    console.print(rows)


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
