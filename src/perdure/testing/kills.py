"""Runs an agent function once for each of its durable boundaries: killed there, then recovered; and
checks that it ends as if nothing had happened."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from perdure.core.schema.schema import Schema
from perdure.core.values.plain_values import Plain
from perdure.core.values.plain_values import same as equal
from perdure.engine.journal.ledger import EffectInfo
from perdure.engine.journal.scopes import scope_of
from perdure.missing import MISSING
from perdure.private import new_folder
from perdure.public_data import PublicData
from perdure.testing.boundaries import BOUNDARIES_MAX, run_with_kills
from perdure.testing.driving import refuse_in_a_loop, refuse_without_state
from perdure.testing.mortal import CallLog, PhysicalCall
from perdure.testing.trials import Trial

By = Literal["exception", "sigkill"]


class RunEnding(PublicData, Struct, frozen=True):
    """The end of a run that was killed once, and recovered.

    Attributes:
        killed_at: the boundary, e.g. ``after tool 2``; empty for the undisturbed run.
        result: what it returned, or the exception that it ended with.
        state: the agent's state in the end, of the function's type.
        effects: its tool calls, according to the ledger.
        calls: every time that a step or tool was really called.
        folder: its own, with the store ``agents.db``; gone afterwards, if it was a temporary one.
        assumed: the places of the calls that had begun when it was killed, whose effect is unknown,
            and which were settled as not done.
    """

    killed_at: str
    result: Any
    state: Any
    effects: list[EffectInfo]
    calls: list[PhysicalCall]
    folder: Path
    assumed: list[str] = []

    @property
    def doubted(self) -> bool:
        """True if a tool's policy ``"fail"`` told the function of a doubt: then it may end
        differently."""
        return any(effect.by == "crash" for effect in self.effects)


def kill_at_every_boundary(
    function: Callable[..., Any], /, *args: Any, state: Any = MISSING, answers: Sequence[Any] = (),
    signals: Mapping[str, Sequence[Any]] | None = None, tools: Mapping[Any, Any] | None = None,
    before: Callable[[Path], None] | None = None, check: Callable[[RunEnding], None] | None = None,
    same: Callable[[RunEnding], Any] | None = None, by: By = "exception",
    settle: Callable[[EffectInfo], Any] | None = None, folder: Path | None = None,
    timeout_s: float = 60, **kwargs: Any,
) -> list[RunEnding]:  # thirteen options, for the limit of a function  # fmt: skip
    """Kills an agent function at each of its durable boundaries in turn, recovers, and compares.

    A boundary is the moment before or after a commit, a lease's change, a message that is sent,
    or the call of a step or tool; `perdure.testing.boundary` makes more. Time is virtual.

    The result, the state and the effect ledger are compared with an undisturbed run; and the number
    of real calls of each tool, as far as its crash policy allows (``"retry"``: at least as many). A
    tool call that a person would have to settle (``"ask"``) is settled by its result. One that was
    under way beside another task's boundary may have taken effect, or not: `settle` decides;
    without it, it counts as not done, and a failure says so.

    Args:
        state: the agent's initial state.
        answers: to the questions that it asks, in order. One left over is an error.
        signals: values by the signal's name, in order. Timers become due if nothing else comes.
        tools: stand-ins for tools and steps, by the function that is called.
        before: called with a new folder before each try, to reset what the tools act on.
        check: checks each ending, too, e.g. the effects of the tools; raises if it is not right.
        same: returns the part of an ending that must be the same: leave out what depends on
            `run.uuid()` and `run.random()`, which differ each time, and on which of several tasks
            makes a call. With it, a tool's calls are counted in total, not at each place.
        by: ``"exception"``: in this process, which is fast, and in which ``finally`` blocks run;
            ``"sigkill"``: in forked processes that are really killed. What a tool does must then
            be in files to be seen.
        settle: decides about a call that had begun when its process died, or took too long, or
            raised: returns its result, or `perdure.NOT_DONE`.
        folder: where the stores are made; default: a temporary folder that goes afterwards.
        timeout_s: for one process, or what it executes at a stretch. It ends waits that do not
            unload the run: in threads other than those of `run.map` and `run.executor`, and beside
            tasks that wait for a queue, an event, a lock or a semaphore of asyncio.

    Returns:
        The endings, the undisturbed one first.

    Raises:
        AssertionError: an ending differs; it names the boundary, and the difference.
        PerdureError: it is ``async def``, and a loop is running on this thread already.
        SchemaError: its agent's state needs values, and `state` gives none.
        whatever the run raises if it cannot continue by itself, and whatever `check` raises.
    """
    if by == "exception":
        refuse_in_a_loop(function, "kill_at_every_boundary")
    refuse_without_state(function, state)
    with tempfile.TemporaryDirectory(dir=_quick(), ignore_cleanup_errors=True) as temporary:
        given = list(answers), dict(signals or {}), tools or {}
        trial = Trial(function, args, kwargs, state, *given, timeout_s, settle)
        endings: list[RunEnding] = []
        for number in range(-1, BOUNDARIES_MAX):
            where = (folder or Path(temporary)) / ("whole" if number < 0 else str(number))
            new_folder(str(where))
            if before is not None:
                before(where)
            ending = _try(trial, where, number, by, timeout_s)
            if number >= 0 and not ending.killed_at:
                return endings
            endings.append(ending)
            _judge(endings[0], ending, trial.schema, same, check)
            if folder is None:
                shutil.rmtree(where, ignore_errors=True)
    raise AssertionError(f"more than {BOUNDARIES_MAX} boundaries: does the function end?")


def _quick() -> str | None:
    """Returns a folder in memory, if there is one: syncs cost nothing there."""
    shared = "/dev/shm"
    return shared if os.access(shared, os.W_OK | os.X_OK) else None


def _try(trial: Trial, folder: Path, number: int, by: By, timeout_s: float) -> RunEnding:
    trial.prepare(folder)
    killed = ""
    if by == "sigkill":
        kills = [number] if number >= 0 else []
        end = run_with_kills(trial.live_alone, folder, kills, timeout_s=timeout_s)
        if end.error is not None:
            raise _stranded(trial, folder, end.killed_at, end.error)
        killed, places = "".join(end.killed_at), end.result
    else:
        at = trial.live_mortally(folder, number if number >= 0 else None)
        if at is not None:
            killed = at
            try:
                trial.live_mortally(folder, None)
            except Exception as problem:
                raise _stranded(trial, folder, [at], problem) from problem
        places = trial.asked
    if number < 0:
        trial.undisturbed(places)
    result, state, effects = trial.look(folder)
    calls = CallLog(folder / "calls").read()
    return RunEnding(killed, result, state, effects, calls, folder, trial.assumed(folder))


def _stranded(trial: Trial, folder: Path, killed: Sequence[str], why: object) -> AssertionError:
    where = f"killed {', '.join(killed)}, " if killed else ""
    return AssertionError(
        "\n  ".join([f"{where}it did not continue: {why}", *_assumptions(trial.assumed(folder))])
    )


def _assumptions(places: Sequence[str]) -> list[str]:
    """Returns other possible reasons than the function."""
    return [
        f"{place} had begun when it was killed, and may have taken effect: it was settled as not "
        "done; pass settle= to tell what really happened"
        for place in places
    ]


def _judge(
    whole: RunEnding,
    ending: RunEnding,
    schema: Schema[Any],
    same: Callable[[RunEnding], Any] | None,
    check: Callable[[RunEnding], None] | None,
) -> None:
    if ending is not whole:
        _compare(whole, ending, schema, same)
    if check is None:
        return
    try:
        check(ending)
    except Exception as problem:
        if ending.killed_at:
            problem.add_note(f"the run was killed {ending.killed_at}, and recovered")
        for assumption in _assumptions(ending.assumed):
            problem.add_note(assumption)
        raise


def _compare(
    whole: RunEnding, end: RunEnding, schema: Schema[Any], same: Callable[[RunEnding], Any] | None
) -> None:
    problems = _called_wrongly(whole, end, str if same is None else _tool_of)
    if same is not None:
        if same(whole) != same(end):
            problems.append(f"what must be the same is {same(end)!r}, undisturbed {same(whole)!r}")
    elif not end.doubted:
        for what, one, other in (
            ("the result", _result(end), _result(whole)),
            ("the ledger", _ledger(end), _ledger(whole)),
        ):
            if one != other:
                problems.append(f"{what} is {one!r}, undisturbed {other!r}")
        # as plain data: a user's class need not define what is equal
        if not equal(_plain(schema, end.state), _plain(schema, whole.state)):
            problems.append(f"the state is {end.state!r}, undisturbed {whole.state!r}")
    if problems:
        problems += _assumptions(end.assumed)
        raise AssertionError(
            f"killed {end.killed_at} and recovered, the run ended differently than undisturbed:\n  "
            + "\n  ".join(problems)
        )


def _result(ending: RunEnding) -> Any:
    result = ending.result
    return f"{type(result).__name__}: {result}" if isinstance(result, BaseException) else result


def _ledger(ending: RunEnding) -> list[tuple[str, str, str, str]]:
    return sorted((e.place, e.preview, e.state, repr(e.result)) for e in ending.effects)


def _plain(schema: Schema[Any], state: Any) -> Plain:
    return schema.take(state, aliases_refused=False)


def _called_wrongly(whole: RunEnding, end: RunEnding, what: Callable[[str], str]) -> list[str]:
    """Returns the differences between each tool's number of completed calls and the number that its
    policy allows.

    Args:
        what: maps a place to what is counted together.
    """
    wanted, found = _tools(whole, what), _tools(end, what)
    policies = {what(effect.place): effect.policy for effect in end.effects}
    problems: list[str] = []
    for one in wanted.keys() | found.keys():
        policy = policies.get(one, "none")
        least, most = wanted[one], wanted[one]
        if policy == "retry":  # each that was under way is called again
            most += len({call.place for call in end.calls if what(call.place) == one})
        cut_off = (what(call.place) == one and not call.ended for call in end.calls)
        least = 0 if end.doubted else max(least - sum(cut_off), 0)
        if not least <= found[one] <= most and (wanted[one] or not end.doubted):
            problems.append(
                f"{one} was called {_times(found[one])}, undisturbed {_times(wanted[one])} "
                f"(on_crash={policy!r})"
            )
    return problems


def _tools(ending: RunEnding, what: Callable[[str], str]) -> Tally[str]:
    return Tally(what(call.place) for call in ending.calls if call.kind == "tool" and call.ended)


def _tool_of(place: str) -> str:
    """Returns the name of the tool that is called at a place."""
    return place[len(scope_of(place)) :].rpartition("#")[0]


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
