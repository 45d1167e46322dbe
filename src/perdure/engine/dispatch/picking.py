"""The runs that a worker could continue: those that are ready, are its own, and have no
executor."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain, count, islice
from typing import Any

from msgspec import Struct

from perdure.engine.control.run_handle import RunHandle
from perdure.engine.control.stopping import stop
from perdure.engine.control.unbegun import end_told
from perdure.engine.dispatch.command import Command
from perdure.engine.dispatch.pending_orders import LOOKING_MAX, PendingOrders
from perdure.engine.dispatch.runner import Runner
from perdure.engine.functions.agent_functions import AgentFunctions
from perdure.engine.functions.orders import Order, branch_asked
from perdure.engine.functions.other_versions import (
    MISFIT,
    UNKNOWN,
    in_words,
    misfit,
    unknown,
    version_asked,
)
from perdure.engine.functions.run_lookup import never_begun
from perdure.errors import NeedsAttention, PerdureError, StoreUnavailable
from perdure.model import FINISHED, Message, RunInfo
from perdure.state.runs.family_messages import begin_of, to_parents
from perdure.storage.answers import ExecutorRow, Routed, routed
from perdure.storage.appending import Ref
from perdure.storage.capabilities import RunQuery
from perdure.storage.due import due_since
from perdure.storage.log.reader import LogReader
from perdure.storage.looks import Look
from perdure.storage.shortcuts import CLAIM_S, FAR_LEASES, FarLeases
from perdure.system import logs

LEFT_S = 10.0
"""The time for which a run is left to living workers of the very version that it was begun with, by
those that only replay that: what these record, the others could not continue. If the program is
taken back, no run is stranded by that. Not longer: those workers may be busy."""

UNKNOWN_AFTER_S = 10.0
"""The time for which nobody must have served a function: between two versions of a program nobody
does."""

PAGES = (64, 512, 4096)
"""The numbers of rows read at a time: few first, more if none of those is for this worker."""

DEEPER = 4
"""The growth of the pages behind these, without an end: what others are to go on with must not hide
the rest. A worker spends no more of its time on them than `LOOKING_MAX`."""

UNKNOWN_MAX = 20
"""The most runs of unknown functions that are noted at one look: each is a commit."""

_log = logs.logger("perdure.worker")


class NeedsCallerError(Exception):
    """The run's arguments were not stored: only a caller that has them can continue it."""


class Pick(Struct, frozen=True):
    """A run to continue, or to begin (`row` None). `look`: at the state of things when it was
    picked; `since`: when it became due."""

    run: str
    agent: str
    branch: str
    function: Callable[..., Any]
    look: Look
    since: int
    row: RunInfo | None = None
    asked: Message | None = None


Taken = Callable[[str, str, str], bool]
"""Returns True if a run, or its agent's branch, is not to be picked now."""

"""As `Far.claim`."""


