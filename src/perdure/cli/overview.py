"""The commands `ls`, `show` and `stats`: which agents there are, their condition, and their
sizes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Any

import typer
from msgspec.structs import asdict
from rich.text import Text

from perdure import Corrupt, UnsupportedFormat
from perdure.agents import Agent
from perdure.cli import plain
from perdure.cli.attention import (
    ALONE,
    branch_json,
    executor_of,
    in_doubt,
    print_ways_out,
    run_status,
    why,
)
from perdure.cli.failures import report
from perdure.cli.named_rows import NamedRows
from perdure.cli.progress import bar
from perdure.cli.session import (
    AgentArgument,
    Session,
    number_option,
    opened,
)
from perdure.cli.story import byline, cause_words, headline, unread
from perdure.cli.terminal import Screen, flush, stdout_console, table, text
from perdure.cli.words import STATUS_STYLES, ago, count, moment, size
from perdure.model import UNFINISHED, id_text
from perdure.types import AgentInfo, Commit, RunInfo

LIMIT = 200
LAST_COMMITS = 5
Unreadable = Corrupt | UnsupportedFormat
RUNS_SHOWN = 10
CAUSE_MAX = 60
"""Of a last change, on a screen."""


def ls(
    ctx: typer.Context,
    prefix: Annotated[
        str, typer.Argument(metavar="PREFIX", help="The beginning of the names.")
    ] = "",
    number: Annotated[int | None, number_option("agents", LIMIT)] = None,
) -> None:
    """List the agents: their size in commits, their last change, and their runs that are not done:
    unfinished ones, those that need a person, and those that failed.

    An agent whose last commit cannot be read is listed as damaged, and the exit code says so."""
    with opened(ctx) as session:
        undone: dict[int | str, list[RunInfo]] = {}
        for run in session.store.runs(status=(*UNFINISHED, "failed")):  # by name: not begun
            undone.setdefault(run.agent_no or run.agent, []).append(run)
        infos = session.all_agents(prefix)
        limit = session.shown_of(number, LIMIT)
        chosen = islice(infos, limit) if limit else infos
        damage: list[Unreadable] = []
        if session.json:
            plain.put_all(
                _agent_json(info, _last(session, info, damage), _undone(undone, info))
                for info in chosen
            )
            tell_of(session, damage)
            return
        console = stdout_console()
        rows = NamedRows("agent", "commits", "changed", "runs not done", "by", right=("commits",))
        with bar() as progress:
            progress.begin("looking at agents", limit or None)
            for shown, info in enumerate(chosen, 1):
                last = _last(session, info, damage)
                cells: list[str | Text] = ["?", text(("damaged", "bold red")), ""]
                if isinstance(last, Commit):
                    statuses = _statuses(session, _undone(undone, info))
                    at = ago(last.at) if console.is_terminal else moment(last.at)
                    cause = cause_words(last)
                    if console.is_terminal:
                        cause.truncate(CAUSE_MAX, overflow="ellipsis")
                    cells = [at, statuses, cause]
                rows.add(text((info.name, "bold")), f"{info.seq:,}", *cells)
                progress.at(shown, limit or None)
        if len(rows):
            console.print(rows.on(console))
            if next(infos, None) is not None:
                said = f"… {count(len(rows), 'agent')}, and there are more: -n 0 for all"
                console.print(text((said, "dim")))
        else:
            console.print("no agents" + (f" that begin with {prefix}" if prefix else ""))
        tell_of(session, damage)


def _last(session: Session, info: AgentInfo, damage: list[Unreadable]) -> Commit | Unreadable:
    """Returns an agent's last commit, or the error why it cannot be read, which is added to
    `damage`."""
    try:
        return session.store.agent_of(info).commit(info.seq)
    except (Corrupt, UnsupportedFormat) as error:
        damage.append(error)
        return error


def tell_of(session: Session, damage: list[Unreadable]) -> None:
    """Reports, after the list, what is wrong with the first damaged agent, and exits with its
    code."""
    if damage:
        flush()
        raise typer.Exit(report(damage[0], as_json=session.json, say=session.say))


def _statuses(session: Session, runs: list[RunInfo]) -> Text:
    """Returns the numbers of an agent's runs by status; one that stands still says so."""
    numbers: dict[tuple[str, str], int] = {}
    for run in runs:
        words, style = run.status.replace("_", " "), STATUS_STYLES[run.status]
        if run.status in ALONE and executor_of(session, run) is None:
            words, style = ALONE[run.status].removeprefix("its "), "yellow"
        numbers[words, style] = numbers.get((words, style), 0) + 1
    made = text()
    for (words, style), number in numbers.items():
        times = f" ×{number}" if number > 1 else ""
        made = text(made, (f"{', ' if made else ''}{words}{times}", style))
    return made


def _undone(undone: dict[int | str, list[RunInfo]], info: AgentInfo) -> list[RunInfo]:
    return undone.get(info.no, []) + undone.get(info.name, [])


