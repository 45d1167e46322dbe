"""Writes that want in: queued for the next commit, which often is that of the checkpoint behind."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from perdure.integrations.langgraph.threads.write_records import Write
from perdure.system.locks import Lock

PATIENCE_S = 0.020
"""The time that writes wait for a checkpoint that may follow them: four times as long as a thread
of Python's may keep the others from running."""

ROUNDS_MAX = 6
"""The most times that they wait again, twice as long each time, because checkpoints before theirs
get in: a second or so in all."""

MISSED_S = 0.25
"""A checkpoint that comes so soon behind its writes just missed them."""

MISSED_MAX = 16
"""So many signs that it would have paid are reason enough, however often it was in vain."""

TOGETHER_MAX = 2
"""Writes of so many tasks of one step wait for each other where each wait holds a thread: LangGraph
has few (`min(32, cpus + 4)`), and the other tasks of that step need them."""

CLOSED_KEPT = 16
"""Writes that were under way until now."""


class Request:
    """Writes for a checkpoint, and their outcome.

    Attributes:
        patient: they may wait for the next checkpoint.
        left: their caller is gone.
        wake: called, on any thread, when the request is settled.
    """

    __slots__ = ("done", "error", "id", "left", "namespace", "patient", "wake", "write")

    def __init__(
        self, namespace: str, checkpoint_id: str, write: Write, *, patient: bool = True
    ) -> None:
        self.namespace = namespace
        self.id = checkpoint_id
        self.write = write
        self.patient = patient
        self.done = self.left = False
        self.error: BaseException | None = None
        self.wake: Callable[[], None] = _nobody

    def settle(self, error: BaseException | None) -> None:
        self.done, self.error = True, error
        self.wake()


def _caller() -> int:
    """The task that calls, or else the thread."""
    try:
        return id(asyncio.current_task())
    except RuntimeError:
        return threading.get_ident()


def _nobody() -> None:
    """Waits for it."""


