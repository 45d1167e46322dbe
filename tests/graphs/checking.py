"""Whether runs of programs that chance made come to the same as they did, after a kill and when
they are gone over again."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perdure
from perdure.testing import replay
from perdure.testing.trials import AGENT, Trial
from tests.graphs.generate import Node, Playing, agent_of, playing
from tests.graphs.loops import own_time

RUN = f"{AGENT}/graph/main"


class Otherwise(AssertionError):
    """A run came to something else than it had."""


@own_time()
def live(whole: Node, folder: Path, kill_at: int | None = None) -> str | None:
    """Run a program, killed at a boundary and gone on with, and go over it once more; returns where
    it was killed, None if it ended before.

    Raises:
        Otherwise: as `lives`.
    """
    return lives(agent_of(whole), folder, kill_at, replays=1)


def live_held_up(
    function: Callable[..., Any], folder: Path, chance: random.Random, kill_at: int | None
) -> str | None:
    """As `live`, of what plays one about time, in loops that are held up by chance; gone over more.

    Raises:
        Otherwise: as `lives`.
    """
    with own_time(chance):
        return lives(function, folder, kill_at, replays=4)


def lives(
    function: Callable[..., Any], folder: Path, kill_at: int | None, replays: int
) -> str | None:
    """As `live`, of the function that plays a program.

    Raises:
        Otherwise: the function heard of something else, or in another order, than it had.
    """
    folder.mkdir(parents=True)
    trial = Trial(function, (), {}, {}, [], {}, {}, 20)
    trial.prepare(folder)
    playing.clear()
    try:
        killed = trial.live_mortally(folder, kill_at)
        before = [*playing]
        if killed is not None:
            recorded = _recorded(folder)
            _edit_by_hand(folder)
            playing.clear()
            trial.live_mortally(folder, None)
            _compare_lives(before, recorded, [*playing, *before[-1:]][0])
        _compare_turns([*playing])
        last = [*before, *playing][-1]  # it may have been killed once it had ended
        _check_state(trial, folder, last)
        for _ in range(replays):
            _go_over(trial, folder, last)
    finally:
        playing.clear()
    return killed


def _go_over(trial: Trial, folder: Path, last: Playing) -> None:
    playing.clear()
    with perdure.open(folder / "agents.db") as store:
        again = replay(store, trial.function, RUN)
    if again.drift is not None or again.goes_on:
        heard = f"{lines(last.heard)}\nand now{lines(playing[-1].heard)}"
        raise Otherwise(f"gone over again: {again.drift or again.goes_on}{heard}")
    compare("gone over again", last.heard, playing[-1].heard)


def _recorded(folder: Path) -> str:
    """The arguments of all steps and tools of which something is in the log that was written when
    they had begun."""
    with perdure.open(folder / "agents.db") as store:
        records = [one for commit in store.agent(AGENT).log() for one in commit.records]
    ended = {record["place"] for record in records if record["t"] in ("step", "outcome")}
    return "\n".join(
        str(record.get("preview", "")) for record in records if record.get("place") in ended
    )


def _edit_by_hand(folder: Path) -> None:
    """While nobody goes on with the run; it sees that, from some moment on."""
    with perdure.open(folder / "agents.db") as store, store.agent(AGENT).edit("by hand") as draft:
        draft["by hand"] = 1


def _compare_lives(before: list[Playing], recorded: str, after: Playing) -> None:
    """What was heard before a call began whose record outlived the kill, is heard again."""
    for one in before[-1:]:
        sure = max((n for call, n in one.begun.items() if f"{call!r}" in recorded), default=0)
        compare("after the kill", one.heard[:sure], after.heard[:sure])


def _compare_turns(times: list[Playing]) -> None:
    """A run that was unloaded to wait hears the same when it goes on, and then more."""
    for one, next_one in itertools.pairwise(times):
        compare("loaded again", one.heard, next_one.heard[: len(one.heard)])


def _check_state(trial: Trial, folder: Path, last: Playing) -> None:
    result, state, _ = trial.look(folder)
    edits = sum(what.endswith(" edit: edited") for _, what in last.heard)
    # Of one that was cancelled while it was committed, the function heard nothing.
    if state.get("edits", 0) < edits or result != str(len(last.heard)):
        raise Otherwise(f"{edits} edits and result {len(last.heard)}: {state}, {result!r}")


def compare(when: str, one: list[tuple[str, str]], other: list[tuple[str, str]]) -> None:
    """In all the same order, but for cancellations: a task group cancels its tasks in any."""
    firsts = [what for _, what in one if not what.endswith("cancelled")]
    seconds = [what for _, what in other if not what.endswith("cancelled")]
    for number, (first, second) in enumerate(zip([*firsts, None], [*seconds, None], strict=False)):
        if first != second:
            heard = f"{lines(one)}\nand now{lines(other)}"
            raise Otherwise(f"{when}, {number}: {second!r}, and not {first!r}; {heard}")
    if by_task(one) != by_task(other):
        raise Otherwise(f"{when}: {by_task(other)}, and not {by_task(one)}")


def by_task(heard: list[tuple[str, str]]) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for scope, what in heard:
        found[scope].append(what)
    return dict(found)


def lines(what: list[Any]) -> str:
    return "\n  " + "\n  ".join(map(str, what))
