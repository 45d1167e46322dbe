"""The inbox of a run: signals, answers, the ends of its children, and requests to end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from perdure.core.format.records import WaitBranch
from perdure.core.format.rows import order_of
from perdure.core.values.plain_values import Plain
from perdure.engine.journal.deleted_runs import (
    Trace,
    find_stranger,
    never_comes,
    trace_of,
    unknown_end,
)
from perdure.engine.journal.effects import Await, Came, first_timer
from perdure.model import FINISHED, Message, RunInfo
from perdure.state.runs.family_messages import CHILD
from perdure.state.runs.unused_signals import MOVE, Unused, base_key
from perdure.storage.capabilities import Backend, RunQuery
from perdure.system.locks import Lock

LOOK_AGAIN_S = 30.0
"""The interval at which a run checks whether a run that it started has ended."""

_COMES_AS = {"signal": "signal", "child": "signal", "ask": "answer"}
"""By the kind of what is waited for: the kind of the message that brings it."""


class RunInbox:
    """The inbox of one execution; safe between threads.

    Messages that were read but not taken are kept from turn to turn: a run that gets thousands of
    signals reads them once. Messages to one run have growing numbers.
    """

    def __init__(self, backend: Backend, run: str) -> None:
        self._backend = backend
        self._run = run
        self._lock = Lock()
        self._unread: dict[int, Message] = {}
        self._named: dict[tuple[str, str], deque[Message]] = {}
        """The same, and some that were taken, by kind and name: thousands may wait there that this
        run does not wait for yet."""
        self._answers: dict[int, None] = {}
        """The numbers of the answers among them: there are few."""
        self.moves: dict[int, Message] = {}
        """Requests to move the branch, by their numbers."""
        self._taken: set[int] = set()
        self._unsaid: set[int] = set()
        """Of those that waits took: no record says so yet, as where a wait was interrupted. Then
        the next turn reads all anew."""
        self._absent: dict[str, Trace | None] = {}
        """Runs that were waited for and not there, and what the log has of those: None, if nobody
        has looked yet."""
        self._others: dict[str, Trace] = {}
        """The same of those that are there, and that another run started."""
        self.seen = 0
        """The highest number of a message that was looked at."""

    def look(self) -> None:
        """Reads new messages."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        for message in self._backend.inbox(self._run, after=self.seen):
            if message.no not in self._taken and message.no not in self._unread:
                self._named.setdefault((message.kind, message.name), deque()).append(message)
                if message.kind == "answer":
                    self._answers[message.no] = None
                elif message.kind == "signal" and message.name == MOVE:
                    self.moves[message.no] = message
                self._unread[message.no] = message
            self.seen = max(self.seen, message.no)  # at last: else it is read again

    def next_turn(self) -> RunInbox:
        """Returns the inbox of the run's next execution; this one is empty then."""
        with self._lock:
            mail = RunInbox(self._backend, self._run)
            if not self._unsaid:
                mail._unread, mail._named, mail.seen = self._unread, self._named, self.seen
                mail._answers, mail.moves = self._answers, self.moves
            self._unread, self._named, self._answers = {}, {}, {}
            return mail

    def cancels(self) -> list[Message]:
        """Returns the requests for the run's end."""
        with self._lock:
            self._look()
            return self._of("cancel", "")

    def _of(self, kind: str, name: str) -> list[Message]:
        return [one for one in self._named.get((kind, name), ()) if one.no in self._unread]

    def unused(self, *, anew: bool) -> Unused:
        """Returns the messages that were read and not taken, looking for new ones if `anew`."""
        with self._lock:
            if anew:
                self._look()
            return Unused.among(self._run, self._unread.values(), self.seen)

    def has(self, name: str, key: str) -> bool:
        """Returns True if a signal that was sent under that key is there, and not taken."""
        with self._lock:
            self._look()
            key = base_key(key)
            return any(base_key(one.key) == key for one in self._of("signal", name))

    def answers_to(self, question: str) -> list[Message]:
        """Returns the answers to a question of this name that were not taken."""
        with self._lock:
            self._look()
            return self._of("answer", question)

    def answers(self) -> list[Message]:
        """Returns the answers that were read and not taken."""
        with self._lock:
            return [self._unread[no] for no in self._answers if no in self._unread]

    def take(self, numbers: Iterable[int]) -> None:
        """These are consumed, or will be by the run's next commit."""
        with self._lock:
            for no in numbers:
                self._taken.add(no)
                self._unsaid.discard(no)
                self.moves.pop(no, None)
                self._unread.pop(no, None)

    def came(self, effect: Await) -> Came | int:
        """Returns what a wait waits for, if it is there; it is taken. The first arrival wins, and
        the timeout only if nothing arrived. Otherwise returns the number of the last message that
        was looked at."""
        with self._lock:
            found = self._first(effect.branches)
            if found is None:
                self._look()
                found = self._first(effect.branches)
            seen = self.seen
        if found is not None:
            return found
        lost: list[str] = []
        for branch in effect.branches:
            if branch.kind != "child":
                continue
            child = branch.name.removeprefix(CHILD)
            row = self._row(child)
            end = _end_of(row)
            if row is None and child in self._absent:
                lost.append(child)
                end = self._trace(child).end
            if end is not None:
                return Came(branch.label, end)
        timer = first_timer(effect.branches)
        if timer is not None and self._backend.now() >= timer.until:
            return Came(timer.label, at=timer.until)
        if lost and len(lost) == len(effect.branches):
            return self._refuse_lost(effect, lost) or seen
        return seen

    def look_by(self, effect: Await) -> int:
        """Returns the latest time at which a wait must look again, in microseconds since 1970; 0:
        when something arrives. A run started by another one reports its end only to that one."""
        timer = first_timer(effect.branches)
        ends = [timer.until] if timer is not None else []
        for branch in effect.branches:
            if branch.kind == "child" and not self._is_ours(branch.name.removeprefix(CHILD)):
                ends.append(self._backend.now() + round(LOOK_AGAIN_S * 1e6))
        return min(ends, default=0)

    def _is_ours(self, child: str) -> bool:
        row = self._row(child)
        if row is not None:
            return row.parent == self._run
        asked = self._backend.inbox(child, kind="start")
        if not asked:
            self._absent.setdefault(child)
        return any(order_of(message.value).parent == self._run for message in asked)

    def _trace(self, child: str) -> Trace:
        """Returns the record of a run that does not exist."""
        trace = self._absent.get(child)
        if trace is None:
            trace = self._absent[child] = trace_of(self._backend, self._run, child)
        return trace

    def _refuse_lost(self, effect: Await, children: Sequence[str]) -> Came | None:
        """I8: nobody can tell of the ends of runs that were purged, or whose ids strangers have.

        Raises:
            NeedsAttention: all of these are such.
        """
        traces = [self._trace(child) for child in children]
        whys = [
            never_comes(self._backend, self._run, child, trace)
            for child, trace in zip(children, traces, strict=True)
        ]
        if not all(whys):
            return None
        with self._lock:  # it may have told of its end between the two looks
            self._look()
            if (found := self._first(effect.branches)) is not None:
                return found
        raise unknown_end(self._run, children[0], traces[0].place, whys[0])

    def _first(self, branches: Iterable[WaitBranch]) -> Came | None:
        found: tuple[Message, WaitBranch] | None = None
        for branch in branches:
            message = self._next(_COMES_AS.get(branch.kind, ""), branch.name)
            if message is not None and (found is None or message.no < found[0].no):
                found = message, branch
        if found is None:
            return None
        message, branch = found
        told = message.value
        if branch.kind == "child":  # it may tell of an end before the one that its row says
            told = _end_of(self._row(branch.name.removeprefix(CHILD))) or told
        self._unsaid.add(message.no)
        self._taken.add(message.no)
        del self._unread[message.no]
        return Came(branch.label, told, message.no, message.key, message.who, message.at_micros)

    def _next(self, kind: str, name: str) -> Message | None:
        """The first of that name which nobody took."""
        named = self._named.get((kind, name))
        while named and (named[0].no not in self._unread or self._is_past(named[0])):
            named.popleft()
        return named[0] if named else None

    def _is_past(self, message: Message) -> bool:
        """Returns True if a message tells of the end of a child that was set back since, and will
        end again."""
        if not message.name.startswith(CHILD):
            return False
        row = self._row(message.name.removeprefix(CHILD))
        return row is not None and row.status not in FINISHED

    def _row(self, child: str) -> RunInfo | None:
        """Returns the row of a run that is waited for; not that of a stranger with its id."""
        found = self._backend.runs(RunQuery(run_id=child))
        if not found or found[0].parent == self._run:
            return found[0] if found else None
        if child not in self._others:
            self._others[child] = trace_of(self._backend, self._run, child)
        if find_stranger(self._backend, self._run, child, self._others[child]) is None:
            return found[0]
        self._absent.setdefault(child)
        return None


def _end_of(row: RunInfo | None) -> dict[str, Plain] | None:
    """Returns the end of a child from its row: its message may have been taken by an earlier
    wait."""
    if row is None or row.status not in FINISHED:
        return None
    return {"status": row.status, "value": row.result, "problem": row.problem}
