"""Runs an agent function in memory, with stand-ins for its tools, and returns what it did."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from msgspec import Struct

from perdure.core.arguments.checks import function as check_function
from perdure.core.arguments.checks import iterable, mapping
from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import shown
from perdure.core.format.records import Outcome
from perdure.core.values.plain_values import Plain
from perdure.engine.control.settlement import journals
from perdure.engine.dispatch.command import Command
from perdure.engine.dispatch.drive_end import RunResult
from perdure.engine.functions.agent_functions import spec_of
from perdure.engine.functions.orders import Order
from perdure.engine.functions.run import Run
from perdure.engine.journal.any_values import take_any
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.prepared_replies import Fakes
from perdure.engine.journal.prepared_replies import PreparedReplies as Given
from perdure.missing import MISSING
from perdure.model import Commit
from perdure.public_data import PublicData
from perdure.state.snapshot_policy import SnapshotPolicy
from perdure.storage.memory.backend import MemoryBackend
from perdure.testing.clock import Clock
from perdure.testing.driving import execute, refuse_in_a_loop, refuse_without_state

if TYPE_CHECKING:
    from perdure.engine.functions.async_run import AsyncRun

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
AGENT = "played"


class PlayedCall(PublicData, Struct, frozen=True):
    """One recorded call: a tool's or a step's, with a preview of its arguments.

    Attributes:
        value: the plain result; MISSING if it raised.
        error: the name and message of its exception.
    """

    kind: str
    name: str
    arguments: str
    value: Plain
    error: str | None = None


class Played(PublicData, Struct, Generic[T, R], frozen=True):
    """The result of a played run: its typed result, the final state, its recorded calls in
    order."""

    result: R
    state: T
    calls: list[PlayedCall]


@overload
def play(
    function: Callable[Concatenate[AsyncRun[T], P], Coroutine[Any, Any, R]],
    /,
    *args: Any,
    state: T | Any = ...,
    answers: Sequence[Any] = ...,
    signals: Mapping[str, Sequence[Any]] | None = ...,
    tools: Fakes | None = ...,
    clock: Clock | None = ...,
    **kwargs: Any,
) -> Played[T, R]: ...
@overload
def play(
    function: Callable[Concatenate[Run[T], P], R],
    /,
    *args: Any,
    state: T | Any = ...,
    answers: Sequence[Any] = ...,
    signals: Mapping[str, Sequence[Any]] | None = ...,
    tools: Fakes | None = ...,
    clock: Clock | None = ...,
    **kwargs: Any,
) -> Played[T, R]: ...
def play(
    function: Callable[..., Any],
    /,
    *args: Any,
    state: Any = MISSING,
    answers: Sequence[Any] = (),
    signals: Mapping[str, Sequence[Any]] | None = None,
    tools: Fakes | None = None,
    clock: Clock | None = None,
    **kwargs: Any,
) -> Played[Any, Any]:
    """Runs an agent function once, on an agent of its own, with the real engine over memory.

    Nothing waits: given answers and signals come at once, and a wait for anything else times out at
    once, by the run's own clock, on which pauses take no time either. A function that is ``async
    def`` gets an event loop of its own. One that starts other runs is refused: try those on a
    store.

    Args:
        state: the agent's initial state; default: its schema's type, called without arguments.
        answers: to the questions that the run asks, in order.
        signals: values by the signal's name, in order.
        tools: stand-ins for tools and steps, and for probes, by the function that is called:
            ``{refund: fake}``, or for a callable recorded with `Run.call`, by itself.
        clock: the run's clock; default: one that begins now.

    Raises:
        whatever the function raises.
        PerdureError: the function is ``async def``, and an event loop is running on this thread.
        NeedsAttention: it waits for something that was not given, and has no timeout.
        SchemaError: its agent's state needs values, and `state` gives none.
        ValueError: an answer or a signal is left over.
    """
    clock = Clock() if clock is None else clock
    if not is_a(clock, Clock):
        raise TypeError(f"clock= must be a perdure.testing.Clock, not {shown(clock)}")
    spec = spec_of(function)
    refuse_in_a_loop(function, "play")
    refuse_without_state(function, state)
    sent = mapping({} if signals is None else signals, "signals= must have lists of values by name")
    given = Given(
        [take_any(answer, "answers") for answer in iterable(answers, "answers=")],
        {
            name: [take_any(one, "signals") for one in iterable(values, f"signals={name!r:.60}")]
            for name, values in sent.items()
        },
        clock.advance_to,
    )
    tools = mapping({} if tools is None else tools, "tools= must have stand-ins by function")
    for stand_in in tools.values():
        check_function(stand_in, "a stand-in in tools=")
    store = clock.store_on(MemoryBackend(clock=clock), SnapshotPolicy())
    try:
        agent = store.agent(AGENT, spec.schema, initial=state)
        with agent.edit("played"):
            pass
        order = Order.of(function, AGENT, "main", args, kwargs, storable=False)
        command = Command(function, order, args, kwargs, fakes=tools, played=given)
        end = execute(store.runner, command)
        while not isinstance(end, RunResult):  # after a wait in which its tasks had all to wait
            end = execute(store.runner, command)
        _refuse_left_over(given)
        agent.refresh()
        run = order.run_id(store.runner.context.backend)
        return Played(end.result, agent.state, _calls(agent.log(), run))
    finally:
        store.close()


def _refuse_left_over(given: Given) -> None:
    if given.answers:
        raise ValueError(f"answers left over: {given.answers!r:.200}")
    left = {name: values for name, values in given.signals.items() if values}
    if left:
        raise ValueError(f"signals left over: {left!r:.200}")


def _calls(log: Iterable[Commit], run: str) -> list[PlayedCall]:
    settled = (entry for turn in journals([run], log) for entry in turn.order)
    return [_call(entry, entry.outcome) for entry in settled if entry.kind in ("step", "tool")]


def _call(entry: Entry, outcome: Outcome | None) -> PlayedCall:
    assert outcome is not None
    error = outcome.error
    return PlayedCall(
        entry.kind,
        entry.name[len(entry.scope) :],
        entry.call.preview,
        outcome.value if outcome.came == "done" else MISSING,
        f"{error['type'].partition(':')[2]}: {error['text']}" if error else None,
    )
