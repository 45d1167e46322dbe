"""`@step` and `@tool`: plain functions that, inside a run, are recorded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MethodType
from typing import (
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    overload,
)

from perdure.core.arguments.checks import Seconds, one_of
from perdure.core.arguments.checks import function as check_function
from perdure.core.arguments.names import check_name, check_point, point_before, shown
from perdure.core.format.record_parts import KeptForUndo
from perdure.core.schema.value_digest import class_label, digest, is_known
from perdure.engine.execution.current_run import current, driving
from perdure.engine.execution.driven_run import DrivenRun
from perdure.engine.functions.undoing import Undo, note_undo
from perdure.engine.journal.call import Call, CrashPolicy, StepDurability
from perdure.engine.journal.call_identity import (
    SELF,
    Captured,
    Home,
    Unsaid,
    bound_to,
    captured_by,
    declared,
    defaults_of,
    digests,
    is_shared,
    note_home,
)
from perdure.engine.journal.left_out import LeftOut, check_record_args, words_for
from perdure.engine.journal.retries import NO_LIMITS, Limits, Retry
from perdure.engine.journal.values import (
    Binding,
    Results,
    is_async,
    label,
    refuse_generator,
)
from perdure.errors import OutsideRun, PerdureError
from perdure.system.late_imports import is_short, loading

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MARK = "__perdure__"
"""The attribute by which a function is known for what it was made."""

WAITS: tuple[StepDurability, ...] = ("sync", "group")
POLICIES: tuple[CrashPolicy, ...] = ("retry", "probe", "ask", "fail")


class RecordedFunction:
    """The recording of calls of one function; set on it by `@step` and `@tool`."""

    def __init__(
        self,
        kind: Literal["step", "tool"],
        function: Callable[..., Any],
        name: str | None = None,
        returns: Any = None,
        limits: Limits = NO_LIMITS,
        policy: CrashPolicy = "ask",
        probe: Callable[..., Any] | None = None,
        identity: Callable[..., Any] | None = None,
        point: bool | str = False,
        transaction: Callable[[], Any] | None = None,
        record_args: bool | Callable[..., Any] = True,
        compensate: Callable[..., Any] | None = None,
    ) -> None:
        check_function(function, f"what is recorded as a {kind}")
        refuse_generator(function)
        self.kind = kind
        self.function = function
        self.name = label(function) if name is None else check_name(name, f"a {kind}")
        self.decorated: Any = function
        self.durability: StepDurability | None = None
        self._point = point if type(point) is str else point_before(self.name) if point else ""
        self._returns = returns
        self._limits = limits
        self._policy = policy
        self._body, self._probe = function, probe
        self._results: Results | None = None
        if transaction is not None:
            with loading:
                from perdure.engine.functions.transactions import in_transaction  # for few

            self._body, self._probe = in_transaction(function, transaction, self._known_results)
        self._binding = Binding(function)
        self._bound = bound_to(function)
        if identity is not None:
            check_function(identity, "identity=")
        self._identity = identity
        if record_args is True and _leaves_out(function):
            record_args = False
        self._shows = check_record_args(record_args, function)
        self._undo = None if compensate is None else Undo(compensate, function, self._shows)
        if self._undo is not None:
            note_undo(self.name, str(getattr(function, "__module__", "")), self._undo)
        told = kind == "step" or identity is not None
        self._captured = {} if told else captured_by(function)
        self._defaults = {} if told else defaults_of(function)
        home = note_home(self.name, function, self._defaults) if kind == "tool" else None
        self._home: Home | None = home
        self._made = bool(self._captured or (home and home.made and not told))

    def call(
        self,
        execution: DrivenRun[Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        again: bool = False,
    ) -> Call:
        """Returns one call, as the function makes it. `again`: to see if that fails by itself."""
        try:
            results = self._results or self._known_results()
            arguments = self._binding.bind(args, kwargs)
            if self._bound:
                arguments = {**self._bound, **arguments}
            unknown: list[Any] = []
            unsaid = None
            if self._identity is None:
                told = digests(arguments, unknown)
            else:
                told = declared(self._identity(*args, **kwargs), unknown)
            left_out, keys = None, execution.working.context.digest_keys
            if self._shows is not True:
                left_out = LeftOut(words_for(self._shows, arguments, args, kwargs), told)
                told = keys.seal(told, keys.newest)
            if unknown:
                unsaid = Unsaid(self.name, self.kind, told, unknown, execution.calls.met)
                if not is_known(told.get(SELF, "-")):
                    del arguments[SELF]  # its repr has an address, another one each time
            captured, home = None, self._home
            if home is not None and (self._made or is_shared(self.name)):
                values = self._captured
                if self._defaults:
                    values = {**values, **self._binding.not_passed(self._defaults, arguments)}
                captured = Captured(self.name, told, values, home, execution.calls.met)
            function, probe, fakes = self._body, self._probe, execution.fakes
            if fakes:
                function, probe = fakes.get(self.decorated, function), fakes.get(probe, probe)
            return Call(
                execution.id,
                self.name,
                self.kind,
                function,
                args,
                kwargs,
                told,
                arguments,
                results,
                self._policy,
                probe,
                self._limits,
                "",
                "",
                "",
                unsaid,
                captured,
                home.module if home is not None else "",
                self._point,
                keys,
                self.durability,
                left_out,
                None if self._undo is None else self._kept(self._undo, execution, args, kwargs),
            )
        except PerdureError:
            raise
        except Exception as error:
            # Code of its arguments runs in this, too.
            if not again and self._comes_from_outside(execution, args, kwargs):
                raise execution.leaving.passed_on(error) from None
            raise

    def _kept(
        self,
        undo: Undo,
        execution: DrivenRun[Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> KeptForUndo:
        """Returns what is kept of a call for its compensation."""
        execution.calls.undos.setdefault(self.name, {})[id(undo.function)] = undo
        return KeptForUndo(tool=self.name, args=undo.kept(args, kwargs))

    def _known_results(self) -> Results:
        if self._results is None:  # only now: annotations may name classes that come later
            self._results = Results(self.function, self._returns)
        return self._results

    def _comes_from_outside(
        self, execution: DrivenRun[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> bool:
        """Returns True if an exception raised while a call was built does not come from the call
        itself."""
        try:
            self.call(execution, args, kwargs, again=True)
        except Exception as error:
            return is_short(error)
        return True

    def settle_bound(self, *, named: bool) -> None:
        """Settles that the object which the function is bound to is the same in all calls, and so
        known by the name.

        Raises:
            TypeError: a tool's name is not its own, but its class's.
        """
        unknown: list[Any] = []
        known = {name for name, one in self._bound.items() if is_known(digest(one, unknown))}
        if self.kind == "tool" and unknown and not named and self._identity is None:
            raise TypeError(
                f"nothing tells this {class_label(type(unknown[0]))}, which {self.name} is bound "
                "to, from another one: give the tool a name= of its own, or say in the class "
                "`__perdure_key__ = property(lambda self: self.…)`"
            )
        if named:
            self._bound = {name: one for name, one in self._bound.items() if name in known}

    def recorder(self) -> DrivenRun[Any] | None:
        """Returns the run in which a call made here is to be recorded; None for a plain call of the
        function.

        Raises:
            OutsideRun, PerdureError: a tool is called where none may be.
        """
        frame = current()
        if frame is None:
            if self.kind == "tool":
                _refuse_unrecorded(self.name)
            return None
        if frame.inside == "function":  # as most calls are; its run is None in what is unrecorded
            return frame.run
        if frame.run is None or (self.kind == "step" and frame.inside in ("step", "tool")):
            return None  # a step inside a step is plain
        if self.kind == "tool":
            raise PerdureError(
                f"a tool call inside a{'n' if frame.inside == 'edit' else ''} {frame.inside}",
                target=f"tool {self.name}",
                hint="call it from the agent function itself, or wrap it in "
                "perdure.unrecorded(…) if it must not be recorded",
            )
        return frame.run

    def decorate(self) -> Any:
        """A function of the same kind, recorded inside runs."""
        function, body = self.function, self._body
        if is_async(function):

            @functools.wraps(function)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                run = self.recorder()
                if run is None:
                    return await body(*args, **kwargs)
                return await run.async_performer.make(self.call(run, args, kwargs))

            call: Any = call_async
        else:

            @functools.wraps(function)
            def call_sync(*args: Any, **kwargs: Any) -> Any:
                run = self.recorder()
                if run is None:
                    return body(*args, **kwargs)
                if run.loop_thread:
                    run.warn_if_blocking(self.name)
                return run.performer.make(self.call(run, args, kwargs))

            call = call_sync
        if not hasattr(function, "__qualname__"):  # a partial, or an object: tasks are named by it
            call.__name__ = call.__qualname__ = label(function)
        self.decorated = call
        setattr(call, MARK, self)
        return call


def mark_of(function: Callable[..., Any]) -> RecordedFunction | None:
    """Returns the recording of calls of a step or tool, or of a method that is one. A wrapper has
    its own ways: it is neither, though `functools.wraps` copies the mark of what it wraps."""
    mark = getattr(function, MARK, None)
    if not isinstance(mark, RecordedFunction):
        return None
    own = function.__func__ if isinstance(function, MethodType) else function
    return mark if mark.decorated is own else None


def _leaves_out(function: Callable[..., Any]) -> bool:
    """Returns True if a callable is a partial or wrapper of a step or tool that leaves arguments
    out of the log: which of its own those are, nobody says."""
    while isinstance(function, functools.partial):
        function = function.func
    mark = getattr(function, MARK, None)  # which `functools.wraps` copies
    return isinstance(mark, RecordedFunction) and mark._shows is not True


@overload
def step(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    returns: Any = None,
    retry: Retry | int | None = None,
    timeout: Seconds | None = None,
    total_timeout: Seconds | None = None,
    heartbeat_timeout: Seconds | None = None,
    identity: Callable[..., Any] | None = None,
    record_args: bool | Callable[..., Any] = True,
    durability: StepDurability | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def step(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    returns: Any = None,
    retry: Retry | int | None = None,
    timeout: Seconds | None = None,
    total_timeout: Seconds | None = None,
    heartbeat_timeout: Seconds | None = None,
    identity: Callable[..., Any] | None = None,
    record_args: bool | Callable[..., Any] = True,
    durability: StepDurability | None = None,
) -> Any:
    """A function without outside effects: inside a run its result is recorded, and not computed
    again when the run resumes. After a crash in the middle it is simply called again.

    Outside a run it is just the function, `retry` and timeouts left aside.

    Args:
        name: its name in journals; default: the function's own. It must stay the same.
        returns: the type of its result, where the annotation does not say it.
        retry: when it is tried again after it raised: a `Retry`, or a number of attempts.
        timeout: how long one attempt may take; `total_timeout`: all of them, with their pauses.
            A synchronous function cannot be ended from outside: it is left to itself.
        heartbeat_timeout: how long it may go without `perdure.heartbeat()`.
        identity: what tells one call from another, as a function of the same arguments; default:
            the arguments themselves, with the object whose method it is.
        record_args: False keeps the arguments out of the log: people see ``…``, and calls are told
            apart by digests made with the store's `digest_key`. A function of the same arguments
            returns what people may see of them: a dict by names, or any other value. Results and
            exceptions of the function are recorded as ever.
        durability: ``"group"``: its result need not be on disk before the function goes on; what a
            power loss takes is computed again. ``"sync"``: it must be. Default: as the store.

    Raises (when called):
        TimedOut: it took too long, and is not tried again.
    """
    name = None if name is None else check_name(name, "a step")
    waits = None if durability is None else one_of(durability, "durability=", WAITS)
    limits = Limits.of(retry, timeout, total_timeout, heartbeat_timeout)

    def decorate(target: Any) -> Any:
        recorded = RecordedFunction(
            "step", target, name, returns, limits, identity=identity, record_args=record_args
        )
        recorded.durability = waits
        recorded.settle_bound(named=name is not None)
        return recorded.decorate()

    return decorate if function is None else decorate(function)


@overload
def tool(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def tool(
    *,
    on_crash: CrashPolicy = "ask",
    probe: Callable[..., Any] | None = None,
    name: str | None = None,
    returns: Any = None,
    retry: Retry | int | None = None,
    timeout: Seconds | None = None,
    total_timeout: Seconds | None = None,
    heartbeat_timeout: Seconds | None = None,
    identity: Callable[..., Any] | None = None,
    checkpoint: bool | str = False,
    transaction: Callable[[], Any] | None = None,
    record_args: bool | Callable[..., Any] = True,
    compensate: Callable[..., Any] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def tool(
    function: Any = None,
    /,
    *,
    on_crash: CrashPolicy = "ask",
    probe: Callable[..., Any] | None = None,
    name: str | None = None,
    returns: Any = None,
    retry: Retry | int | None = None,
    timeout: Seconds | None = None,
    total_timeout: Seconds | None = None,
    heartbeat_timeout: Seconds | None = None,
    identity: Callable[..., Any] | None = None,
    checkpoint: bool | str = False,
    transaction: Callable[[], Any] | None = None,
    record_args: bool | Callable[..., Any] = True,
    compensate: Callable[..., Any] | None = None,
) -> Any:
    """Makes a function with outside effects a tool: its intent is durable before it is called, its
    outcome before its caller sees it. After a crash in between, `on_crash` decides, never chance:

    - ``"ask"`` (default): the run needs attention until a person settles the call;
    - ``"retry"``: it is called again, with the same `idempotency_key`;
    - ``"probe"``: the outside world decides: `probe`, called with the same arguments, returns the
      result if the call took effect, or `NOT_DONE`;
    - ``"fail"``: the call raises `InDoubt` in the agent function.

    Exactly once needs the receiver's help: pass `idempotency_key()` on, or have a probe.

    Args:
        name, returns, retry, timeout, total_timeout, heartbeat_timeout, identity, record_args: as
            for `step`. Each attempt has an intent of its own, and all have the same idempotency
            key. One that took too long is in doubt: `on_crash` decides.
        checkpoint: True names the state before each call as a checkpoint, ``before refund``, then
            ``before refund#2``; a text is another name. It costs no further commit.
        transaction: opens a `Transaction` of another system, such as `sql_transaction`, around the
            body. The outcome is stored with the effect, which happens exactly once.
        compensate: a tool or function that undoes a call: ``refund(receipt, cents)`` gets its
            result, and those of its arguments that it names; see `Run.compensate`.

    Raises:
        TypeError: it is bound to an object that cannot be distinguished from others.

    Raises (when called):
        NeedsAttention: an argument, or the object whose method it is, cannot be distinguished from
            others; the run stops before anything is recorded of the call.
        OutsideRun: the call is outside any run, in a process that is driving runs.
        PerdureError: inside a step, another tool or an open edit.
    """
    on_crash = _policy(on_crash, probe, transaction)
    name = None if name is None else check_name(name, "a tool")
    limits = Limits.of(retry, timeout, total_timeout, heartbeat_timeout)
    point = checkpoint if type(checkpoint) is bool else check_point(checkpoint)

    def decorate(target: Any) -> Any:
        options = on_crash, probe, identity, point, transaction, record_args, compensate
        recorded = RecordedFunction("tool", target, name, returns, limits, *options)
        recorded.settle_bound(named=name is not None)
        return recorded.decorate()

    return decorate if function is None else decorate(function)


def _policy(on_crash: CrashPolicy, probe: Any, transaction: Any) -> CrashPolicy:
    """Returns the crash policy of a tool with these options."""
    on_crash = one_of(on_crash, "on_crash=", POLICIES)
    if transaction is not None:
        check_function(transaction, "transaction=, what opens one,")
        if probe is not None or on_crash != "ask":
            raise ValueError(
                "transaction= finds out by itself what a call in doubt has done: leave out "
                "on_crash= and probe="
            )
        return "probe"
    if (on_crash == "probe") != (probe is not None):
        raise ValueError('on_crash="probe" needs probe=, a function that looks whether it was done')
    if probe is not None and not callable(probe):
        raise TypeError(f"probe= is a function, not {shown(probe)}")
    return on_crash


def _refuse_unrecorded(title: str) -> None:
    if driving():
        raise OutsideRun(
            "called where no run can be seen, while this process is driving runs",
            target=f"tool {title}",
            hint="a bare thread loses the run's context: call tools from the agent function, "
            "through run.map or run.executor, or say perdure.unrecorded(tool)(…) if it must not "
            "be recorded",
        )
