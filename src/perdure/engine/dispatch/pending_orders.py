"""The orders that wait in a store's inbox, as one worker knows them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain, repeat

from perdure.engine.execution.wakeups import POLL_S
from perdure.engine.functions.orders import branch_asked
from perdure.model import Message
from perdure.storage.capabilities import Backend

PAGES = (64, 512, 4096)
"""The numbers of orders read at a time: few first, more if none of those is for this worker."""

KNOWN_MAX = 32_768
"""The number of known orders from which on only the first of each agent is noted, so that a long
line hides no other agent's. The rest of a line is read when what is known of it has begun."""

AGENTS_MAX = 32_768
"""The most agents of which orders are known. A look that gets past them could begin none of them,
so they give way to those of others."""

READ_MAX_S = 0.5
"""The time after which a look ends though there is more to read; the next one goes on there."""

LOOKING_MAX = 0.05
"""The share of its time that a worker may spend on looking, however much there is to look at."""


Line = tuple[str, str]
"""An agent and its branch: the runs of both are begun one after the other."""


def line_of(message: Message) -> Line:
    return message.agent, branch_asked(message)


class PendingOrders:
    """The orders that a worker could begin: the first of each agent, on each of its branches; the
    others wait behind it.

    Reading all of one agent's queue at each look would take time in the square of its length. So
    what was read is remembered for a while, and only newer messages are read. Not for longer: other
    workers begin orders, too, and a message may come with a lower number than one that was read.

    For one thread.

    Args:
        is_ours: returns True for an order for this worker.
    """

    def __init__(self, backend: Backend, is_ours: Callable[[Message], bool]) -> None:
        self._backend = backend
        self._is_ours = is_ours
        self.read_s = 0.0
        """The time that was spent on reading orders, ever."""
        self._forget()

    def _forget(self) -> None:
        self._lines: dict[Line, deque[tuple[int, str]]] = {}
        """Numbers and runs. The messages would be too much to hold."""
        self._first: dict[Line, Message] = {}
        """Of some lines."""
        self._rest: dict[Line, int] = {}
        """Of lines that do not hold all of their orders: the number behind which the rest is."""
        self._count = self._read_to = 0
        self._since, self._began_s = time.monotonic(), self.read_s
        self._is_behind = False
        """True if the last look ended with orders left that it had no time to read."""
        self._gave_way = False
        """True if orders of some agents were read, and are not known any more."""

    def first_of_each(self, is_taken: Callable[[str, str, str], bool]) -> Iterator[Message]:
        """Yields the first order of each line, in order of arrival, except those whose run or
        branch is taken. Reads no further than the caller asks."""
        pause_s = max(POLL_S, (self.read_s - self._began_s) / LOOKING_MAX)
        if not self._is_behind and time.monotonic() - self._since >= pause_s:
            self._forget()
        for where in [where for where in self._rest if where not in self._lines]:
            self._refill(where)
        known = [(line[0][0], where) for where, line in self._lines.items()]
        heapify(known)
        while known:
            no, where = heappop(known)
            line = self._lines.get(where)
            if line and line[0][0] == no and not is_taken(line[0][1], *where):
                message = self._first.get(where) or self._read(where)
                if message is None:
                    self.is_gone(where, no)
                else:
                    yield message
            if where in self._rest and where not in self._lines:
                self._refill(where)
            line = self._lines.get(where)
            if line and line[0][0] != no:
                heappush(known, (line[0][0], where))
        for message in self._read_on():
            if not is_taken(message.run, *line_of(message)):
                yield message

    def is_gone(self, where: Line, no: int) -> None:
        """An order has begun, or is not there any more: the next one is the first of its line."""
        line = self._lines.get(where)
        if not line or line[0][0] != no:
            return
        self._first.pop(where, None)
        line.popleft()
        self._count -= 1
        if not line:
            del self._lines[where]

    def _read(self, where: Line) -> Message | None:
        """The first of a line. None: it is gone."""
        no, run = self._lines[where][0]
        found = self._backend.inbox(run, kind="start", limit=1)
        if not found or found[0].no != no:
            return None
        self._first[where] = found[0]
        return found[0]

    def _read_on(self) -> Iterator[Message]:
        """Yields further orders that become the first of their agents. All that are known before
        were offered in this look."""
        until = time.monotonic() + READ_MAX_S
        for limit in chain(PAGES, repeat(PAGES[-1])):
            self._is_behind = time.monotonic() >= until
            if self._is_behind:
                return
            began = time.monotonic()
            found = self._backend.inbox(kind="start", limit=limit, after=self._read_to)
            self.read_s += time.monotonic() - began
            for message in found:
                if len(self._lines) >= AGENTS_MAX:
                    self._give_way()
                is_first = self._is_ours(message) and self._note(message)
                self._read_to = message.no
                if is_first:
                    yield message
            if len(found) < limit:
                return

    def _give_way(self) -> None:
        """Drops what is known: none of it could begin now. It is read again with all others."""
        self._lines.clear()
        self._first.clear()
        self._rest.clear()
        self._count, self._gave_way = 0, True

    def _is_first(self, message: Message) -> bool:
        """Returns True if no order of its line is before this one, known or not."""
        found = self._backend.inbox(agent=message.agent, kind="start", limit=PAGES[0])
        ours = (one.no for one in found if line_of(one) == line_of(message) and self._is_ours(one))
        return next(ours, message.no) == message.no

    def _note(self, message: Message) -> bool:
        """Notes an order; returns True if it is the first of its line."""
        where = line_of(message)
        if where in self._rest:
            return False
        if self._gave_way and where not in self._lines and not self._is_first(message):
            return False  # nor before the one that gave way
        place = message.no, message.run
        line = self._lines.get(where)
        if line and self._count >= KNOWN_MAX:
            self._rest[where] = line[-1][0]
            return False
        self._count += 1
        if line:
            line.append(place)
            return False
        self._lines[where] = deque((place,))
        self._first[where] = message
        return True

    def _refill(self, where: Line) -> None:
        """Reads the next orders of a line, up to where those of all were read."""
        while where not in self._lines and where in self._rest:
            after = self._rest.pop(where)
            found = self._backend.inbox(agent=where[0], kind="start", limit=PAGES[-1], after=after)
            for message in found:
                if message.no > self._read_to or where in self._rest:
                    break
                if line_of(message) == where and self._is_ours(message):
                    self._note(message)
            else:
                if len(found) == PAGES[-1]:
                    self._rest.setdefault(where, found[-1].no)
