"""The commands `effects` and `settle`: what runs did to the world, and the outcomes of calls in
doubt."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from perdure import Conflict, Corrupt, NotFound, UnsupportedFormat
from perdure.cli import plain
from perdure.cli.attention import (
    effect_state,
    effect_style,
    effects_noting,
    executor_of,
    print_ways_out,
)
from perdure.cli.failures import UsageError
from perdure.cli.naming import find_run, login, value_of
from perdure.cli.overview import Unreadable, tell_of
from perdure.cli.session import (
    AgentArgument,
    Session,
    at_the_head,
    number_option,
    opened,
)
from perdure.cli.terminal import Screen, stdout_console, table, text
from perdure.cli.words import REMOVED, cut, full, short
from perdure.errors import Hint
from perdure.model import UNFINISHED
from perdure.system import shell
from perdure.system.done_already import DoneAlready
from perdure.types import EffectInfo, RunInfo

LIMIT = 50
PREVIEW_MIN = 24
RESULT_WIDTH = 32
GAP = 2
WholeOption = Annotated[
    bool, typer.Option("--whole", "-p", help="Show arguments and results in full.")
]


def print_effects(
    console: Screen, effects: list[tuple[EffectInfo, str | None]], *, whole: bool
) -> None:
    if not effects:
        console.print(text(("no tool calls", "dim")))
        return
    whole = whole or not console.is_terminal  # in a pipe nothing is cut
    rows = table("commit", "tool call", "state", "result", right=("commit",))
    lines: list[tuple[EffectInfo, Text, str]] = []
    for effect, executor in effects:
        words = effect_state(effect, executor)
        times = f" after {effect.attempts} attempts" if effect.attempts > 1 else ""
        times += "" if effect.by in ("", "call") else f", by {effect.by}"
        result = (full if whole else short)(effect.result) if words == "done" else ""
        said = REMOVED if words == "removed" else words
        lines.append((effect, text((said, effect_style(words)), times), result))
    limit = None
    if not whole:  # one line per call
        lines = [(effect, state, cut(result, RESULT_WIDTH)) for effect, state, result in lines]
        taken = len("commit") + max(len(state) for _, state, _ in lines)
        taken += max(len(result) for _, _, result in lines) + 4 * GAP
        limit = max(console.width - taken, PREVIEW_MIN)
    for effect, state, result in lines:
        asked = "…" if effect.state == "removed" else effect.preview
        call = text((effect.place, "bold"), f"({asked})")
        if limit is not None:
            call.truncate(limit, overflow="ellipsis")
        rows.add_row(str(effect.seq), call, state, result)
    console.print(rows)


def effect_json(effect: EffectInfo, executor: str | None) -> dict[str, Any]:
    return {**plain.of(effect), "state": effect_state(effect, executor)}


def effects(
    ctx: typer.Context,
    agent: AgentArgument,
    number: Annotated[int | None, number_option("the newest calls", LIMIT)] = None,
    whole: WholeOption = False,
) -> None:
    """Show what an agent did to the world: the tool calls of all its runs, with their outcomes.

    The calls in damaged or missing commits are unknown; the exit code says so.
    """
    with opened(ctx) as session:
        session.find(agent, deleted_too=True)
        damage = _lost_beginning(session, agent)
        found: list[tuple[EffectInfo, str | None]] = []
        all_runs = session.store.runs(agent)
        for run in all_runs:
            executor = executor_of(session, run) if run.status in UNFINISHED else None
            effects = effects_noting(session, run.id, damage)
            found += [(effect, executor) for effect in effects]
        limit = session.shown_of(number, LIMIT)
        chosen = found[-limit:] if limit else found
        if session.json:
            plain.put_all(effect_json(*pair) for pair in chosen)
            tell_of(session, damage)
            return
        console = stdout_console()
        print_effects(console, chosen, whole=whole)
        if len(found) > len(chosen):
            console.print(text((f"… {len(found) - len(chosen):,} more (-n 0 for all)", "dim")))
        print_ways_out(console, session, all_runs)
        tell_of(session, damage)


def _lost_beginning(session: Session, agent: str) -> list[Unreadable]:
    """Returns why the first commit cannot be read: calls in missing commits are in no list."""
    try:
        session.agent(agent, deleted_too=True).commit(1)
    except NotFound:  # purged, and on purpose
        return []
    except (Corrupt, UnsupportedFormat) as error:
        return [error]
    return []


# -- settling -------------------------------------------------------------------------------


def settle(
    ctx: typer.Context,
    agent: AgentArgument,
    call: Annotated[str, typer.Argument(metavar="CALL", help="The call in doubt, e.g. refund#1.")],
    done: Annotated[
        str | None,
        typer.Option("--done", metavar="JSON", help="It took effect; JSON is its result."),
    ] = None,
    not_done: Annotated[
        bool, typer.Option("--not-done", help="It did not take effect: it will be called again.")
    ] = False,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="The run, if several have such a call."),
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="WHO", help="Who settles it; default: your login.")
    ] = None,
) -> None:
    """Settle a tool call in doubt. The run resumes when its program runs it again.

    A wrong answer may be corrected until the run has resumed with it.
    """
    if (done is None) != not_done:
        raise UsageError("say what happened: either --done JSON, or --not-done")
    result = value_of("--done", done) if done is not None else None
    with DoneAlready() as done_now, opened(ctx) as session:
        info = _run_in_doubt(session, agent, call, run)
        handle = session.store.handle(info.id)
        who = by if by is not None else login()
        if not_done:
            commit = at_the_head(lambda: handle.settle(call, not_done=True, by=who))
        else:
            commit = at_the_head(lambda: handle.settle(call, done=result, by=who))
        done_now.is_now(f"call {call} of run {info.id} is settled", "do not settle it again")
        if session.json:
            plain.put({"run": info.id, "call": call, "commit": plain.commit_json(commit)})
            return
        console = stdout_console()
        became = "was not done"
        if info.status in UNFINISHED:
            became += ", and will be called again"
        if not not_done:
            became = f"took effect, with the result {full(result)}"
        console.print(text((call, "bold"), f" of run {info.id} {became}"))
        if info.status in UNFINISHED:
            words = "the run resumes when its program runs it again; until then, settle may correct"
            console.print(text((f"{words} this", "dim")))


def _run_in_doubt(session: Session, agent: str, call: str, run: str | None) -> RunInfo:
    """Returns the one run of an agent that has this call in doubt, or settled by a person: an
    unfinished one, or else one that has ended, where only the ledger changes.

    Raises:
        NotFound: no run has it; the error names what is in doubt.
        Conflict: several have it, and `run` does not choose; or a living executor is making it.
    """
    info = session.find(agent)
    if run is not None:
        candidates = [one for one in [find_run(session, run)] if one.agent == agent]
        chosen = _with_call(session, candidates, call) or candidates
        if not chosen:
            raise _no_such_call(session, agent, call, candidates)
        return chosen[0]
    candidates = [one for one in session.store.runs(agent) if one.agent_no == info.no]
    going = [one for one in candidates if one.status in UNFINISHED]
    found = _with_call(session, going, call)
    if not found:
        ended = [one for one in candidates if one.status not in UNFINISHED]
        found = _with_call(session, ended, call, settled_too=False)
    if not found:
        raise _no_such_call(session, agent, call, candidates)
    if len(found) > 1:
        raise Conflict(
            f"{len(found)} runs have such a call, {call!r}",
            target=f"agent {agent!r}",
            hint="say which: " + " or ".join(shell.join(["--run", one.id]) for one in found),
        )
    return found[0]


def _with_call(
    session: Session, runs: list[RunInfo], call: str, *, settled_too: bool = True
) -> list[RunInfo]:
    """Returns those that have it in doubt, or else settled by a person.

    Raises:
        Conflict: a living executor is making it.
    """
    found: list[RunInfo] = []
    settled: list[RunInfo] = []
    for one in runs:
        effects = session.store.handle(one.id).effects(damaged_too=True)
        calls = [effect for effect in effects if effect.place == call]
        if any(effect.open for effect in calls):
            if (executor := _at_it(session, one)) is not None:
                raise Conflict(
                    f"call {call!r} is under way: executor {executor} is making it",
                    target=f"run {one.id}",
                    hint=Hint.BRANCH_HELD,
                )
            found.append(one)
        elif any(effect.by == "person" for effect in calls):
            settled.append(one)
    return found or (settled if settled_too else [])


def _at_it(session: Session, run: RunInfo) -> str | None:
    """Returns the living executor whose calls are under way; None if there is none."""
    return executor_of(session, run) if run.status in UNFINISHED else None


def _no_such_call(session: Session, agent: str, call: str, runs: list[RunInfo]) -> NotFound:
    known = [
        effect.place
        for one in runs
        if _at_it(session, one) is None
        for effect in session.store.handle(one.id).effects(damaged_too=True)
        if effect.open
    ]
    return NotFound(
        f"has no tool call {call!r} in doubt",
        target=f"agent {agent!r}",
        hint=f"in doubt: {', '.join(dict.fromkeys(known))}" if known else "nothing is in doubt",
    )
