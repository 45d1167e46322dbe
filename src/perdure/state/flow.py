"""Operations written once, for callers that wait in a thread and for those that await.

An operation is a generator. It yields what it waits for and is sent the result: a `Proposal` to
commit, or a function that blocks (reads the log) or takes long. Between two yields it only
computes. The driver decides how to wait, so neither face has an implementation of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from perdure.state.context import Context
from perdure.storage.log.proposals import Proposal

R = TypeVar("R")
Wanted = Proposal | Callable[[], Any]
Flow = Generator[Wanted, Any, R]


def drive(context: Context, flow: Flow[R]) -> R:
    """Runs an operation to its end on the calling thread."""
    # An exception may come between any two steps. The operation then ends here, not when its
    # generator is freed, which may be late.
    try:
        wanted = next(flow)
        while True:
            try:
                result = context.submit(wanted) if isinstance(wanted, Proposal) else wanted()
            except BaseException as error:
                wanted = flow.throw(error)
            else:
                wanted = flow.send(result)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    except BaseException:
        flow.close()
        raise


def next_proposal(flow: Flow[Any], outcome: Any) -> Proposal:
    """Sends an operation the outcome of its last proposal (None to begin), and does what it asks
    until it proposes again."""
    wanted = flow.throw(outcome) if isinstance(outcome, BaseException) else flow.send(outcome)
    while not isinstance(wanted, Proposal):
        try:
            result = wanted()
        except BaseException as error:
            wanted = flow.throw(error)
        else:
            wanted = flow.send(result)
    return wanted


async def drive_async(context: Context, flow: Flow[R]) -> R:
    """Runs an operation to its end; its reads run on the store's threads.

    On cancellation it stops where it is: a queued commit is withdrawn, one that is under way is
    awaited. If that landed, the operation is told, so that memory and log agree; it commits nothing
    more.
    """
    cancelled: BaseException | None = None
    try:
        wanted = next(flow)
        while True:
            try:
                if cancelled is not None:
                    raise cancelled
                if isinstance(wanted, Proposal):
                    result: Any = await context.submit_async(wanted)
                else:
                    result = await context.in_thread(wanted)
            except BaseException as error:
                landed = wanted.committed if isinstance(wanted, Proposal) else None
                if landed is None or cancelled is not None:
                    wanted = flow.throw(error)
                    continue
                cancelled, result = error, landed
            wanted = flow.send(result)
    except StopIteration as stop:
        if cancelled is not None:
            raise cancelled from None
        return stop.value  # type: ignore[no-any-return]