class Picker:
    """The search for runs in the store, for one worker. Its methods read; only those that say so
    write.

    Args:
        functions: those whose runs it takes.
        leave: called with a run that another worker is about to take, and the number of seconds to
            leave it alone.
    """

    def __init__(
        self,
        runner: Runner,
        functions: AgentFunctions,
        queues: Collection[str],
        leave: Callable[[str, float], None],
    ) -> None:
        self._runner = runner
        self._context = runner.context
        self._functions = functions
        self._queues = frozenset(queues)
        self._leave = leave
        self._claims = FAR_LEASES.of(self._context.backend)
        self._unknown: dict[str, tuple[RunInfo, float]] = {}
        self._unknown_starts: set[tuple[str, str]] = set()
        self._own: frozenset[Routed] = frozenset()
        """Functions of living executors, in which queues and versions; not those they replay."""
        self._left: dict[str, float] = {}
        """Since when runs are left to workers of their own version."""
        self._asked = PendingOrders(self._context.backend, self._is_ours)
        self._callers: set[str] = set()
        self._deeper_at = 0.0
        """When it may read behind `PAGES` again."""
        self._saw_all = True
        """False if the last look left rows behind `PAGES` unread."""

    # -- finding work ----------------------------------------------------------------------------

    def picks(self, taken: Taken, free: Callable[[], int], others: bool) -> Iterator[Pick]:
        """Yields runs that this worker could continue or begin now, the longest due first: runs
        that wake again and again do not keep others from being begun, or taken over.

        Args:
            taken: asked again for each run, so that those just begun count.
            free: the number of runs that it would begin now; asked again, too.
            others: True if there may be other workers.
        """
        found: Iterator[Pick] = heapq.merge(
            self._rows(taken), self._starts(taken), key=lambda pick: pick.since
        )
        if others and self._claims is not None:
            found = self._claimed(found, self._claims, free)
        for pick in found:
            if taken(pick.run, pick.agent, pick.branch) or not self._is_free(pick):
                continue
            if pick.asked is None or pick.look.inbox("start"):
                yield pick
            else:
                self.note_begun(pick)

    @property
    def read_s(self) -> float:
        """The time that was spent on reading orders, ever."""
        return self._asked.read_s

    def note_begun(self, pick: Pick) -> None:
        """Notes that an order was begun."""
        if pick.asked is not None:
            self._asked.is_gone((pick.agent, pick.branch), pick.asked.no)

    def _claimed(
        self, found: Iterator[Pick], claims: FarLeases, free: Callable[[], int]
    ) -> Iterator[Pick]:
        """Yields those that no other worker is about to take: many workers that see the same runs
        would each try for the first of them, all but one in vain."""
        while picks := list(islice(found, max(free(), 1))):
            ours = claims.claim([pick.run for pick in picks], self._context.executor)
            for pick in picks:
                if pick.run in ours:
                    yield pick
                else:
                    self._leave(pick.run, CLAIM_S)

    def _is_free(self, pick: Pick) -> bool:
        """Returns True if no executor has the run, or one before it. Looks again."""
        look, row = pick.look.again(), pick.row
        no = row.agent_no if row is not None else None
        if no is None:
            info = look.agent(pick.agent)
            if info is None or info.deleted:
                return True
            no = info.no
        if self._held(look, pick.agent, no, pick.branch):
            return False
        return not self._must_queue(look, pick.branch, no, row)

    def _rows(self, taken: Taken) -> Iterator[Pick]:
        backend = self._context.backend
        now = backend.now()
        unknown: set[str] = set()
        left: set[str] = set()
        for row in self._ready(now):
            if row.queue not in self._queues or taken(row.id, row.agent, row.branch):
                continue
            function = self._functions.taking(row.function, row.version)
            if function is None:
                since = self._unknown.get(row.id, (row, time.monotonic()))[1]
                self._unknown[row.id] = row, since
                unknown.add(row.id)
                continue
            if row.id in self._callers:
                continue
            look = Look(backend, row.agent, row.id)
            if self._has_own_workers(row.function, row.queue, row.version):
                if row.status == "running" and self._held(
                    look.again(), row.agent, row.agent_no, row.branch
                ):
                    continue
                left.add(row.id)
                if time.monotonic() - self._left.setdefault(row.id, time.monotonic()) < LEFT_S:
                    continue
            since_when = due_since(row, now)
            yield Pick(row.id, row.agent, row.branch, function, look, since_when, row)
        # Replaced only once complete: what this look has not come to may be there still.
        if self._saw_all:
            self._unknown = {run: self._unknown[run] for run in unknown if run in self._unknown}
            self._left = {run: self._left[run] for run in left if run in self._left}

    def _ready(self, now: int) -> Iterator[RunInfo]:
        """Yields rows that could be gone on with, those first that have been due for longest.
        Reads first a few, then more, for as long as the caller asks."""
        seen: set[str] = set()
        took_s, may_go_deeper = 0.0, time.monotonic() >= self._deeper_at
        for limit in chain(PAGES, (PAGES[-1] * DEEPER**n for n in count(1))):
            is_deep = limit > PAGES[-1]
            self._saw_all = not is_deep or may_go_deeper
            if not self._saw_all:
                return
            began = time.monotonic()
            found = self._context.backend.ready(now, limit)
            if is_deep:
                took_s += time.monotonic() - began
                self._deeper_at = began + took_s / LOOKING_MAX
            found.sort(key=lambda row: due_since(row, now))
            yield from (row for row in found if row.id not in seen)
            if len(found) < limit:
                return
            seen.update(row.id for row in found)

    def _starts(self, taken: Taken) -> Iterator[Pick]:
        for message in self._asked.first_of_each(taken):
            function = self._function_of(message)
            if function is not None:
                look = Look(self._context.backend, message.agent, message.run)
                yield Pick(
                    message.run,
                    message.agent,
                    branch_asked(message),
                    function,
                    look,
                    message.at_micros,
                    None,
                    message,
                )

    def _is_ours(self, message: Message) -> bool:
        asked = message.value if isinstance(message.value, Mapping) else {}
        queue = str(asked.get("queue", "default"))
        if queue not in self._queues:
            return False
        if self._function_of(message) is None:
            self._say_unknown(message)
            return False
        if not self._has_own_workers(message.name, queue, version_asked(message)):
            return True
        return self._context.backend.now() - message.at_micros >= LEFT_S * 1e6

    def _function_of(self, message: Message) -> Callable[..., Any] | None:
        return self._functions.taking(message.name, version_asked(message))

    def _has_own_workers(self, name: str, queue: str, version: str) -> bool:
        """Returns True if this worker only replays that version, and a living one has it."""
        return (name, queue, version) in self._own and (
            self._functions.of_version(name, version) is None
        )

    def see(self, living: Iterable[ExecutorRow]) -> None:
        """Notes what living executors run, as just looked at."""
        self._own = routed(living, exactly=True)

    def _held(self, look: Look, agent: str, no: int, branch: str) -> bool:
        """Returns True if a living executor has the branch: another one, or this one for another
        run."""
        ref: Ref | None = look.ref(no, branch)
        if ref is None or ref.holder is None or self._runner.liveness.leaked(agent, no, ref):
            return False
        return self._context.backend.alive(ref.holder)

    def _must_queue(self, look: Look, branch: str, no: int, row: RunInfo | None) -> bool:
        """Returns True if another run of the branch comes first."""
        return any(
            other.branch == branch
            and other.agent_no == no
            and (row is None or (other.id != row.id and other.started < row.started))
            for other in look.unfinished()
        )

    def still(self, look: Look, info: RunInfo | None) -> bool:
        """Returns True if there is still something to do for the run of this look."""
        if info is None:
            return bool(look.inbox("start"))
        match info.status:
            case "waiting":
                if 0 < info.wake_at_micros <= self._context.backend.now():
                    return True
                return any(m.no > info.seen or m.kind == "cancel" for m in look.inbox())
            case "needs_attention":
                return bool(look.inbox("cancel"))
        return info.status not in FINISHED

    # -- how to do it --------------------------------------------------------------------------

    def command(self, pick: Pick) -> Command | None:
        """Returns the command to execute; None if it was for an agent that does not exist any more.

        Raises:
            NeedsCallerError: its arguments are not stored. The run is not picked again.
        """
        order = self._order(pick)
        if order is None or order.run_id(pick.look) != pick.run:
            return None
        if order.input is None:
            self._callers.add(pick.run)
            raise NeedsCallerError
        return Command(pick.function, order)

    def tell_gone(self, pick: Pick) -> None:
        """Tells the parents of a run that was ordered while its agent was being deleted that it
        will not begin. Writes, once."""
        if pick.asked is None:
            return
        for message in to_parents(never_begun(pick.asked)):
            self._context.send(message)
            self._runner.wakeups.tell(message.run)

    def _order(self, pick: Pick) -> Order | None:
        if pick.row is None:
            assert pick.asked is not None
            return Order.asked(pick.asked)
        info = pick.look.agent(pick.agent)
        if info is None or info.no != pick.row.agent_no:
            return None
        began = begin_of(LogReader(pick.look, info).commit(pick.row.started), pick.run)
        return None if began is None else Order.begun(pick.agent, began)

    # -- runs that no executor can continue ----------------------------------------------------

    def _say_unknown(self, message: Message) -> None:
        known = message.name, version_asked(message)
        if known not in self._unknown_starts:
            self._unknown_starts.add(known)
            what = in_words(*known, plain=message.name not in self._functions)
            _log.info("run %s: this worker does not know %s", message.run, what)

    def note_unknown(self) -> list[RunInfo]:
        """Notes that runs of functions that no living executor serves need attention, so that they
        are visible. A run that was asked to end is ended. Writes.

        Returns:
            Their rows before the change.
        """
        noted: list[RunInfo] = []
        late = time.monotonic() - UNKNOWN_AFTER_S
        due = [row for row, since in self._unknown.values() if since <= late]
        if not due:
            return []
        served = routed(row for row in self._context.backend.executors() if row.alive)
        functions = {(function, queue) for function, queue, _ in served}
        for row in due:
            if (row.function, row.queue, row.version) in served or len(noted) == UNKNOWN_MAX:
                continue
            try:
                if self._note(row, others=(row.function, row.queue) in functions):
                    noted.append(row)
            except StoreUnavailable:
                raise
            except PerdureError as refused:  # it goes on, or is gone, or its log is damaged
                _log.info("run %s: %s", row.id, refused)
                self._unknown.pop(row.id, None)
        return noted

    def _note(self, row: RunInfo, *, others: bool) -> bool:
        look = Look(self._context.backend, row.agent, row.id).again()
        info = look.run_row()
        held = self._held(look, row.agent, row.agent_no, row.branch)
        if held or info is None or not self.still(look, info):
            return False
        asked = self._context.backend.inbox(row.id, kind="cancel", limit=1)
        if asked:
            self.handle(row.id).cancel(str(asked[0].value or ""))
        else:
            self.stop(row.id, unknown(row, others=others))
        return True

    def stop(self, run: str, problem: NeedsAttention) -> None:
        """Notes that a run needs a person. Writes.

        Raises:
            Conflict: it is finished, somebody executes it, or it is noted already.
        """
        stop(self._context, self._runner.wakeups, run, str(problem))

    def give_up(self, pick: Pick, problem: NeedsAttention) -> None:
        """The same of a run that this worker could not bring to an end. If nothing is recorded of
        its version, a worker of the run's own takes it up. Writes."""
        version = self.handle(pick.run).info.version
        stop(
            self._context,
            self._runner.wakeups,
            pick.run,
            str(misfit(problem, pick.function, version)),
        )

    def settle_left(self) -> None:
        """Sees to what nobody saw to, and no message tells of. Writes."""
        self.take_up_known()
        asked = self._context.backend.inbox(kind="cancel", limit=PAGES[-1])
        end_told(self._context, self._runner.wakeups, asked)  # by who was killed before it did

    def take_up_known(self) -> list[str]:
        """Lets those runs continue that needed attention because no executor served their function
        in their version, as this worker does; or because one that only replays that could not.
        Writes."""
        taken: list[str] = []
        for row in self._context.backend.runs(RunQuery(status=("needs_attention",))):
            if row.queue not in self._queues or not self._can_take_up(row):
                continue
            try:
                self.handle(row.id).resume()
            except PerdureError as refused:
                _log.info("run %s: %s", row.id, refused)
            else:
                taken.append(row.id)
        return taken

    def _can_take_up(self, row: RunInfo) -> bool:
        problem = row.problem or ""
        if UNKNOWN in problem:
            return self._functions.taking(row.function, row.version) is not None
        return MISFIT in problem and (
            self._functions.of_version(row.function, row.version) is not None
        )

    def handle(self, run: str) -> RunHandle[Any]:
        return RunHandle(self._context, self._runner.wakeups, run)
