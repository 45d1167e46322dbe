"""The waiters for news of runs in this process; news comes from here and from other processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

from perdure.model import Message
from perdure.state.context import Context
from perdure.storage.appending import Ref
from perdure.system import process_id
from perdure.system.flag import Flag
from perdure.system.locks import Lock

Leaked = Callable[[str, int, Ref], bool]

POLL_S = 0.5
"""The polling interval of waiters: a wake-up may get lost, and a dead process sends none."""

IN_PLACE_S = 1.0
"""A time that is up so soon is waited for in place: unloading and resuming takes as long."""


class Wakeups:
    """See the module. One per open store; it listens from the first watch until it is closed.

    Attributes:
        leaked: see `Liveness.leaked`.
        end_told: ends those receivers of messages that were asked to end and have not begun.
    """

    end_told: Callable[[Sequence[Message]], None] = staticmethod(lambda _: None)

    def __init__(self, context: Context, leaked: Leaked) -> None:
        self._context = context
        self.leaked = leaked
        self.in_place_s = IN_PLACE_S
        """Up to how long a run waits for a time without being unloaded; a test whose clock stands
        still sets it to 0."""
        # Weak: what an exception between two instructions leaves in it goes with its frame.
        self.in_place: WeakSet[Any] = WeakSet()
        """The `WaitingInPlace` of runs whose code waits for others here."""
        self._lock = Lock()
        self._watches: dict[str | None, list[Watch]] = {}
        self._listens: dict[int, Callable[[], None]] = {}
        """The functions that end listening, by process: a forked child has none of its parent's."""

    def watch(self, run: str | None, wake: Callable[[], None] | None = None) -> Watch:
        """Hear of news of one run, or with None of all; see `Watch`."""
        watch = Watch(self, run, wake)
        with self._lock:
            if process_id.pid not in self._listens:
                listen = self._context.backend.listen
                self._listens[process_id.pid] = listen(self._context.executor, self.ring)
            self._watches.setdefault(run, []).append(watch)
        return watch

    def forget(self, watch: Watch) -> None:
        with self._lock:
            watches = self._watches.get(watch.run, [])
            if watch in watches:
                watches.remove(watch)
            if not watches:
                self._watches.pop(watch.run, None)

    def ring(self, run: str) -> None:
        """Wakes those who wait for news of a run in this process."""
        with self._lock:
            watches = [*self._watches.get(run, ()), *self._watches.get(None, ())]
        for watch in watches:
            watch.rung(run)

    def ring_all(self) -> None:
        """Lets all waiters in this process look: the clock was moved."""
        with self._lock:
            watches = [watch for watches in self._watches.values() for watch in watches]
        for watch in watches:
            watch.rung(watch.run or "")

    def tell(self, *runs: str) -> None:
        """Wakes those who wait for news of runs in any process."""
        for run in runs:
            # Not over the socket to oneself: that wakes a thread, a quarter of a short run's time.
            self._context.backend.notify(run, besides=self._context.executor)
            self.ring(run)

    def close(self) -> None:
        """Hear of nothing any more. Interrupted, it may be called again."""
        if (stop := self._listens.get(process_id.pid)) is not None:
            stop()
        self._listens.clear()


class Watch:
    """News of a run since one last looked. Close it, or use it in a ``with``.

    `wake`, if given, is called with each of them, on any thread.
    """

    def __init__(self, hub: Wakeups, run: str | None, wake: Callable[[], None] | None) -> None:
        self.run = run
        self._hub = hub
        self._wake = wake
        self._event = Flag()

    def rung(self, _: str) -> None:
        self._event.set()
        if self._wake is not None:
            self._wake()

    def wait(self, timeout_s: float) -> None:
        """Waits until there is news, or for the timeout."""
        self._event.wait(timeout_s)
        self._event.clear()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        self._hub.forget(self)
