"""Writes that want in: queued for the next commit, which often is that of the checkpoint behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from perdure.integrations.langgraph.view import Write

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE_S = 0.005
"""How long writes wait for the checkpoint that follows them, where one may come along."""

ROUNDS_MAX = 20
"""How often they wait anew, because checkpoints before theirs got in: at most 0.1 s in all."""


class Request:
    """Writes for a checkpoint, and what became of them."""

    __slots__ = ("_gate", "done", "error", "id", "namespace", "write")

    def __init__(self, namespace: str, checkpoint_id: str, write: Write) -> None:
        self.namespace = namespace
        self.id = checkpoint_id
        self.write = write
        self.done = False
        self.error: BaseException | None = None
        self._gate = threading.Lock()
        self._gate.acquire()

    def settle(self, error: BaseException | None) -> None:
        self.done, self.error = True, error
        self._gate.release()

    def wait(self, seconds: float) -> None:
        """Return when it is settled, or the time is over."""
        self._gate.acquire(timeout=seconds)


class Queue:
    """The writes of one thread that are asked for and not settled. Safe to share between threads.

    LangGraph hands over the writes of a step's last task and, a moment later, the checkpoint that
    follows, each on a thread of its own, and waits for the checkpoint alone. Two commits, two
    fsyncs, where one would do. So once a checkpoint came while writes for its parent were under
    way, later writes wait a moment for theirs, and are in the same commit. While a checkpoint is
    being written they wait on: theirs comes behind it. Writes that waited in vain end that: who
    calls one after the other never waits.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: list[Request] = []
        self._open: list[Request] = []
        self._pays = False
        self._came = 0
        self._under_way = 0

    def ask(self, request: Request) -> None:
        """Queue writes; a checkpoint takes in first what was queued before it."""
        with self._mutex:
            self._waiting.append(request)
            self._open.append(request)

    def wait(self, request: Request) -> None:
        """Give the checkpoint behind the chance to take them along."""
        if not self._pays:
            return
        for _ in range(ROUNDS_MAX):
            before = self._came
            request.wait(PATIENCE_S)
            if request.done:
                return
            if self._came == before and not self._under_way:
                break
        self._pays = False

    def close(self, request: Request) -> None:
        """Its caller goes away."""
        with self._mutex:
            self._open.remove(request)
            if request in self._waiting:  # it was interrupted, and told that nothing was done
                self._waiting.remove(request)

    def note_checkpoint(self, namespace: str, parent: str | None) -> None:
        """A checkpoint comes: see whether writes for its parent are under way."""
        with self._mutex:
            self._came += 1
            self._under_way += 1
        if any(one.id == parent and one.namespace == namespace for one in self._open):
            self._pays = True

    def checkpoint_done(self) -> None:
        """One that came is in, or was refused."""
        with self._mutex:
            self._under_way -= 1

    def holds(self, namespace: str, checkpoint_id: str | None) -> bool:
        return any(_is_for(one, namespace, checkpoint_id) for one in self._waiting)

    def take(self, namespace: str, checkpoint_id: str | None) -> list[Request]:
        """What is queued for a checkpoint, out of the queue."""
        with self._mutex:
            mine = [one for one in self._waiting if _is_for(one, namespace, checkpoint_id)]
            if mine:
                self._waiting = [one for one in self._waiting if one not in mine]
        return mine

    def put_back(self, requests: Sequence[Request]) -> None:
        """In front: they were refused, and are to be tried anew."""
        with self._mutex:
            self._waiting[:0] = requests


def _is_for(request: Request, namespace: str, checkpoint_id: str | None) -> bool:
    return request.id == checkpoint_id and request.namespace == namespace
