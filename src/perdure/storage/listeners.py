"""Listeners for notices inside this process: the memory backend's way of notifying."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from perdure.system import logs, process_id
from perdure.system.threads import begin

_log = logs.logger("perdure.storage")


def call(callback: Callable[[str], None], run_id: str) -> None:
    """Calls one listener; what it raises is logged."""
    try:
        callback(run_id)
    except Exception:
        _log.exception("a listener raised at the notice for run %s", run_id)


class LocalListeners:
    """A thread for each listener, so that none waits for another, and the notifier for none.

    After a fork the threads are gone: the child has no listeners.
    """

    def __init__(self) -> None:
        self.begin_anew()
        process_id.renew_in_children(self)

    def begin_anew(self) -> None:
        """Forgets the parent's listeners, in a forked child."""
        self._queues: dict[str, SimpleQueue[str | None]] = {}

    def listen(self, executor: str, callback: Callable[[str], None]) -> Callable[[], None]:
        notices: SimpleQueue[str | None] = SimpleQueue()
        before = self._queues.get(executor)
        self._queues[executor] = notices
        if before is not None:
            before.put(None)
        thread = threading.Thread(
            target=_serve, args=(notices, callback), name="perdure-listener", daemon=True
        )
        try:
            begin(thread)
            return partial(self._end, executor, notices)
        except BaseException:
            self._end(executor, notices)  # it may have begun, and nobody would end it
            raise

    def notify(self, run_id: str, besides: str = "") -> None:
        for executor, notices in list(self._queues.items()):
            if executor != besides:
                notices.put(run_id)

    def close(self) -> None:
        for executor, notices in list(self._queues.items()):
            self._end(executor, notices)

    def _end(self, executor: str, notices: SimpleQueue[str | None]) -> None:
        notices.put(None)
        if self._queues.get(executor) is notices:
            self._queues.pop(executor, None)


def _serve(notices: SimpleQueue[str | None], callback: Callable[[str], None]) -> None:
    while (run_id := notices.get()) is not None:
        call(callback, run_id)