class _Space:
    """The requests in one namespace.

    Attributes:
        waiting: writes in no commit yet, by the id of their checkpoint.
        asked: the number of writes whose caller is still there, by that id.
        coming: the parents of the checkpoints that wait to be put.
        came: the number of checkpoints that were to be put.
    """

    __slots__ = ("asked", "came", "coming", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[str | None, list[Request]] = {}
        self.asked: dict[str | None, int] = {}
        self.coming: list[str | None] = []
        self.came = 0

    def withdraw(self, request: Request) -> bool:
        mine = self.waiting.get(request.id, [])
        if request not in mine:
            return False
        mine.remove(request)
        if not mine:
            del self.waiting[request.id]
        return True


class Queue:
    """The writes of one thread that are requested and not settled. Safe to share between threads.

    LangGraph hands over the writes of a step's last task and, a moment later, the checkpoint that
    follows, each on a thread or in a task of its own, and waits for the checkpoint alone, or for
    none. That makes two commits, two fsyncs, where one would do. So after a checkpoint came while
    writes for its parent were under way, or had just been, or writes came while earlier checkpoints
    were, writes wait a moment for the next checkpoint, and are in the same commit. They keep
    waiting as long as earlier checkpoints are committed. The first writes wait, too, if they come
    from another thread or task than the one that looked at the thread last: so a graph begins, and
    most turns of a conversation have only a few steps.

    Writes that waited in vain end this, until there are more such signs; the more waits were in
    vain, the more signs it takes. So sequential calls never wait, or hardly ever if each is on
    another thread; nor do writes that say why a task stopped.

    Attributes:
        alone: channels that LangGraph stores as deltas. It hands over a checkpoint only when the
            writes to these are in, so what waited for that would wait in vain.
    """

    def __init__(self) -> None:
        self.alone: set[str] = set()
        self._mutex = Lock()
        self._spaces: dict[str, _Space] = {}
        self._pays: bool | None = None
        """None: nothing is known yet."""
        self._looked = 0
        self._in_vain = 0
        self._missed = 0
        self._closed: deque[tuple[str, str, int, float]] = deque(maxlen=CLOSED_KEPT)

    def looked(self) -> None:
        """Notes who looks at the thread's end."""
        self._looked = _caller()

    def ask(self, request: Request) -> None:
        """Queues writes; a checkpoint takes in first what was queued before it."""
        if self.alone and any(one[1] in self.alone for one in request.write.writes):
            request.patient = False
        with self._mutex:
            space = self._space(request.namespace)
            space.waiting.setdefault(request.id, []).append(request)
            space.asked[request.id] = space.asked.get(request.id, 0) + 1
            if space.coming and request.patient and request.id not in space.coming:
                self._could_pay()

    def _space(self, namespace: str) -> _Space:
        space = self._spaces.get(namespace)
        if space is None:
            space = self._spaces[namespace] = _Space()
        return space

    def _leave(self, namespace: str, space: _Space) -> None:
        if not (space.asked or space.coming):  # a graph makes one for each call of a subgraph
            del self._spaces[namespace]

    def rounds(self, request: Request, together: int | None = None) -> Iterator[float]:
        """Yields seconds to wait, until the writes are settled or have waited long enough: the next
        checkpoint may take them along.

        Args:
            together: writes of more tasks of one step do not wait for each other.
        """
        space = self._spaces[request.namespace]
        if not request.patient or not (self._may_pay() if self._pays is None else self._pays):
            return
        if together is not None and len(space.waiting.get(request.id, ())) > together:
            return
        for doubled in range(ROUNDS_MAX):
            came = space.came
            yield PATIENCE_S * 2**doubled
            if request.done:
                self._in_vain = 0
                return
            if space.came == came and not space.coming:
                break
        self._pays, self._missed = False, 0
        self._in_vain += 1

    def _may_pay(self) -> bool:
        return self._looked not in (0, _caller())

    def withdraw(self, request: Request) -> bool:
        """Takes writes back; returns False if that is impossible, because they are in a commit, or
        refused."""
        with self._mutex:
            return self._spaces[request.namespace].withdraw(request)

    def close(self, request: Request) -> None:
        """Ends a request: its caller goes away."""
        with self._mutex:
            request.left = True
            space = self._spaces[request.namespace]
            if space.asked[request.id] == 1:
                del space.asked[request.id]
            else:
                space.asked[request.id] -= 1
            space.withdraw(request)  # if it was interrupted: it was told that nothing was done
            self._leave(request.namespace, space)
            at = time.monotonic()
            if request.patient:
                self._closed.append((request.namespace, request.id, threading.get_ident(), at))

    def coming(self, namespace: str, parent: str | None) -> _Coming:
        """Context manager: while a checkpoint wants in. See whether writes for its parent are under
        way, or were."""
        return _Coming(self, namespace, parent)

    def come(self, namespace: str, parent: str | None) -> _Space:
        with self._mutex:
            space = self._space(namespace)
            space.coming.append(parent)
            space.came += 1
            overlaps = parent in space.asked
        if overlaps:
            self._pays = True
        elif not self._pays and self._just_missed(namespace, parent):
            self._could_pay()
        return space

    def go(self, namespace: str, space: _Space, parent: str | None) -> None:
        with self._mutex:
            space.coming.remove(parent)
            self._leave(namespace, space)

    def _could_pay(self) -> None:
        self._missed += 1
        if self._missed >= min(2**self._in_vain, MISSED_MAX):
            self._pays = True

    def _just_missed(self, namespace: str, parent: str | None) -> bool:
        """Returns True if writes would have been in time for a checkpoint, had they waited. They
        were on another thread: sequential calls on one thread would have waited in vain."""
        here, now = threading.get_ident(), time.monotonic()
        return any(
            (space, id) == (namespace, parent) and thread != here and now - at < MISSED_S
            for space, id, thread, at in list(self._closed)
        )

    def holds(self, namespace: str, checkpoint_id: str | None) -> bool:
        space = self._spaces.get(namespace)
        return space is not None and checkpoint_id in space.waiting

    def take(self, namespace: str, checkpoint_id: str | None) -> list[Request]:
        """Removes and returns the requests that are queued for a checkpoint."""
        with self._mutex:
            space = self._spaces.get(namespace)
            return [] if space is None else space.waiting.pop(checkpoint_id, [])

    def put_back(self, requests: Sequence[Request]) -> None:
        """Puts requests back in front: they were refused, and are tried again if their caller is
        still there."""
        with self._mutex:
            for request in reversed(requests):
                if request.left:
                    continue
                space = self._spaces[request.namespace]
                space.waiting.setdefault(request.id, []).insert(0, request)


class _Coming:
    """See `Queue.coming`."""

    __slots__ = ("_namespace", "_parent", "_queue", "_space")

    def __init__(self, queue: Queue, namespace: str, parent: str | None) -> None:
        self._queue, self._namespace, self._parent = queue, namespace, parent

    def __enter__(self) -> None:
        self._space = self._queue.come(self._namespace, self._parent)

    def __exit__(self, *_: object) -> None:
        self._queue.go(self._namespace, self._space, self._parent)
