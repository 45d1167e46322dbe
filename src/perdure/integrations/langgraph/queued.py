"""Writes that want in: queued for the next commit, which often is that of the checkpoint behind."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from perdure.integrations.langgraph.view import Write

PATIENCE_S = 0.020
"""How long writes wait for the checkpoint that follows them, where one may come along: four times
as long as a thread of Python's may keep the others from running."""

ROUNDS_MAX = 50
"""How often they wait anew, because checkpoints before theirs get in: at most a second in all."""

MISSED_S = 0.25
"""A checkpoint that comes so soon behind its writes just missed them."""

MISSED_MAX = 16
"""So many misses are reason enough to wait again, however often that was in vain."""

TOGETHER_MAX = 4
"""Of so many tasks of one step the writes wait for each other; more of them are in no hurry to
end together, and each may hold a thread."""

CLOSED_KEPT = 16
"""Writes that were under way until now."""


class Request:
    """Writes for a checkpoint, and what became of them.

    Attributes:
        patient: they may wait for the checkpoint behind.
        near: a checkpoint of their namespace came while they waited.
        wake: what to call, on any thread, once it is settled.
    """

    __slots__ = ("done", "error", "id", "namespace", "near", "patient", "wake", "write")

    def __init__(
        self, namespace: str, checkpoint_id: str, write: Write, *, patient: bool = True
    ) -> None:
        self.namespace = namespace
        self.id = checkpoint_id
        self.write = write
        self.patient = patient
        self.near = False
        self.done = False
        self.error: BaseException | None = None
        self.wake: Callable[[], None] = _nobody

    def settle(self, error: BaseException | None) -> None:
        self.done, self.error = True, error
        self.wake()


def _nobody() -> None:
    """Waits for it."""


class Queue:
    """The writes of one thread that are asked for and not settled. Safe to share between threads.

    LangGraph hands over the writes of a step's last task and, a moment later, the checkpoint that
    follows, each on a thread of its own, and waits for the checkpoint alone, or for none. Two
    commits, two fsyncs, where one would do. So once a checkpoint came while writes for its parent
    were under way, or had just been, later writes wait a moment for theirs, and are in the same
    commit. As long as checkpoints before it get in they wait on.

    Writes that waited in vain end that, until checkpoints have come just too late for them, the
    more often the more waits were in vain. So who calls one after the other never waits, or hardly
    ever where each call is on another thread; nor do writes that say why a task stopped.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: list[Request] = []
        self._open: list[Request] = []
        self._pays = False
        self._in_vain = 0
        self._missed = 0
        self._closed: deque[tuple[str, str, int, float]] = deque(maxlen=CLOSED_KEPT)
        self._under_way: list[str] = []

    def ask(self, request: Request) -> None:
        """Queue writes; a checkpoint takes in first what was queued before it."""
        with self._mutex:
            self._waiting.append(request)
            self._open.append(request)

    def rounds(self, request: Request) -> Iterator[None]:
        """As often as who brought writes is to wait, for `PATIENCE_S` or until they are settled:
        the checkpoint behind may take them along."""
        if not (self._pays and request.patient) or self._are_many(request):
            return
        for _ in range(ROUNDS_MAX):
            request.near = False
            yield
            if request.done:
                self._in_vain = 0
                return
            if not request.near and request.namespace not in self._under_way:
                break
        self._pays, self._missed = False, 0
        self._in_vain += 1

    def _are_many(self, request: Request) -> bool:
        if len(self._waiting) <= TOGETHER_MAX:
            return False
        mine = request.namespace, request.id
        return sum((one.namespace, one.id) == mine for one in self._waiting) > TOGETHER_MAX

    def withdraw(self, request: Request) -> bool:
        """Take writes back; False: nobody can any more, as they are in a commit, or refused."""
        with self._mutex:
            if request not in self._waiting:
                return False
            self._waiting.remove(request)
            return True

    def close(self, request: Request) -> None:
        """Its caller goes away."""
        with self._mutex:
            self._open.remove(request)
            if request in self._waiting:  # it was interrupted, and told that nothing was done
                self._waiting.remove(request)
            at = time.monotonic()
            self._closed.append((request.namespace, request.id, threading.get_ident(), at))

    def note_checkpoint(self, namespace: str, parent: str | None) -> None:
        """A checkpoint comes: see whether writes for its parent are under way, or were."""
        overlaps = False
        with self._mutex:
            self._under_way.append(namespace)
            for one in self._open:
                if one.namespace == namespace:
                    one.near = True
                    overlaps = overlaps or one.id == parent
        if overlaps:
            self._pays = True
        elif not self._pays and self._just_missed(namespace, parent):
            self._missed += 1
            self._pays = self._missed >= min(2**self._in_vain, MISSED_MAX)

    def _just_missed(self, namespace: str, parent: str | None) -> bool:
        """Whether writes would have been in time for a checkpoint, had they waited. They were on
        another thread: who calls one after the other on one would have waited in vain."""
        here, now = threading.get_ident(), time.monotonic()
        return any(
            (space, id) == (namespace, parent) and thread != here and now - at < MISSED_S
            for space, id, thread, at in list(self._closed)
        )

    def checkpoint_done(self, namespace: str) -> None:
        """One that came is in, or was refused."""
        with self._mutex:
            self._under_way.remove(namespace)

    def holds(self, namespace: str, checkpoint_id: str | None) -> bool:
        waiting = self._waiting
        return any(one.id == checkpoint_id and one.namespace == namespace for one in waiting)

    def take(self, namespace: str, checkpoint_id: str | None) -> list[Request]:
        """What is queued for a checkpoint, out of the queue."""
        with self._mutex:
            mine: list[Request] = []
            others: list[Request] = []
            for one in self._waiting:
                is_mine = one.id == checkpoint_id and one.namespace == namespace
                (mine if is_mine else others).append(one)
            self._waiting = others
        return mine

    def put_back(self, requests: Sequence[Request]) -> None:
        """In front: they were refused, and are to be tried anew."""
        with self._mutex:
            self._waiting[:0] = requests
