"""`runs`, `run show`, `effects`, `settle`, `cancel`: runs, and what they did to the world."""

from __future__ import annotations

import getpass
import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from perdure import Conflict, EffectInfo, NotFound, RunInfo
from perdure.cli import plain
from perdure.cli.attention import (
    UNFINISHED,
    effect_state,
    effect_style,
    executor_of,
    in_doubt,
    print_ways_out,
    run_status,
    why,
)  # fmt: skip
from perdure.cli.failures import HELD, UsageError
from perdure.cli.session import (
    AgentArgument,
    JsonOption,
    Session,
    StoreOption,
    at_the_head,
    close_names,
    opened,
)  # fmt: skip
from perdure.cli.words import clean, cut, full, moment, short, stdout_console, table, text

LIMIT = 50
RUNS_NAMED = 5
PREVIEW_MIN = 24
RESULT_WIDTH = 32
GAP = 2
RunArgument = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Its id, as `runs` says it; or an agent's name, if its run "
                   "is the only one that can be meant."),
]  # fmt: skip
WholeOption = Annotated[
    bool, typer.Option("--whole", "-p", help="Arguments and results at full length.")
]


def runs(
    ctx: typer.Context,
    agent: Annotated[str | None, typer.Argument(metavar="AGENT", help="Only its runs.")] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", "-u", help="Only those that are not at their end.")
    ] = False,
    number: Annotated[
        int | None,
        typer.Option("-n", "--number", min=0, help="How many of the newest; 0: all. "
                     f"Default: {LIMIT} for people, all with --json."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """The runs of one agent or of all, oldest first; those that need a person stand out."""
    with opened(ctx) as session:
        if agent is not None:
            session.find(agent, deleted_too=True)
        found = session.store.runs(agent, unfinished=unfinished)
        limit = number if number is not None else (0 if session.json else LIMIT)
        chosen = found[-limit:] if limit else found
        if session.json:
            plain.put_all(_run_json(session, run) for run in chosen)
            return
        console = stdout_console()
        if not chosen:
            console.print("no runs")
            return
        rows = table("run", "status", "branch", "started", "commits", "why")
        for run in chosen:
            span = f"{run.started}–{run.ended}" if run.ended else f"{run.started}–"
            rows.add_row(
                text((clean(run.id), "bold")), run_status(session, run), clean(run.branch),
                _started(session, run), span, why(run, session),
            )  # fmt: skip
        console.print(rows)
        if len(found) > len(chosen):
            older = len(found) - len(chosen)
            console.print(text((f"… and {older} older ones; -n 0 shows all", "dim")))
        print_ways_out(console, session, chosen)


def _run_json(session: Session, run: RunInfo) -> dict[str, Any]:
    made = plain.run_json(run)
    if run.status in UNFINISHED:
        made["executor"] = executor_of(session, run)
    return made


def _started(session: Session, run: RunInfo) -> str:
    info = session.store.find(run.agent)
    if info is None or info.no != run.agent_no:
        return "earlier incarnation"
    return moment(session.store.agent_of(info).commit(run.started).at)


def find_run(session: Session, run_id: str) -> RunInfo:
    """The run of an id; or of an agent's name, where it has one unfinished run, or one at all.

    Raises:
        NotFound: with ids that are like it.
        Conflict: an agent's name, and several runs that can be meant.
    """
    found = session.store.runs()
    for run in found:
        if run.id == run_id:
            return run
    of_agent = [run for run in found if run.agent == run_id]
    meant = [run for run in of_agent if run.status in UNFINISHED] or of_agent
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise Conflict(
            f"has {len(meant)} runs that can be meant", target=f"agent {run_id!r}",
            hint="say which: " + ", ".join(run.id for run in meant[-RUNS_NAMED:]),
        )  # fmt: skip
    close = close_names(run_id, [run.id for run in found])
    hint = f"`{session.command('runs')}` lists them"
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    raise NotFound("there is no such run", target=f"run {run_id}", hint=hint)


def show(
    ctx: typer.Context, run: RunArgument, whole: WholeOption = False, store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """One run: its status, its tool calls, and what it gave; if it stands still, the way out."""
    with opened(ctx) as session:
        info = find_run(session, run)
        effects = session.store.handle(info.id).effects()
        executor = executor_of(session, info)
        if session.json:
            calls = [_effect_json(effect, executor) for effect in effects]
            plain.put({**_run_json(session, info), "effects": calls})
            return
        console = stdout_console()
        _print_run(console, session, info, executor)
        console.print()
        _print_effects(console, [(effect, executor) for effect in effects], whole=whole)
        print_ways_out(console, session, [info])


def _print_run(console: Console, session: Session, run: RunInfo, executor: str | None) -> None:
    rows = table("", "")
    rows.show_header = False
    rows.add_row(text(("run", "dim")), text((clean(run.id), "bold")))
    rows.add_row(text(("status", "dim")), run_status(session, run))
    if executor:
        rows.add_row(text(("executor", "dim")), clean(executor))
    rows.add_row(text(("agent", "dim")), f"{clean(run.agent)}, branch {clean(run.branch)}")
    rows.add_row(text(("function", "dim")), f"{clean(run.function)}, key {clean(run.key)}")
    span = f"from commit {run.started}" + (f" to {run.ended}" if run.ended else "")
    rows.add_row(text(("started", "dim")), f"{_started(session, run)}, {span}")
    if run.status == "done":
        rows.add_row(text(("result", "dim")), full(run.result))
    elif run.problem and run.status in ("failed", "cancelled"):
        rows.add_row(text(("why", "dim")), clean(run.problem))
    console.print(rows)


def _print_effects(
    console: Console, effects: list[tuple[EffectInfo, str | None]], *, whole: bool
) -> None:
    if not effects:
        console.print(text(("no tool calls", "dim")))
        return
    rows = table("commit", "tool call", "state", "result", right=("commit",))
    lines: list[tuple[EffectInfo, Text, str]] = []
    for effect, executor in effects:
        words = effect_state(effect, executor)
        times = f" after {effect.attempts} attempts" if effect.attempts > 1 else ""
        result = (full if whole else short)(effect.result) if words == "done" else ""
        lines.append((effect, text((words, effect_style(words)), times), result))
    limit = None
    if console.is_terminal and not whole:  # one line per call
        lines = [(effect, state, cut(result, RESULT_WIDTH)) for effect, state, result in lines]
        taken = len("commit") + max(len(state) for _, state, _ in lines)
        taken += max(len(result) for _, _, result in lines) + 4 * GAP
        limit = max(console.width - taken, PREVIEW_MIN)
    for effect, state, result in lines:
        call = text((clean(effect.place), "bold"), f"({clean(effect.preview)})")
        if limit is not None:
            call.truncate(limit, overflow="ellipsis")
        rows.add_row(str(effect.seq), call, state, result)
    console.print(rows)


def _effect_json(effect: EffectInfo, executor: str | None) -> dict[str, Any]:
    return {**plain.of(effect), "state": effect_state(effect, executor)}


def effects(
    ctx: typer.Context,
    agent: AgentArgument,
    number: Annotated[
        int | None,
        typer.Option("-n", "--number", min=0, help="How many of the newest; 0: all. "
                     f"Default: {LIMIT} for people, all with --json."),
    ] = None,
    whole: WholeOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """What an agent did to the world: the tool calls of all its runs, and what came of each."""
    with opened(ctx) as session:
        session.find(agent, deleted_too=True)
        found: list[tuple[EffectInfo, str | None]] = []
        all_runs = session.store.runs(agent)
        for run in all_runs:
            executor = executor_of(session, run) if run.status in UNFINISHED else None
            found += [(effect, executor) for effect in session.store.handle(run.id).effects()]
        limit = number if number is not None else (0 if session.json else LIMIT)
        chosen = found[-limit:] if limit else found
        if session.json:
            plain.put_all(_effect_json(*pair) for pair in chosen)
            return
        console = stdout_console()
        _print_effects(console, chosen, whole=whole)
        if len(found) > len(chosen):
            console.print(text((f"… {len(found) - len(chosen):,} more (-n 0 for all)", "dim")))
        print_ways_out(console, session, all_runs)


# -- settling -------------------------------------------------------------------------------


def settle(
    ctx: typer.Context,
    agent: AgentArgument,
    call: Annotated[str, typer.Argument(metavar="CALL", help="The call in doubt, as refund#1.")],
    done: Annotated[
        str | None,
        typer.Option("--done", metavar="JSON", help="It took effect; JSON is its result."),
    ] = None,
    not_done: Annotated[
        bool, typer.Option("--not-done", help="It did not take effect: it will be called again.")
    ] = False,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Which run, if several have it.")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="WHO", help="Who says so; default: your login.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what became of a tool call in doubt. The run goes on when its program runs it again.

    What was said wrong may be said again, until the run went on with it.
    """
    if (done is None) != not_done:
        raise UsageError("say what became of it: either --done JSON, or --not-done")
    result = _result(done) if done is not None else None
    with opened(ctx) as session:
        info = _run_in_doubt(session, agent, call, run)
        handle = session.store.handle(info.id)
        who = by if by is not None else _login()
        if not_done:
            commit = at_the_head(lambda: handle.settle(call, not_done=True, by=who))
        else:
            commit = at_the_head(lambda: handle.settle(call, done=result, by=who))
        if session.json:
            plain.put({"run": info.id, "call": call, "commit": plain.commit_json(commit)})
            return
        console = stdout_console()
        became = "was not done, and will be called again"
        if not not_done:
            became = f"took effect, with the result {full(result)}"
        console.print(text((clean(call), "bold"), f" of run {clean(info.id)} {became}"))
        if info.status in UNFINISHED:
            words = "the run goes on when its program runs it again; until then, settle may correct"
            console.print(text((f"{words} this", "dim")))


def _result(words: str) -> Any:
    try:
        held = json.loads(words)
    except ValueError as error:
        raise UsageError(
            f"--done {words!r:.60} is not JSON ({error}); text is written '\"like this\"', "
            "nothing is null"
        ) from error
    try:
        return plain.from_json(held)
    except ValueError as error:
        raise UsageError(f"--done: {error}") from error


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user in a container
        return ""


def _run_in_doubt(session: Session, agent: str, call: str, run: str | None) -> RunInfo:
    """The one unfinished run of an agent that has this call in doubt, or settled by a person.

    Raises:
        NotFound: none has; naming what is in doubt.
        Conflict: several have it, and `run` does not choose; or a living executor is at it.
    """
    info = session.find(agent)
    candidates = [
        one for one in session.store.runs(agent, unfinished=True) if one.agent_no == info.no
    ]
    if run is not None:
        candidates = [one for one in [find_run(session, run)] if one.agent == agent]
    known = [effect.place for effect in in_doubt(session, candidates)]
    found: list[RunInfo] = []
    settled: list[RunInfo] = []
    for one in candidates:
        for effect in session.store.handle(one.id).effects():
            if effect.place != call:
                continue
            executor = executor_of(session, one)
            if executor is not None and effect.state == "in doubt":
                raise Conflict(
                    f"call {call!r} is under way: executor {executor} is at it",
                    target=f"run {one.id}", hint=HELD,
                )  # fmt: skip
            if run is not None or effect.state == "in doubt":
                found.append(one)
            elif effect.by == "person":
                settled.append(one)
    found = found or settled
    if not found:
        raise NotFound(
            f"has no tool call {call!r} in doubt", target=f"agent {agent!r}",
            hint=f"in doubt: {', '.join(known)}" if known else "nothing is in doubt",
        )  # fmt: skip
    if len(found) > 1:
        raise Conflict(
            f"{len(found)} runs have such a call, {call!r}", target=f"agent {agent!r}",
            hint="say which: " + " or ".join(f"--run {one.id}" for one in found),
        )  # fmt: skip
    return found[0]


def cancel(
    ctx: typer.Context,
    run: RunArgument,
    words: Annotated[str, typer.Option("--why", metavar="TEXT", help="Recorded.")] = "",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a run that nobody executes: the way out where it can never go on. Its tool calls stay in
    the ledger; calls in doubt stay in doubt."""
    with opened(ctx) as session:
        info = find_run(session, run)
        handle = session.store.handle(info.id)
        commit = at_the_head(lambda: handle.cancel(words))
        if session.json:
            plain.put({"run": info.id, "commit": plain.commit_json(commit)})
            return
        stdout_console().print(text(f"run {clean(info.id)} is ", ("cancelled", "bold")))
