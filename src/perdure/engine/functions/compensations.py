"""`run.compensate`: what a run's tool calls did is undone, the last first, durably.

Which calls there are is a step of the run: it reads the log, and is recorded. Each compensation is
a tool call like others, with an intent, an idempotency key and a crash policy. One that fails for
good leaves no outcome: the run needs attention, and a person has it tried again, or settles it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

from perdure.core.format.records import Intent, Turn
from perdure.core.values.plain_values import Plain
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.execution import Execution
from perdure.engine.execution.undoing_here import LOOK_S
from perdure.engine.functions.agent_functions import spec_of
from perdure.engine.functions.decorators import RecordedFunction, mark_of
from perdure.engine.functions.turn_end import Again
from perdure.engine.functions.undoing import Undo, undo_of
from perdure.engine.journal.call import Call
from perdure.engine.journal.entry import Entry
from perdure.engine.journal.journal import Journal
from perdure.engine.journal.lacking_resources import lacking
from perdure.engine.journal.leaving import LATE, DeadlinePassed, overdue
from perdure.engine.journal.left_history import path_of
from perdure.engine.journal.values import is_async, label, per_function, results_of
from perdure.errors import CallFailed, NeedsAttention, PerdureError, SchemaError
from perdure.missing import MISSING
from perdure.model import Cause, Commit
from perdure.system.late_imports import NotLoadedError
from perdure.visible import visible

PLAN = "run.compensate"
"""The name of the step that finds what is to be undone."""

DOUBTFUL = ("perdure.errors:InDoubt", "perdure.errors:CallFailed")
"""The types of errors, as they are recorded, of calls that may have taken effect."""

Came = Literal["done", "not done", "in doubt"]


class UndoneError(Exception):
    """All that a run did is undone: it ends, for this reason: `why` it was cancelled, in words, or
    the record of its error."""

    def __init__(self, why: str | Mapping[str, Plain]) -> None:
        super().__init__(why)
        self.why = why


def undoing_turn(
    run: str, plan: list[dict[str, Plain]], reason: PerdureError | Mapping[str, Plain]
) -> Turn:
    """Returns the record of a turn in which a plan is carried out, before the run ends.

    Args:
        reason: for that it ends; of one that fails, the record of its error.
    """
    undoes = "cancelled"
    if isinstance(reason, Mapping):
        undoes = "failed"
    elif isinstance(reason, DeadlinePassed):
        undoes = "overdue"
    return Turn(
        run=run,
        preview=f"undoes {len(plan)} of its calls",
        input=([plan, reason if isinstance(reason, Mapping) else reason.problem], {}),
        deadline_at=0,
        undoes=undoes,
    )


def undoing_in(began: Commit, run: str) -> str:
    """Returns the end of a run that is undone in the turn that begins with this commit; empty: it
    is a turn of its function."""
    turns = [one for one in began.typed if isinstance(one, Turn) and one.run == run]
    return turns[-1].undoes if turns else ""


def undoes_one(journal: Journal) -> bool:
    """Returns True if a compensation was under way in the run's turn: its function comes to it
    again, and its crash policy decides what came of it."""
    return any(
        isinstance(one.call, Intent) and one.call.compensates and one.in_doubt
        for one in journal.entries.values()
    )


def undoer(run: str, undoes: str, *, is_async: bool) -> Callable[..., Any]:
    """Returns what is called in the place of the agent function, to carry out a plan."""

    def ended(why: Any) -> Exception:
        return overdue(run, why or LATE) if undoes == "overdue" else UndoneError(why)

    if is_async:

        async def undo_async(run_: Any, plan: Any, why: Any) -> None:
            await _carry_out_async(run_._execution, plan)
            raise ended(why)

        return undo_async

    def undo(run_: Any, plan: Any, why: Any) -> None:
        _carry_out(run_._execution, plan)
        raise ended(why)

    return undo


def undo_all(execution: Execution[Any]) -> list[str]:
    """Undoes the calls of this turn; see `Run.compensate`."""
    undoing, one = execution.calls.undoing, object()

    def planned() -> list[dict[str, Plain]]:
        undoing.begin(one, execution.check)
        return _plan_now(execution)

    call = _plan_call(execution, planned)
    with _uninterrupted(execution, one, call):
        plan = execution.performer.make(call)
        undoing.goes_on(one)
        for item in plan:
            if (undo := _undo_of(execution, item)) is not None and is_async(undo.function):
                raise TypeError(
                    f"compensate={label(undo.function)} is async: make the agent function "
                    "`async def`"
                )
        return _carry_out(execution, plan)


async def undo_all_async(execution: Execution[Any]) -> list[str]:
    """The same for coroutines."""
    undoing, one = execution.calls.undoing, object()

    async def planned() -> list[dict[str, Plain]]:
        while not undoing.begins(one):
            execution.check()
            await execution.async_performer.new_wait(lambda: None).rest(LOOK_S)
        return await execution.working.context.in_thread(lambda: _plan_now(execution))

    call = _plan_call(execution, planned)
    with _uninterrupted(execution, one, call):
        plan = await execution.async_performer.make(call)
        undoing.goes_on(one)
        return await _carry_out_async(execution, plan)


def _plan_call(execution: Execution[Any], planned: Callable[[], Any]) -> Call:
    """Returns the call of the step that gives what is to be undone, in order."""
    return RecordedFunction("step", planned, PLAN).call(execution, (), {})


def _plan_now(execution: Execution[Any]) -> list[dict[str, Plain]]:
    """Returns the plan by the log, once that has all that was recorded: that the task of a call was
    cancelled joins the next commit."""
    writer = execution.writer
    if writer.busy or writer.waiting:
        writer.write(Item(Cause("compensate", run=execution.id)))
    return plan_of(execution)


@contextmanager
def _uninterrupted(execution: Execution[Any], one: object, plan: Call) -> Iterator[None]:
    """Context manager around one undoing: that it is to end, the run hears behind it. An execution
    that is interrupted there stays in it."""
    try:
        yield
    finally:
        if execution.interrupted is None:
            execution.calls.undoing.ended(one, plan.place)
            execution.news()


def plans_begun(journal: Journal) -> list[str]:
    """Returns the places of the plans of a run's turn that are recorded, and not carried out."""
    if not any(PLAN in place for place in journal.entries):
        return []
    entries = [one for one in journal.entries.values() if one.call.run == journal.run]
    ended = {
        one.call.compensates
        for one in entries
        if isinstance(one.call, Intent) and one.outcome is not None
    }
    return [one.place for one in entries if not ended.issuperset(_planned(one))]


