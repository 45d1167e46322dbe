"""Runs that a run starts: asked for along with the record of it, and waited for like a signal."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.arguments.bounds import RUN_ID_BYTES_MAX
from perdure.core.arguments.checks import Seconds, flag
from perdure.core.arguments.names import check_name
from perdure.core.format import records
from perdure.core.format.record_parts import StartedChild
from perdure.engine.execution.execution import Execution
from perdure.engine.functions.agent_functions import spec_of
from perdure.engine.functions.orders import Order, deadline_us, run_id
from perdure.engine.functions.run_lookup import find_run
from perdure.engine.functions.turn_end import handed_on
from perdure.engine.journal.call_identity import KEY, digests
from perdure.engine.journal.deleted_runs import find_stranger, trace_of
from perdure.engine.journal.effects import Arrive, Arrived, Carried, Effect, Effects, RecordEffect
from perdure.engine.journal.failures import error_record, rebuild_error
from perdure.engine.journal.left_calls import LEFT
from perdure.engine.journal.previews import preview
from perdure.engine.journal.run_log import lineage
from perdure.engine.journal.values import binding_of, fitting
from perdure.errors import Conflict, NeedsAttention, NotFound, PerdureError
from perdure.missing import MISSING
from perdure.model import Message, RunInfo
from perdure.state.initial_state import Brought
from perdure.state.runs.family_messages import agent_of
from perdure.state.runs.parentage import Origin
from perdure.storage.appending import Riders
from perdure.storage.log.refusals import BegunError
from perdure.system import shell
from perdure.visible import visible

INCARNATION_BYTES_MAX = 12
"""Of a run's id: what tells later agents of the name apart."""


class ChildOptions(Struct):
    """See `Run.options`."""

    key: str | None
    queue: str
    let_live: bool
    initial: Any = MISSING
    deadline: Seconds | None = None
    time_limit: Seconds | None = None

    def __post_init__(self) -> None:
        if self.key is not None:
            self.key = check_name(self.key, "a run's key")
        self.queue = check_name(self.queue, "a queue")
        flag(self.let_live, "let_live=")
        deadline_us(self.deadline)
        deadline_us(self.time_limit, "time_limit=")


def _find_started(execution: Execution[Any], child: str) -> RunInfo | None:
    with execution.asking:
        try:
            return find_run(execution.context.backend, child)
        except NotFound:
            return None


def _find_problem(
    execution: Execution[Any], child: str, order: Order, info: RunInfo | None
) -> Conflict | None:
    """Returns the reason not to start a child: a run that others requested would not tell this one
    of its end.

    Args:
        info: the run as it is; None: it is not there.
    """
    if info is None:
        return None
    backend, ours = execution.context.backend, False
    if info.parent == execution.id:
        with execution.asking:
            origin = Origin.find(backend, child)
            ours = origin is None or origin.is_of(backend)
    if ours and info.args == order.args:
        return None
    by = f"run {info.parent}" if info.parent else "somebody else"
    if info.parent == execution.id:
        by = "a run of this id in another store"
    return _conflict(child, "with other arguments" if ours else f"by {by}")


def _conflict(child: str, was: str) -> Conflict:
    return Conflict(f"was started {was} already", target=f"run {child}", hint="give it another key")


def started_child(
    execution: Execution[Any],
    function: Callable[..., Any],
    agent: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: ChildOptions,
) -> Effects:
    """Starts a run, once; returns what is recorded of it.

    Raises:
        Unstorable: an argument cannot be stored.
        NeedsAttention: see `handed_on`.
        Conflict: the key is that of a run that another one started, or with other arguments.
        ValueError: the names of agent, function and key are too long together.
        SchemaError: its agent is not there, and its schema makes no state to create it with.
    """
    spec = spec_of(function)
    arguments = binding_of(function).bind(args, kwargs)
    # Errors are found before it has a place: nothing is recorded of them.
    key, queue, parent = options.key or "main", options.queue, execution.id
    trace = execution.working.trace
    order = handed_on(
        parent,
        lambda: Order.of(
            function,
            agent,
            key,
            args,
            kwargs,
            queue=queue,
            parent=parent,
            deadline=options.deadline,
            time_limit=options.time_limit,
            trace=trace,
        ),
    )
    if not options.let_live:
        order = replace(order, until_us=execution.ends.deadline)
    _check_id(execution, order, options)

    def first() -> Brought:
        way = "run.options(initial={}).start(…)"
        made = Brought.of(spec.schema, options.initial, agent, way)
        fitting(made.state, "initial")
        return made

    if options.initial is not MISSING:
        order = replace(order, first=first())
    described = {"(agent)": agent, **arguments}
    if options.key is not None:  # half of the name of what is started
        described[KEY] = options.key
    return _start(execution, spec.name, order, described, options, first)


