"""Transactions that tools hold open over their bodies: `@tool(transaction=…)`.

The effect of such a tool and the word that it happened are one commit of the other database: the
outcome is stored there under the call's idempotency key, in the same transaction. Whoever finds the
call in doubt looks that up (I5):

1. the intent is durable here; 2. the other database begins, and claims the key; 3. the body runs;
4. the outcome is stored under the key; 5. the other database commits; 6. the outcome is durable
here. A crash before the end of 5 leaves no effect, one after it leaves the outcome to be found.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any, Protocol
from uuid import uuid4
from weakref import WeakKeyDictionary

from perdure.core.values import codec
from perdure.engine.execution.current_run import current
from perdure.engine.execution.performer import drive
from perdure.engine.journal.effects import drive_async
from perdure.engine.journal.failures import words
from perdure.engine.journal.replay import NOT_DONE
from perdure.engine.journal.values import Results, is_async, label
from perdure.errors import NeedsAttention, OutsideRun, TimedOut
from perdure.system import logs

_log = logs.logger("perdure.engine")

_Calls = Generator[Callable[[], Any], Any, Any]
"""Yields functions to be called one after the other; a coroutine awaits what they return."""


class Transaction(Protocol):
    """A transaction of another system, which the opener in ``transaction=`` returns.

    In an ``async def`` tool its methods may be coroutines; if `begin` is not, it blocks the event
    loop, and one such transaction at a time is open there. `commit` and `rollback` end it, and give
    back what it holds, such as a connection.
    """

    def begin(self, key: str) -> Any:
        """Begins, and claims the key: another transaction that has it, and has not ended, is waited
        for, or this raises. Returns what an earlier one with the key has committed, bytes; None if
        none has."""

    def commit(self, outcome: bytes) -> Any:
        """Stores the outcome under the key, and commits."""

    def rollback(self) -> Any:
        """Takes back everything. Also called after a `begin` or `commit` that failed."""


_open: ContextVar[Any] = ContextVar("perdure_transaction")


def transaction() -> Any:
    """Returns the open transaction of the tool that is being called, as the opener in its
    ``transaction=`` made it.

    Raises:
        OutsideRun: no such tool is being called.
    """
    try:
        return _open.get()
    except LookupError:
        raise OutsideRun(
            "there is a transaction only inside a tool that has one",
            hint="@perdure.tool(transaction=…) opens it before the tool's body, and ends it after",
        ) from None


def in_transaction(
    function: Callable[..., Any], opener: Callable[[], Any], results: Callable[[], Results]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns a function in a transaction, and the probe that finds out about calls of it.

    Args:
        results: returns how the function's results are stored.
    """

    def held(args: Any, kwargs: Any) -> _Calls:
        return _held(opener, functools.partial(function, *args, **kwargs), results(), function)

    async def in_its_turn(calls: _Calls) -> Any:
        async with contextlib.AsyncExitStack() as turn:
            opening = functools.partial(_enter_turn, turn)
            return await drive_async(calls, opening)

    if is_async(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            return await in_its_turn(held(args, kwargs))

        async def probe_async(*_: Any, **__: Any) -> Any:
            return await in_its_turn(_probed(opener, results()))

        return call_async, probe_async

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return drive(held(args, kwargs), lambda wanted: wanted())

    def probe(*_: Any, **__: Any) -> Any:
        return drive(_probed(opener, results()), lambda wanted: wanted())

    return call, probe


async def _enter_turn(turn: contextlib.AsyncExitStack, wanted: Callable[[], Any]) -> Any:
    """Makes a call for a coroutine. Before a transaction begins that blocks its event loop, the one
    before it must have ended: it waits for what that has claimed, and that for the loop."""
    if isinstance(wanted, _Begin) and not is_async(wanted.opened.begin) and not wanted.waited:
        lock = _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        await turn.enter_async_context(lock)
    got = wanted()
    return await got if isinstance(got, Awaitable) or isawaitable(got) else got


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class _Begin:
    """The call that begins a transaction.

    Attributes:
        waited: another one of the same tool call was open before it.
    """

    def __init__(self, opened: Any, key: str, *, waited: bool = False) -> None:
        self.opened, self.waited = opened, waited
        self._key = key

    def __call__(self) -> Any:
        return self.opened.begin(self._key)


def _held(
    opener: Callable[[], Any],
    body: Callable[[], Any],
    results: Results,
    function: Callable[..., Any],
) -> _Calls:
    key = _key()
    opened = _checked((yield opener), opener)
    ended = False
    try:
        found = yield _Begin(opened, key)
        if found is not None:
            return _read(found, results)
        before = _open.set(opened)
        try:
            value = yield body
        finally:
            _open.reset(before)
        # What cannot be stored raises here: nothing has happened then.
        outcome = codec.encode(results.take(value))
        _check_wanted()
        try:
            yield lambda: opened.commit(outcome)
        except Exception as error:
            ended = True
            yield from _rolled_back(opened)  # it may hold what the look-up needs
            return (yield from _after_failed_commit(opener, key, results, error, function))
        ended = True
        return value
    finally:
        if not ended:
            yield from _rolled_back(opened)


def _checked(opened: Any, opener: Callable[[], Any]) -> Any:
    """Returns what the opener made.

    Raises:
        TypeError: it is no transaction.
    """
    for name in ("begin", "commit", "rollback"):
        if not callable(getattr(opened, name, None)):
            raise TypeError(
                f"transaction={label(opener)} returned a {type(opened).__name__}, which has no "
                f"{name}(): it returns a perdure.types.Transaction"
            )
    return opened


def _rolled_back(opened: Any) -> _Calls:
    try:
        yield lambda: opened.rollback()
    except Exception as error:  # what has no connection any more is rolled back by its server
        _log.warning("rolling back a transaction: %s: %s", type(error).__name__, words(error))


def _looked_up(opener: Callable[[], Any], key: str, *, waited: bool = False) -> _Calls:
    """Returns the outcome that a transaction with this key committed. None is sure: the key was
    claimed, and so no other transaction with it can commit any more."""
    opened = _checked((yield opener), opener)
    try:
        return (yield _Begin(opened, key, waited=waited))
    finally:
        yield from _rolled_back(opened)


def _after_failed_commit(
    opener: Callable[[], Any],
    key: str,
    results: Results,
    error: Exception,
    function: Callable[..., Any],
) -> _Calls:
    """Finds out what a commit has done that failed: its answer may be lost.

    Raises:
        Exception: `error`: it has done nothing. NeedsAttention: nobody knows.
    """
    try:
        found = yield from _looked_up(opener, key, waited=True)
    except Exception as failed:
        raise NeedsAttention(
            f"its transaction may be committed: that failed ({type(error).__name__}: "
            f"{words(error)}), and so did looking it up ({type(failed).__name__}: {words(failed)})",
            target=f"tool {label(function)}",
            hint="once its database answers, resume the run: it is looked up again",
        ) from error
    if found is None:
        raise error
    return _read(found, results)


def _probed(opener: Callable[[], Any], results: Results) -> _Calls:
    found = yield from _looked_up(opener, _key())
    return NOT_DONE if found is None else _read(found, results)


def _read(found: bytes, results: Results) -> Any:
    return results.build(codec.decode(bytes(found)))


def _key() -> str:
    """The idempotency key of the call; outside of runs each call is one of its own."""
    frame = current()
    return frame.key if frame is not None and frame.key is not None else uuid4().hex


def _check_wanted() -> None:
    """Checks that the attempt still counts.

    Raises:
        TimedOut: it took too long, and its call has gone on without it.
    """
    frame = current()
    if frame is not None and frame.attempt is not None and frame.attempt.over:
        raise TimedOut("this attempt was given up: its transaction is rolled back")
