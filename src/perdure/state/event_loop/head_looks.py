"""The heads of branches, for the many coroutines that ask at the same time: they share one look.

Each edit begins with a look at its branch's head. One by one, each costs a hop to a thread and
back, and where the store is far away a round trip. So while one look is under way others queue, as
commits do at the committer, and the next look is for all of them.

A local store mostly needs no thread: whose connection wrote last, and is free at this moment, has
the answer in memory. An edit takes 0.79 of the CPU that it takes with two changes of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.errors import PerdureError
from perdure.state.event_loop.loop_waits import LoopWait, Threads, bell, closed
from perdure.storage.appending import Ref
from perdure.storage.capabilities import Backend
from perdure.storage.shortcuts import HEADS_AT_HAND, MANY_HEADS, Head
from perdure.system.locks import ReentrantLock


class _Ask:
    """One coroutine that asks, and the answer."""

    __slots__ = ("answer", "place", "wait")

    def __init__(self, place: tuple[int, str]) -> None:
        self.place = place
        self.wait = LoopWait(bell())
        self.answer: int | BaseException = 0


class Heads:
    """The shared looks at heads: one per open store, for its coroutines."""

    def __init__(self, backend: Backend, threads: Threads) -> None:
        self._backend = backend
        self._many, self._at_hand = MANY_HEADS.of(backend), HEADS_AT_HAND.of(backend)
        self._threads = threads
        self._lock = ReentrantLock()
        self._queue: list[_Ask] = []
        self._asked: list[_Ask] = []
        """Those for whom somebody looks now."""
        self._busy = False

    async def head(self, no: int, branch: str) -> int:
        """Returns the seq of a branch's last commit, as it is now; 0 if there is none, or it was
        deleted.

        Raises:
            PerdureError: as `Backend.ref`, or the store is closed.
        """
        found = self._at_hand.ref_at_hand(no, branch) if self._at_hand is not None else None
        if found is not None:
            return _head_of(found[0])
        ask = _Ask((no, branch))
        self._queue_up(ask)
        await ask.wait.wait(lambda: self._withdraw(ask))
        if isinstance(ask.answer, BaseException):
            raise ask.answer
        return ask.answer

    def _queue_up(self, ask: _Ask) -> None:
        """Queues an ask, and starts a look if none is under way."""
        with self._lock:
            self._queue.append(ask)
            if not self._busy:
                self._threads.start(self._lead, self._refuse)
                # Set last: an exception in between must not leave everyone waiting for a look that
                # never comes. A started leader takes nothing before the lock is free; a refused one
                # has taken everything.
                self._busy = bool(self._queue)

    def _withdraw(self, ask: _Ask) -> bool:
        with self._lock:
            if ask not in self._queue:
                return False
            self._queue.remove(ask)
            return True

    def _take(self) -> list[_Ask]:
        with self._lock:
            asks = self._asked = self._queue
            self._queue = []
            self._busy = bool(asks)
        return asks

    def _lead(self) -> None:
        """Looks for all that ask, until nobody does."""
        try:
            self._lead_on()
        except BaseException as error:  # between two instructions of ours: as good as anywhere
            with self._lock:
                asks, self._asked, self._queue = [*self._asked, *self._queue], [], []
                self._busy = False
            for ask in asks:
                if not ask.wait.settled:
                    ask.answer = error
                    ask.wait.done()

    def _lead_on(self) -> None:
        while asks := self._take():
            answers: Sequence[Head | BaseException]
            try:
                answers = self._look([ask.place for ask in asks])
            except BaseException as error:  # of a thread that nobody waits for: all hear of it
                answers = [error] * len(asks)
            for ask, answer in zip(asks, answers, strict=True):
                ask.answer = answer
                ask.wait.done()

    def _look(self, places: Sequence[tuple[int, str]]) -> Sequence[Head]:
        if self._many is not None:
            return self._many.heads(places)
        return [self._look_at(*place) for place in places]

    def _look_at(self, no: int, branch: str) -> Head:
        try:
            return _head_of(self._backend.ref(no, branch))
        except PerdureError as error:  # its own
            return error

    def _refuse(self) -> None:
        """Refuses all asks: the threads ended before one of them could look."""
        while asks := self._take():
            for ask in asks:
                ask.answer = closed()
                ask.wait.done()


def _head_of(ref: Ref | None) -> int:
    return 0 if ref is None or ref.deleted else ref.seq