def _start(
    execution: Execution[Any],
    function: str,
    order: Order,
    described: Mapping[str, Any],
    options: ChildOptions,
    first: Callable[[], Brought],
) -> Effects:
    """See `started_child`. `first`: makes the state to create the agent with."""
    if execution.played is not None:
        raise execution.played.no_children(function, execution.id)
    name = f"start:{function}"
    told = digests(described)
    arrived = yield Arrive(name, "step", told, lambda: preview(described), outside=True)
    recorded = arrived.entry.outcome if arrived.entry is not None else None
    if recorded is not None and not recorded.not_done:
        return _started(execution, recorded, arrived)
    if options.key is None:
        # The place alone would be the same again in the run's next turn.
        order = replace(order, key=_made_key(function, arrived.key))
    with execution.asking:
        child = order.run_id(execution.context.backend)
    record = records.Outcome(
        t="step", run=execution.id, place=arrived.place, args=told, preview=preview(described)
    )
    asked = arrived.entry
    if asked is not None and asked.asked:
        if recorded is None:
            raise _started_before(execution, arrived.place, asked.call)
        record = replace(record, made=asked.call.made)
    if arrived.made is not None and (arrived.made.key or options.key is None):
        taken = yield from _decide_again(execution, arrived, record, child)
        if taken is not None:
            return taken
        record = replace(record, made=arrived.made.key)
    order = replace(order, origin=execution.journal.origin)
    return (yield from _ask_for(execution, record, order, child, options, first))


def _ask_for(
    execution: Execution[Any],
    record: records.Outcome,
    order: Order,
    child: str,
    options: ChildOptions,
    first: Callable[[], Brought],
) -> Effects:
    """Asks for a child, or finds that it is there; see `_start`."""
    started = StartedChild(run=child, agent=order.agent, let_live=options.let_live)
    while True:
        found = _find_started(execution, child) if options.key is not None else None
        problem = _find_problem(execution, child, order, found)
        if problem is not None and _is_of_a_relative(execution, child, order):
            return (yield from _take_over(record, child))
        if problem is None and execution.calls.starting.setdefault(child, order.args) != order.args:
            problem = _conflict(child, "with other arguments")
        if problem is not None:
            yield RecordEffect(Riders((replace(record, error=error_record(problem)),)))
            raise problem
        with execution.asking:
            info = execution.context.backend.agent(order.agent)
        if (info is None or info.deleted) and order.first is None:
            try:
                order = replace(order, first=first())
            except PerdureError as error:  # on replay the agent may be there
                yield RecordEffect(Riders((replace(record, error=error_record(error)),)))
                raise
        message = Message(child, order.agent, "start", order.function, "", order.to_plain())
        riders = Riders((replace(record, value=child, child=started),), sync=True, sends=(message,))
        if options.key is not None and found is None:
            riders = replace(riders, fresh=(child,))
        try:
            yield RecordEffect(riders)
        except BegunError:  # another run started it since: it is found now
            continue
        execution.wakeups.tell(child)
        return started


def _check_id(execution: Execution[Any], order: Order, options: ChildOptions) -> None:
    """Refuses names that are too long together, before the start has a place."""
    if options.key is None:
        order = replace(order, key=_made_key(order.function, "0" * 32))
    named = run_id(order.agent, order.function, order.key)
    if len(named.encode()) > RUN_ID_BYTES_MAX - INCARNATION_BYTES_MAX:
        with execution.asking:
            order.run_id(execution.context.backend)


def _made_key(function: str, key: str) -> str:
    """Returns the key of a run that is given none, by that of the call that starts it. 64 bits tell
    all runs of one function and agent apart, and people can still read them out."""
    return f"{function[:80]}-{key[:16]}"


def _decide_again(
    execution: Execution[Any], arrived: Arrived, record: records.Outcome, child: str
) -> Generator[Effect, Any, records.StartedChild | None]:
    """Decides if a run that was started before this one was set back, or by the one that it was
    forked from, is taken: another is not started without a decision.

    Args:
        child: the id of the one that would be started. Under a key of its own it is the same: then
            there is nothing to decide.

    Returns:
        The run to take; None if another must be started.
    """
    made = arrived.made
    assert made is not None
    same = made.had(record.args)
    wanted = made.key == child or (arrived.effects == "reuse" and same)
    if wanted and made.key and _is_known(execution, made.key):
        return (yield from _take_over(record, made.key))
    if arrived.effects == "live":
        return None
    asked = records.Intent(
        run=record.run,
        place=record.place,
        args=record.args,
        preview=record.preview,
        kind="step",
        key=arrived.key,
        policy="ask",
        attempt=0,
        made=made.key,
        made_at=made.seq,
    )
    yield RecordEffect(Riders((asked,), sync=True))
    raise _started_before(execution, arrived.place, asked)