def _agent_json(info: AgentInfo, last: Commit | Unreadable, runs: list[RunInfo]) -> dict[str, Any]:
    known = {"agent": info.name, "incarnation": info.incarnation, "commits": info.seq}
    if not isinstance(last, Commit):
        return {**known, "damaged": str(last)}
    return {
        **known,
        "schema": plain.schema_json(last.schema_id, last.schema_version),
        "root": id_text(last.id),
        "changed": plain.time_json(last.at),
        "cause": plain.commit_json(last)["cause"],
        "unfinished_runs": [
            {"id": run.id, "status": run.status} for run in runs if run.status in UNFINISHED
        ],
        "failed_runs": [
            {"id": run.id, "problem": run.problem} for run in runs if run.status == "failed"
        ],
    }


# -- show -----------------------------------------------------------------------------------


def show(ctx: typer.Context, agent: AgentArgument) -> None:
    """One agent at a glance: schema, branches, checkpoints, runs, size, and its last commits."""
    with opened(ctx) as session:
        info = session.find(agent)
        handle = session.agent(agent)
        log = handle.log(newest_first=True, all_branches=True, damaged_too=True)
        newest = list(islice(log, LAST_COMMITS))
        runs = [run for run in session.store.runs(agent) if run.agent_no == info.no]
        if session.json:
            plain.put(_show_json(session, info, handle, newest, runs))
            return
        console = stdout_console()
        _print_head(console, session, info, newest[0], handle.commit(1, damaged_too=True))
        _print_names(console, session, handle)
        _print_runs(console, session, runs)
        console.print()
        console.print(text(("last commits", "dim")))
        heads = heads_of(handle)
        several = len({commit.branch for commit in newest}) > 1
        for commit in newest:
            console.print(headline(commit, heads=heads, show_branch=several))
            console.print(byline(commit))
            if commit.damaged:
                console.print(text("       ", unread(commit)))
        print_ways_out(console, session, runs)


def heads_of(agent: Agent[Any]) -> dict[int, list[str]]:
    """Returns the names that are at each commit."""
    heads: dict[int, list[str]] = {}
    for branch in agent.branches():
        if not branch.deleted:
            heads.setdefault(branch.head, []).append(branch.name)
    for point in agent.checkpoints():
        heads.setdefault(point.seq, []).append(point.name)
    return heads


def _print_head(
    console: Screen, session: Session, info: AgentInfo, last: Commit, first: Commit
) -> None:
    sizes = session.store.sizes(info.name)
    log = sizes.header_bytes + sizes.payload_bytes
    snapshots = sizes.snapshot_bytes + sizes.leaf_bytes
    rows = table("", "")
    rows.show_header = False
    version = f"{last.schema_version[0]}.{last.schema_version[1]}"
    again = f" (incarnation {info.incarnation})" if info.incarnation > 1 else ""
    rows.add_row(text(("agent", "dim")), text((info.name, "bold"), again))
    rows.add_row(text(("schema", "dim")), f"{last.schema_id} {version}")
    rows.add_row(text(("created", "dim")), f"{moment(first.at)} ({ago(first.at)})")
    rows.add_row(text(("changed", "dim")), f"{moment(last.at)} ({ago(last.at)})")
    rows.add_row(
        text(("size", "dim")),
        f"{count(sizes.commits, 'commit')} {size(log)}, "
        f"{count(sizes.snapshots, 'snapshot')} {size(snapshots)}",
    )
    rows.add_row(text(("root", "dim")), id_text(last.id))
    console.print(rows)


def _print_names(console: Screen, session: Session, agent: Agent[Any]) -> None:
    console.print()
    rows = NamedRows("branch", "head", "held by", right=("head",))
    for branch in agent.branches():
        if branch.deleted:
            continue
        held = text()
        if branch.holder:
            alive = session.store.alive(branch.holder)
            words, style = branch.holder, "cyan"
            held = text((words, style) if alive else (f"{words}, which is gone", "yellow"))
        rows.add(text((branch.name, "green")), str(branch.head), held)
    console.print(rows.on(console))
    points = agent.checkpoints()
    if points:
        console.print()
        rows = NamedRows("checkpoint", "commit", "made", right=("commit",))
        for point in sorted(points, key=lambda point: point.seq):
            at = agent.commit(point.seq, damaged_too=True).at
            rows.add(text((point.name, "green")), str(point.seq), moment(at))
        console.print(rows.on(console))


def _print_runs(console: Screen, session: Session, runs: list[RunInfo]) -> None:
    if not runs:
        return
    console.print()
    rows = NamedRows("run", "status", "commits", "why")
    for run in runs[-RUNS_SHOWN:]:
        span = f"{run.started}–{run.ended}" if run.ended else f"{run.started}–"
        rows.add(run.id, run_status(session, run), span, why(run, session))
    console.print(rows.on(console))
    if len(runs) > RUNS_SHOWN:
        console.print(text((f"… and {len(runs) - RUNS_SHOWN} older ones", "dim")))


