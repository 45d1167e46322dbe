"""Runs that a person must look at, and tool calls in doubt: the problem, and the way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.padding import Padding
from rich.text import Text

from perdure import Corrupt, UnsupportedFormat
from perdure.agents import Agent
from perdure.cli import plain
from perdure.cli.session import Session
from perdure.cli.terminal import Screen, text
from perdure.cli.words import STATUS_STYLES
from perdure.model import UNFINISHED
from perdure.types import Branch, EffectInfo, Explanation, RunInfo, WayOut

BLOCKS_MAX = 10
"""Runs that are told of at length in one answer."""

ALONE = {"running": "its executor is gone", "pending": "no executor has it"}
ON_RESUME = {
    "retry": "run it again: the call is repeated, with the same idempotency key",
    "probe": "run it again: its probe finds out whether it took effect",
    "fail": "run it again: the call raises InDoubt in the agent function",
}
"""The outcome of a call in doubt under its own policy; under "ask" a person settles it."""


AGAIN_SAID = "do not; JSON is its result, or the id of the run that was started"
JSON_SAID = """it did; JSON is its result, e.g. 42, '"receipt"' or '{"id": 7}'"""


def executor_of(session: Session, run: RunInfo) -> str | None:
    """Returns the living executor that has the run's branch; None if none has."""
    info = session.store.find(run.agent)
    if info is None or info.no != run.agent_no:
        return None
    return holder(session, session.store.agent_of(info, branch=run.branch))


def holder(session: Session, agent: Agent[Any]) -> str | None:
    """Returns the living executor that has a handle's branch; None if none has."""
    for branch in agent.branches():
        if branch.name == agent.branch_name and branch.holder:
            return branch.holder if session.store.alive(branch.holder) else None
    return None


def branch_json(session: Session, branch: Branch) -> dict[str, Any]:
    alive = branch.holder is not None and session.store.alive(branch.holder)
    return {**plain.of(branch), "executor_alive": alive}


def run_status(session: Session, run: RunInfo) -> Text:
    """Returns the status in colour; a run that nobody executes says so."""
    words = run.status.replace("_", " ")
    if run.status == "pending" and not run.started:
        return text((words, STATUS_STYLES[run.status]), (", not begun", "yellow"))
    alone = ALONE.get(run.status)
    if alone is not None and executor_of(session, run) is None:
        return text((words, STATUS_STYLES[run.status]), (f", {alone}", "yellow"))
    return text((words, STATUS_STYLES[run.status]))


def why(run: RunInfo, session: Session) -> str:
    """Returns why a run ended badly or stands still, on one line; empty if it does not."""
    if run.status == "waiting":
        return "for " + run.waits
    if run.status == "pending":
        said = session.store.handle(run.id).why()
        return "" if said.workers else session.say(said.why.partition("\n")[0])
    if run.status not in ("failed", "cancelled", "needs_attention"):
        return ""
    return session.say((run.problem or "").partition("\n")[0])


def effect_state(effect: EffectInfo, executor: str | None) -> str:
    """Returns the state in the ledger; a call without an outcome is only in doubt if nobody is
    making it."""
    if effect.state == "in doubt" and executor is not None:
        return "under way"
    return effect.state


def effect_style(state: str) -> str:
    return {
        "in doubt": "bold red",
        "made before": "bold red",
        "under way": "cyan",
        "open": "cyan",
        "done": "green",
        "failed": "red",
        "cancelled": "dim",
        "removed": "dim",
    }.get(state, "yellow")


def in_doubt(
    session: Session, runs: Sequence[RunInfo], *, damaged_too: bool = False
) -> list[EffectInfo]:
    """Returns the tool calls of unfinished runs whose outcome is unknown.

    Args:
        damaged_too: skips commits that cannot be read, as `RunHandle.effects`.
    """
    found: list[EffectInfo] = []
    for run in runs:
        if run.status not in UNFINISHED or executor_of(session, run) is not None:
            continue
        effects = session.store.handle(run.id).effects(damaged_too=damaged_too)
        found += [effect for effect in effects if effect.open]
    return found


def effects_noting(
    session: Session, run: str, damage: list[Corrupt | UnsupportedFormat]
) -> list[EffectInfo]:
    """Returns a run's tool calls; if commits cannot be read, those in the other commits, and the
    error is added to `damage`."""
    handle = session.store.handle(run)
    try:
        return handle.effects()
    except (Corrupt, UnsupportedFormat) as error:
        damage.append(error)
        return handle.effects(damaged_too=True)