def _take_over(record: records.Outcome, child: str) -> Generator[Effect, Any, records.StartedChild]:
    """A run that was started already, instead of another. It stays with the one that started it:
    that this run is cancelled does not end it."""
    taken = StartedChild(run=child, agent=agent_of(child), let_live=True)
    record = replace(record, value=child, made=child, child=taken)
    yield RecordEffect(Riders((record,), sync=True))
    return taken


def _is_of_a_relative(execution: Execution[Any], child: str, order: Order) -> bool:
    """Returns True if a run that this one would start was started, in the same way, by a fork of
    it, or by one that it was forked from, or by another fork of that. The order in which they reach
    the start under a key is chance: for the next one it was started before."""
    backend = execution.context.backend
    with execution.asking:
        info = find_run(backend, child)
        if info.args != order.args or agent_of(info.parent or "") != execution.agent:
            return False
        origin = Origin.find(backend, child)
        if origin is None or not origin.is_of(backend):
            return False
        return not lineage(backend, execution.id).isdisjoint(lineage(backend, info.parent))


def _started_before(execution: Execution[Any], place: str, asked: records.Record) -> NeedsAttention:
    run = asked.made
    if not run:
        return _perhaps_started(execution, place, asked)
    if not _is_known(execution, run):
        return _gone(execution, place, asked)
    settle = "settle", execution.agent, place
    same = shell.perdure(*settle, done=json.dumps(run))
    return NeedsAttention(
        f"run {visible(run)} was started before, at commit {asked.made_at}, {LEFT}: "
        f"{visible(asked.preview)}",
        target=f"run {execution.id}, call {place}",
        hint=f"to take that one, run: `{same}`; to start another one, run: "
        f"`{shell.perdure(*settle, not_done=True)}`; then run it again",
    )


def _is_known(execution: Execution[Any], run: str) -> bool:
    """Returns True if a run can be waited for: it exists, or was requested, or its end is
    recorded."""
    backend = execution.context.backend
    with execution.asking:
        trace = trace_of(backend, execution.id, run)
        try:
            find_run(backend, run)
        except NotFound:
            return trace.end is not None
        return trace.end is not None or find_stranger(backend, execution.id, run, trace) is None


def _gone(execution: Execution[Any], place: str, asked: records.Record) -> NeedsAttention:
    settle = "settle", execution.agent, place
    other, one = shell.perdure(*settle, not_done=True), shell.perdure(*settle, done='"ID"')
    return NeedsAttention(
        f"run {visible(asked.made)} was started before, at commit {asked.made_at}, {LEFT}; it is "
        f"not there, nor is it recorded how it ended: {visible(asked.preview)}",
        target=f"run {execution.id}, call {place}",
        hint=f"to start another one, run: `{other}`; to take one by its id, run: `{one}`; "
        "then run it again",
    )


def _perhaps_started(
    execution: Execution[Any], place: str, asked: records.Record
) -> NeedsAttention:
    settle = "settle", execution.agent, place
    same, other = shell.perdure(*settle, done='"ID"'), shell.perdure(*settle, not_done=True)
    return NeedsAttention(
        f"a run may have been started here before, {LEFT}, as commit {asked.made_at} cannot be "
        f"read: {asked.preview}",
        target=f"run {execution.id}, call {place}",
        hint=f"to take one by its id, as `perdure runs` lists it, run: `{same}`; to start "
        f"another one, run: `{other}`; then run it again",
    )


def _started(
    execution: Execution[Any], outcome: records.Outcome, arrived: Arrived
) -> records.StartedChild:
    if outcome.error is not None:
        raise Carried(rebuild_error(outcome.error, arrived.place))
    child = str(outcome.value)
    if outcome.by == "person" and not _is_known(execution, child):
        raise NeedsAttention(  # whoever settled it may have mistyped it
            f"it was settled with {outcome.value!r:.200}, and there is no such run",
            target=f"run {execution.id}, call {arrived.place}",
            hint="settle it again, with the id of a run",
        )
    if outcome.child is not None and outcome.child.run == child:
        return outcome.child
    return records.StartedChild(run=child, agent=agent_of(child), let_live=True)
