"""The heartbeat of one executor: one row and one thread, however many runs it has."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

from perdure.errors import PerdureError
from perdure.model import Lease
from perdure.state.context import Context

LEASE_TTL = timedelta(seconds=10)
"""How long after its last heartbeat an executor counts as alive, where its lock does not tell."""

_log = logging.getLogger("perdure.engine")


class Liveness:
    """Says that this executor lives, from its first run until the store is closed.

    The thread is its own, so that a busy agent function cannot make its owner look dead.
    """

    def __init__(self, context: Context, ttl: timedelta = LEASE_TTL) -> None:
        self._context = context
        self._ttl_ms = round(ttl / timedelta(milliseconds=1))
        self._owed: list[Lease] = []
        self._owed_lock = threading.Lock()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._executor = ""

    def start(self) -> None:
        """Be alive; returns once that is durable."""
        with self._lock:
            if self._thread is not None and self._executor == self._context.executor:
                return
            self._executor = self._context.executor
            self._context.backend.heartbeat(self._executor, self._ttl_ms)
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._beat, args=(self._executor, self._stop), name="perdure-heartbeat",
                daemon=True,
            )  # fmt: skip
            self._thread.start()

    def _beat(self, executor: str, stop: threading.Event) -> None:
        while not stop.wait(self._ttl_ms / 3000):
            try:
                self._context.backend.heartbeat(executor, self._ttl_ms)
            except PerdureError as error:
                # Not fatal here: if it lasts, others take over, and our appends are fenced.
                _log.warning("heartbeat: %s", error)
            self.settle()

    def release(self, lease: Lease) -> None:
        """Give a lease back, now or as soon as the store takes it: while this process lives nobody
        else could have the branch."""
        with self._owed_lock:
            self._owed.append(lease)
        self.settle()

    def settle(self) -> None:
        """Give back what could not be given back before."""
        with self._owed_lock:
            while self._owed:
                lease = self._owed[0]
                try:
                    self._context.backend.lease(
                        lease.agent_no, lease.branch, None, release=lease.epoch
                    )
                except PerdureError as error:
                    _log.warning("giving back the lease of %s: %s", lease.branch, error)
                    return
                self._owed.pop(0)

    def stop(self) -> None:
        """End; a standby may take over at once."""
        with self._lock:
            if self._thread is None or self._executor != self._context.executor:
                return
            self._stop.set()
            self._thread.join()
            self._thread = None
            try:
                self._context.backend.heartbeat(self._executor, None)
            except PerdureError as error:
                _log.warning("ending the executor: %s", error)
