"""Runs executed on a test's own thread, as far as they go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import shown
from perdure.engine.control.run_handle import RunHandle
from perdure.engine.dispatch.command import Command
from perdure.engine.dispatch.drive_end import End, FinishedMeanwhileError
from perdure.engine.dispatch.runner import Runner
from perdure.engine.functions.agent_functions import spec_of
from perdure.errors import PerdureError
from perdure.missing import MISSING
from perdure.model import FINISHED, RunInfo
from perdure.state.initial_state import default_state
from perdure.storage.capabilities import Backend
from perdure.store import Options, Store

R = TypeVar("R")


def run_until_waiting(
    store: Store | Options, function: Callable[..., Any], agent: str, /, *args: Any, **kwargs: Any
) -> RunHandle[Any]:
    """Starts or resumes a run on this thread, until it ends or is unloaded to wait.

    For tests that then move a `Clock`, answer or signal, and call this or `Store.run` again.
    A function that is ``async def`` gets an event loop of its own.

    Args:
        store: or options of it, such as ``store.options(key="msg-17")``.

    Returns:
        A handle of the run, with its result or what it waits for.

    Raises:
        PerdureError: the function is ``async def``, and an event loop is running on this thread.
        Conflict: the run was started with other arguments, or another executor has it.
        NeedsAttention: it stopped, and needs a person.
        Exception: whatever the function raised, now or before.
    """
    options = store.options() if isinstance(store, Store) else store
    if not is_a(options, Options):
        raise TypeError(
            f"store must be an open perdure.Store, or options of it, not {shown(store)}"
        )
    refuse_in_a_loop(function, "run_until_waiting")
    runner = options.runner
    order = options.order(function, agent, args, kwargs, storable=False)
    command = Command(function, order, args, kwargs)
    drive = runner.drive(command)
    handle: RunHandle[Any] = RunHandle(runner.context, runner.wakeups, drive.id).typed(function)
    info = drive.find()
    backend = runner.context.backend
    if info is not None and info.status == "waiting" and not has_news(backend, info):
        return handle
    if info is None or info.status not in FINISHED:
        with suppress(FinishedMeanwhileError):  # as one that was cancelled before it began
            execute(runner, command)
            return handle
        info = runner.drive(command).find()
    if info is not None and info.status in FINISHED:
        drive.recorded(info)
    return handle


def refuse_in_a_loop(function: Callable[..., Any], call: str) -> None:
    """Refuses an ``async def`` function while an event loop is running, as in the body of an
    asynchronous test or a notebook: its own loop cannot run on the same thread.

    Raises:
        PerdureError: an event loop is running; the hint says what to write instead.
    """
    spec = spec_of(function)
    if not spec.is_async:
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise PerdureError(
        "it gets an event loop of its own, and one is running on this thread already",
        target=f"{call} of the asynchronous function {spec.name}",
        hint=f"call it on another thread: await asyncio.to_thread({call}, …), with the same "
        "arguments",
    )


def refuse_without_state(function: Callable[..., Any], state: Any) -> None:
    """Refuses to try a function on an agent of its own without a state that it needs.

    Raises:
        SchemaError: `state` is MISSING, and the function's schema cannot be made without values.
    """
    if state is MISSING:
        spec = spec_of(function)
        words = "its state cannot be made without values"
        default_state(spec.schema, words, f"function {spec.name}", "state={}")


def execute(runner: Runner, command: Command) -> End:
    """Executes a run here until it ends or waits."""
    drive: Any = runner.drive(command)
    runner.liveness.start()
    if command.spec.is_async:
        return in_a_loop(runner.execute_async(drive))
    return runner.execute(drive)


def in_a_loop(work: Coroutine[Any, Any, R]) -> R:
    """Runs a coroutine like `asyncio.run`. That prints the error that its task ends with while it
    checks for Ctrl-C: after an error that cannot be printed it would leave the handler of a closed
    loop."""

    async def ended() -> tuple[list[R], Exception | None]:
        try:
            return [await work], None
        except Exception as error:
            return [], error

    results, error = asyncio.run(ended())
    if error is not None:
        try:
            raise error
        finally:
            del error  # or it would hold itself
    return results[0]


def has_news(backend: Backend, info: RunInfo) -> bool:
    """Returns True if something arrived for a waiting run, or its time has come."""
    if info.wake_at_micros and backend.now() >= info.wake_at_micros:
        return True
    return any(m.no > info.seen or m.kind == "cancel" for m in backend.inbox(info.id))
