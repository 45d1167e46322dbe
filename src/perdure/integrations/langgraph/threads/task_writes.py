"""Writes of a task: encoded, and brought in, by the checkpoint behind them or by who has them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP

from perdure.adapters import ForeignLogs, LoopWait, bell
from perdure.core.arguments.names import check_text
from perdure.integrations.langgraph.threads.queued_writes import PATIENCE_S, TOGETHER_MAX, Request
from perdure.integrations.langgraph.threads.thread import Thread
from perdure.integrations.langgraph.threads.write_records import Write
from perdure.integrations.langgraph.values import thread_names
from perdure.integrations.langgraph.values.rich_values import Coder


def request_of(
    coder: Coder,
    namespace: str,
    checkpoint_id: str | None,
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str,
) -> Request | None:
    """Returns the request for writes; None if there are no writes.

    Raises:
        ValueError: the config names no checkpoint.
        TypeError: the name of a channel is not a text.
        Unstorable: a value cannot be stored; names its path.
    """
    if checkpoint_id is None:
        raise ValueError("writes are for a checkpoint: the config has no checkpoint_id")
    if not writes:
        return None
    encoded = [
        (
            WRITES_IDX_MAP.get(channel, index),
            channel if type(channel) is str else thread_names.channel_of(channel),
            coder.encode(value, (channel,), "writes"),
        )
        for index, (channel, value) in enumerate(writes)
    ]
    # No checkpoint follows an error or an interrupt, whose indexes are negative.
    return Request(
        namespace,
        checkpoint_id,
        Write(check_text(str(task_id), "task_id"), check_text(task_path, "task_path"), encoded),
        patient=encoded[0][0] >= 0 and not _precedes(str(task_id)),
    )


def _precedes(task_id: str) -> bool:
    """Returns True if LangGraph hands over these writes at the end with ``durability="exit"``,
    before the checkpoint that waits for them: their ids begin with the number of a step, or with
    the greatest there is. A task's own id looks like that once in 40,000 times; then its writes are
    a commit by themselves."""
    group = task_id[:8]
    return group == "ffffffff" or (group.startswith("000") and group.isdigit())


def settle(thread: Thread, request: Request) -> None:
    """Returns when writes are durable.

    Raises:
        What refused them.
    """
    gate = threading.Lock()
    gate.acquire()
    request.wake = gate.release
    thread.queue.ask(request)
    try:
        for seconds in thread.queue.rounds(request, TOGETHER_MAX):
            gate.acquire(timeout=seconds)
        if not request.done:
            thread.settle(request)
    finally:
        thread.queue.close(request)
    if request.error is not None:
        raise request.error


async def settle_in_loop(logs: ForeignLogs, thread: Thread, request: Request) -> None:
    """Settles a request; see `settle`. While it waits it uses none of the store's few threads: the
    checkpoints that it waits for need these."""
    thread.queue.ask(request)
    try:
        for seconds in thread.queue.rounds(request):
            await _pause(request, seconds)
        if not request.done:
            async with thread.turns.next():
                if not request.done:
                    await logs.in_thread(thread.settle, request)
    except asyncio.CancelledError:
        while not request.done and not thread.queue.withdraw(request):  # they are in a commit
            with suppress(asyncio.CancelledError):
                await _pause(request, PATIENCE_S)
        raise
    finally:
        thread.queue.close(request)
    if request.error is not None:
        raise request.error


async def _pause(request: Request, seconds: float) -> None:
    wait = LoopWait(bell())
    request.wake = wait.done
    if request.done:  # looked at behind that: who settles it does these in the other order
        return
    await wait.rest(seconds)