def _carry_out(execution: Execution[Any], plan: list[dict[str, Any]]) -> list[str]:
    for item in plan:
        try:
            execution.performer.make(_call(execution, item))
        except CallFailed as error:
            if not error.took_effect:  # else only its result cannot be kept
                raise
    return [item["place"] for item in plan]


async def _carry_out_async(execution: Execution[Any], plan: list[dict[str, Any]]) -> list[str]:
    for item in plan:
        try:
            await execution.async_performer.make(_call(execution, item))
        except CallFailed as error:
            if not error.took_effect:
                raise
    return [item["place"] for item in plan]


def plan_of(execution: Execution[Any], *, under_way: Came | None = None) -> list[dict[str, Plain]]:
    """Reads from the log which calls of the run's turn took effect and are not undone, the last
    first.

    Args:
        under_way: how a call without an outcome counts, where the run is about to end; None: it is
            refused.

    Raises:
        PerdureError: there is such a call.
    """
    journal, working = execution.journal, execution.working
    reader = working.reader
    path = path_of(reader, reader.ref(working.branch).seq, journal.turn_at)
    return plan_in(path, execution.id, journal.aliases, under_way=under_way)


def plan_in(
    path: Sequence[Commit],
    run: str,
    aliases: Collection[str] = (),
    *,
    under_way: Came | None = None,
) -> list[dict[str, Plain]]:
    """Returns the same from the commits of the turn, the last first."""
    lived = Journal.read(run, reversed(path), aliases=aliases)
    entries = [one for one in lived.entries.values() if one.call.run == run]
    undone = {
        one.call.compensates: one
        for one in entries
        if isinstance(one.call, Intent) and one.call.compensates
    }
    found: list[tuple[tuple[int, str], dict[str, Plain]]] = []
    for entry in entries:
        call = entry.call
        if not isinstance(call, Intent) or call.undo is None or call.compensates:
            continue  # a call that undid another one is nothing that the run did
        came = _came(entry, run, under_way)
        begun = undone.get(entry.place)
        back = _came(begun, run, under_way) if begun is not None else "not done"
        if (
            begun is not None
            and begun.outcome is not None
            and begun.outcome.by in ("call", "probe")
        ):
            back = "done"  # also where only its result cannot be kept
        if came == "not done" or back == "done":
            continue
        value = entry.outcome.value if entry.outcome is not None and came == "done" else None
        item = {
            "place": entry.place,
            "undo": {"tool": call.undo.tool, "of": str(call.of), "args": call.undo.args},
            "value": value,
            "doubt": came == "in doubt",
            "keys": [str(call.key), *_kept_key(entry)],
        }
        if begun is not None and back == "in doubt":
            item |= {"begun": begun.place}
        found.append(((entry.seq, entry.place), item))
    return [item for _, item in sorted(found, key=lambda one: one[0], reverse=True)]


def _kept_key(entry: Entry) -> list[str]:
    """Returns the key of the call, made in a history that the run left, whose outcome it kept."""
    outcome = entry.outcome
    if outcome is None or outcome.by != "reuse":
        return []
    return [str(made) for made in (entry.call.made, outcome.made) if made]