def print_ways_out(console: Screen, session: Session, runs: Sequence[RunInfo]) -> None:
    """Prints, for each run that stands still, why, and what a person can type."""
    told = 0
    for run in runs:
        if run.status not in UNFINISHED or executor_of(session, run) is not None:
            continue
        if told == BLOCKS_MAX:
            console.print()
            console.print(
                text("… and more: ", (session.command("why", "RUN"), "bold"), " explains each")
            )
            return
        try:
            told += _print_way_out(console, session, run)
        except (Corrupt, UnsupportedFormat):  # something that it recorded; or did, and was set back
            _print_head(console, run)
            print_explanation(console, session, session.store.handle(run.id).why())
            told += 1


def _print_way_out(console: Screen, session: Session, run: RunInfo) -> bool:
    """Prints the way out of one run; returns True if there was something to say."""
    if run.status == "waiting":
        said = session.store.handle(run.id).why()
        asks = any(call.question for call in said.calls)
        if said.situation == "waiting" and not asks:
            return False
        _print_head(console, run)
        print_explanation(console, session, said)
        return True
    doubts = in_doubt(session, [run])
    _print_head(console, run)
    if run.problem and not doubts:
        for line in session.say(run.problem).split("\n"):
            console.print(text(f"  {line}"))
    for effect in doubts:
        _print_doubt(console, session, run, effect)
    cancel = session.command("cancel", run.id)
    if run.status == "needs_attention" and not doubts:
        resume = session.command("resume", run.id)
        console.print(text("  once that is fixed: ", (resume, "bold")))
    if doubts or run.status == "needs_attention":
        console.print(text("  or end the run: ", (cancel, "bold")))
    else:
        print_explanation(console, session, session.store.handle(run.id).why())
    return True


def _print_head(console: Screen, run: RunInfo) -> None:
    console.print()
    console.print(text(("! ", "bold red"), (f"run {run.id}", "bold")))


def print_explanation(console: Screen, session: Session, said: Explanation) -> None:
    """Prints why a run is not moving, and what to do."""
    for line in session.say(said.why).split("\n"):
        # Expanded, it would be padded to the console's width, which is not a terminal's.
        indented = Padding(text(line), (0, 0, 0, 2), expand=False)
        console.print(indented, soft_wrap=not console.is_terminal)
    print_ways(console, session, said.ways)


def print_ways(console: Screen, session: Session, ways: Sequence[WayOut]) -> None:
    """Prints what to do, with commands to paste."""
    for way in ways:
        words = session.say(way.words)
        if not way.command:
            console.print(text(("  → ", "cyan"), words))
            continue
        command = session.pasted(way.command)
        console.print(text(("  → ", "cyan"), f"{words}: ", (command, "bold")))


def _print_doubt(console: Screen, session: Session, run: RunInfo, effect: EffectInfo) -> None:
    again = f"attempt {effect.attempts} " if effect.attempts > 1 else ""
    before = effect.state == "made before"
    became = ("is in doubt", "bold red")
    why = ": its process ended before an outcome was recorded"
    if before:
        became = ("was made before", "bold red")
        why = f", at commit {effect.made_at}: before the run was set back, or by its origin"
    console.print(
        text(
            "  ",
            (effect.place, "bold red"),
            f"({effect.preview}) {again}",
            became,
            why,
        )
    )
    if before:
        console.print("  give its result, or have it made again, under another key:")
    elif effect.policy in ON_RESUME:
        console.print(text(f"  {ON_RESUME[effect.policy]}; or settle it yourself:"))
    else:
        console.print("  find out whether it took effect, then say so, and run it again:")
    settle = ("settle", run.agent, effect.place)
    unfinished = session.store.runs(run.agent, unfinished=True)
    which = {"run": run.id} if len(unfinished) > 1 else {}  # a fork may have the same call
    done = session.command(*settle, **which, done="JSON")
    not_done = session.command(*settle, **which, not_done=True)
    width = max(len(done), len(not_done))
    said = (AGAIN_SAID, "make it again") if before else (JSON_SAID, "it did not")
    for command, words in zip((done, not_done), said, strict=True):
        console.print(text("    ", (command.ljust(width), "bold"), (f"   {words}", "dim")))