def _show_json(
    session: Session,
    info: AgentInfo,
    agent: Agent[Any],
    newest: list[Commit],
    runs: list[RunInfo],
) -> dict[str, Any]:
    last = newest[0]
    return {
        "agent": info.name,
        "incarnation": info.incarnation,
        "commits": info.seq,
        "root": id_text(last.id),
        "created": plain.time_json(agent.commit(1, damaged_too=True).at),
        "changed": plain.time_json(last.at),
        "schema": plain.schema_json(last.schema_id, last.schema_version),
        "branches": [branch_json(session, branch) for branch in agent.branches()],
        "checkpoints": [plain.of(point) for point in agent.checkpoints()],
        "runs": [plain.run_json(run) for run in runs],
        "in_doubt": [plain.of(effect) for effect in in_doubt(session, runs, damaged_too=True)],
        "sizes": asdict(session.store.sizes(info.name)),
        "last_commits": [plain.commit_json(commit) for commit in newest],
    }


# -- stats ----------------------------------------------------------------------------------


def stats(
    ctx: typer.Context,
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="Only this one.")] = None,
) -> None:
    """Show sizes and growth, per agent and in total. Snapshots share their leaves, so the store's
    sum can be less than that of its agents."""
    with opened(ctx) as session:
        infos = [session.find(agent)] if agent is not None else list(session.all_agents())
        rows: list[dict[str, Any]] = []
        damage: list[Unreadable] = []
        with bar() as progress:
            progress.begin("measuring", len(infos))
            for number, info in enumerate(infos, 1):
                rows.append(_measure(session, info, damage))
                progress.at(number, len(infos))
        whole = session.store.sizes()
        if session.json:
            said: dict[str, Any] = {"agents": rows}
            if agent is None:
                said["store"] = asdict(whole)
            plain.put(said)
        else:
            _print_stats(rows, asdict(whole) if agent is None else None)
        tell_of(session, damage)


def _measure(session: Session, info: AgentInfo, damage: list[Unreadable]) -> dict[str, Any]:
    """Returns an agent's sizes and growth; for one that cannot be read the sizes, and the error is
    added to `damage`."""
    sizes = session.store.sizes(info.name)
    log = sizes.header_bytes + sizes.payload_bytes
    measured = {
        "agent": info.name,
        "commits": sizes.commits,
        "log_bytes": log,
        "bytes_per_commit": round(log / max(sizes.commits, 1)),
        "snapshots": sizes.snapshots,
        "snapshot_bytes": sizes.snapshot_bytes + sizes.leaf_bytes,
    }
    try:
        return {**measured, **_growth(session.store.agent_of(info), log)}
    except (Corrupt, UnsupportedFormat) as error:
        damage.append(error)
        return {**measured, "damaged": str(error)}


def _growth(agent: Agent[Any], log_bytes: int) -> dict[str, Any]:
    recent = list(_since(agent, datetime.now(UTC) - timedelta(days=1)))
    first, last = agent.commit(1), agent.commit(agent.seq)
    days = max((last.at - first.at).total_seconds() / 86_400, 1.0)
    return {
        "commits_last_day": len(recent),
        "log_bytes_last_day": sum(c.size for c in recent),
        "log_bytes_per_day": round(log_bytes / days),
        "created": plain.time_json(first.at),
        "changed": plain.time_json(last.at),
    }


def _since(agent: Agent[Any], since: datetime) -> Iterator[Commit]:
    for commit in agent.log(newest_first=True, all_branches=True):
        if commit.at < since:
            return
        yield commit


def _print_stats(rows: list[dict[str, Any]], whole: dict[str, Any] | None) -> None:
    console = stdout_console()
    numbers = ("commits", "log", "per commit", "snapshots", "last 24 h", "per day")
    shown = NamedRows("agent", *numbers, right=numbers)
    for row in sorted(rows, key=lambda row: -row["log_bytes"]):
        growth: list[str | Text] = [text(("damaged", "bold red")), "?"]
        if "damaged" not in row:
            growth = ["+" + size(row["log_bytes_last_day"]), size(row["log_bytes_per_day"])]
        shown.add(
            text((row["agent"], "bold")),
            f"{row['commits']:,}",
            size(row["log_bytes"]),
            size(row["bytes_per_commit"]),
            size(row["snapshot_bytes"]),
            *growth,
        )
    console.print(shown.on(console))
    if whole is not None:
        log = whole["header_bytes"] + whole["payload_bytes"]
        snapshots = whole["snapshot_bytes"] + whole["leaf_bytes"]
        console.print()
        console.print(
            text(
                ("in all ", "dim"),
                f"{count(len(rows), 'agent')}, {count(whole['commits'], 'commit')}: log "
                f"{size(log)}, snapshots {size(snapshots)}, files {size(whole['file_bytes'])}",
            )
        )