def _planned(entry: Entry) -> list[str]:
    outcome = entry.outcome
    if entry.kind != "step" or outcome is None or not isinstance(outcome.value, list):
        return []
    if entry.name[len(entry.scope) :] != PLAN:
        return []
    return [str(item["place"]) for item in outcome.value]


def _came(entry: Entry, run: str, under_way: Came | None) -> Came:
    """Returns what is known of a call's effect; see `plan_of`."""
    outcome = entry.outcome
    if outcome is None and not entry.in_doubt:
        return "not done"  # its attempts failed so far
    if outcome is None and under_way is not None:
        return under_way
    if outcome is None:
        raise PerdureError(
            f"{visible(entry.place)} is under way in another task, and would take effect behind "
            "this",
            target=f"run {run}",
            hint="wait for the run's tasks and threads before you compensate",
        )
    if outcome.cancelled:
        return "in doubt"
    if outcome.error is None:
        return "not done" if outcome.not_done else "done"
    told = str(outcome.error.get("type")) in DOUBTFUL if outcome.by == "reuse" else outcome.by
    return "in doubt" if told else "not done"


def _undo_of(execution: Execution[Any], item: dict[str, Any]) -> Undo | None:
    """Returns the compensation of a call: of the tool that this run has called, or else of the one
    of that name that the program has; None if it has none.

    Raises:
        RunInterrupted: the run has called several of that name.
    """
    tool = str(item["undo"]["tool"])
    called = [*execution.calls.undos.get(tool, {}).values()]
    if len(called) > 1:
        raise execution.interrupt(
            NeedsAttention(
                f"it is to be undone, and the run has called {len(called)} tools {tool!r}, each "
                "with a compensation of its own",
                target=f"run {execution.id}, call {item['place']}",
                hint="nothing tells which of them made it: give each a name= of its own",
            )
        )
    return called[0] if called else undo_of(tool, str(item["undo"]["of"]))


def _call(execution: Execution[Any], item: dict[str, Any]) -> Call:
    tool, undo = str(item["undo"]["tool"]), _undo_of(execution, item)
    target = f"run {execution.id}, call {item['place']}"
    if undo is None:
        raise execution.interrupt(
            NeedsAttention(
                f"it is to be undone, and this program has no tool {tool!r} with compensate=",
                target=target,
                hint="run it again where that is loaded",
            )
        )
    if execution.tasks is None and is_async(undo.function):
        raise execution.interrupt(
            NeedsAttention(
                f"it is to be undone, and compensate={label(undo.function)} is async, which the "
                "agent function is not",
                target=target,
                hint="make the agent function, or the compensation, of the other kind, then run it "
                "again",
            )
        )
    try:
        result = MISSING if item["doubt"] else item["value"]
        arguments = undo.arguments(result, item["undo"]["args"])
    except SchemaError as error:
        raise execution.interrupt(
            NeedsAttention(
                f"what is kept for undoing it no longer fits {label(undo.function)}: "
                f"{error.problem}",
                target=target,
                hint="let its types read the old form too, then run it again",
            )
        ) from error
    recorded = mark_of(undo.function) or _as_tool(undo.function)
    if recorded.kind != "tool":
        recorded = _as_tool(recorded.function)
    call = recorded.call(execution, (), arguments)
    call.compensates, call.undoes = str(item["place"]), item.get("keys")
    if item["doubt"]:
        call.asks_first = f"{call.compensates} took effect, and so whether {call.name} has anything"
        call.asks_first += " to undo"
    elif begun := item.get("begun"):
        call.asks_first = f"{begun}, which was under way, has undone {call.compensates}"
    call.point = ""
    if call.policy == "fail":
        call.policy = "ask"  # nobody is there to catch the doubt
    return call


_as_tool = per_function(lambda function: RecordedFunction("tool", function))


def undoes(error: Exception) -> bool:
    """Returns True if an error that leaves an agent function is the end of its run."""
    kept = isinstance(error, NeedsAttention | NotLoadedError) or lacking(error) is not None
    return not kept


def compensated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns an agent function as it is called: if ``compensate=True``, what it did is undone
    before it fails. What cannot be undone in there, or is left by another end, is undone in a turn
    of its own."""
    if not spec_of(function).compensate:
        return function
    if is_async(function):

        async def call_async(run: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return _storable(function, await function(run, *args, **kwargs))
            except Exception as error:
                if undoes(error):
                    with suppress(Exception):
                        await run.compensate()
                raise

        return call_async

    def call(run: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return _storable(function, function(run, *args, **kwargs))
        except Exception as error:
            if undoes(error):
                with suppress(Exception):
                    run.compensate()
            raise

    return call


def _storable(function: Callable[..., Any], result: Any) -> Any:
    """Checks that a run can end with this result, as long as what it did can be undone."""
    if not isinstance(result, Again):
        results_of(function).take(result)
    return result
