"""One thread as this process knows it: what was last stored there, and how to continue it.

A thread is an agent. Each checkpoint is a commit whose delta leads from its parent's state to its
own; a second child of one parent begins a branch. Memory is used only after a look at the log's
end, and the transaction that appends compares the head again: others may write, too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Literal

from perdure.adapters import ForeignLogs, Held, KeyUsedError, moved
from perdure.core.values.plain_values import Plain, same
from perdure.errors import Conflict, NotFound, SchemaError
from perdure.integrations.langgraph.threads import state_changes, thread_commits, thread_refusals
from perdure.integrations.langgraph.threads.coroutine_queue import CoroutineTurns
from perdure.integrations.langgraph.threads.finding import find_any, find_at_end, latest, open_at
from perdure.integrations.langgraph.threads.log_view import Tip, View, parent_of, writes_of
from perdure.integrations.langgraph.threads.origins import views_of
from perdure.integrations.langgraph.threads.queued_writes import Queue, Request
from perdure.integrations.langgraph.threads.recent_commits import NEAR
from perdure.integrations.langgraph.threads.record import USUAL_V, malformed, pack, record_of
from perdure.integrations.langgraph.threads.removed import is_removed, removals_of, was_deleted
from perdure.integrations.langgraph.threads.requested_checkpoints import Requested
from perdure.integrations.langgraph.threads.requests import Extra, Found, Put, Slot, ThreadLine
from perdure.integrations.langgraph.threads.state_changes import Sources
from perdure.integrations.langgraph.threads.write_records import Write
from perdure.integrations.langgraph.values import thread_names
from perdure.integrations.langgraph.values.rich_values import Coder
from perdure.model import Cause
from perdure.system.backoff import chances
from perdure.system.locks import Lock

LINES_KEPT = 4
"""Lines of one thread whose state is in memory."""

OnRace = Literal["branch", "conflict"]


class Thread:
    """Take `lock` for every use but `settle`: writes that wait share the next commit."""

    def __init__(
        self, logs: ForeignLogs, name: str, asked: Requested, begins: Callable[[], None]
    ) -> None:
        self.name = name
        self.lock = Lock()
        self._logs = logs
        self._views: list[View] = []
        self._end = 0
        self._lines: OrderedDict[str, ThreadLine] = OrderedDict()
        self.queue, self.turns = Queue(), CoroutineTurns()
        self._asked = asked
        self._begins = begins

    # -- keeping in step -------------------------------------------------------------------

    def views(self) -> list[View]:
        """The thread's logs as they are now: its own first. None where it is not there."""
        info = self._logs.look(self.name)
        if info is None or info.deleted:
            self.forget()
            return []
        if not self._views or self._views[0].log.info.no != info.no:
            self.forget()
            own = View(self._logs.log(info))
            own.read_short(info.seq)
            self.check_schema(own.commit(1).schema_id)
            self._views = views_of(self._logs, own)
        elif info.seq != self._end:
            self._views[0].forget()  # somebody else was here
        self._step_to(info.seq)
        return self._views

    @property
    def seen(self) -> list[View]:
        """The views as they were at the last look."""
        return self._views

    def _step_to(self, end: int) -> None:
        self._end = end
        self._views[0].step_to(end)

    def _for_append(self, namespace: str, checkpoint_id: str | None) -> list[View]:
        """The views as last seen, if a line ends with this checkpoint in them: then the transaction
        that appends there says whether it still does. Else the views as they are now."""
        if self._views and checkpoint_id is not None:
            for tip in self._views[0].tips(namespace):
                if tip.at and tip.open and tip.id == checkpoint_id:
                    return self._views
        return self.views()

    def check_schema(self, found: str) -> None:
        if found != thread_names.SCHEMA_ID:
            problem = f"it is not a thread: its state was written under schema {found!r}"
            hint = "give the thread another id"
            raise SchemaError(problem, target=f"agent {self.name!r}", hint=hint)

    def forget(self) -> None:
        """Drops the thread's memory."""
        self._views, self._end = [], 0
        self._lines.clear()

    def _line(self, view: View, tip: Tip) -> ThreadLine:
        """The state at a line's end, from memory if that is still the one."""
        line = self._lines.get(tip.branch)
        if line is None or line.held.seq != tip.head or line.held.since is None:
            line = ThreadLine(view.at(tip.head), {})
        self._keep(tip.branch, line)
        return line

    def _past(self, view: View, seq: int) -> ThreadLine:
        """The state at a commit behind which others came. Who reads it may go on from it next."""
        name = f"@{seq}"
        line = self._lines.get(name) or ThreadLine(view.at(seq), {})
        self._keep(name, line)
        return line

    def _keep(self, branch: str, line: ThreadLine) -> None:
        self._lines[branch] = line
        self._lines.move_to_end(branch)
        while len(self._lines) > LINES_KEPT:
            self._lines.popitem(last=False)

    # -- finding ---------------------------------------------------------------------------

    def find(self, namespace: str, checkpoint_id: str | None) -> Found | None:
        """A checkpoint by its id, or the latest of the namespace: the one with the greatest id."""
        views = self.views()
        if not views:
            return None
        removals = removals_of(views)
        if checkpoint_id is None:
            return latest(views, removals, namespace)
        found = find_at_end(views[0], namespace, checkpoint_id)
        found = found or find_any(views, namespace, checkpoint_id)
        if found is None or found.view.is_trimmed(found.seq):
            return None
        if is_removed(removals, found.view.log, namespace, found.seq):
            return None
        if found.tip is None:
            tips = found.view.tips(namespace)
            found.tip = next((tip for tip in tips if tip.at == found.seq), None)
        if found.tip is None:
            self._asked.note(self.name, namespace, checkpoint_id)
        return found

    def state_of(self, found: Found) -> tuple[Plain, Callable[[Sources], None]]:
        """A checkpoint's state, not to be changed, and what to call with the objects that it was
        given out as."""
        tip = found.tip
        if found.view is not self._views[0]:
            return found.view.log.at(found.seq).state, lambda sources: None
        if tip is not None and tip.pure:
            line = self._line(found.view, tip)
        else:
            line = self._past(found.view, found.seq)

        def given(sources: Sources) -> None:
            line.sources = sources

        return line.held.state, given

    def state_at_hand(self, found: Found) -> Plain | None:
        """A checkpoint's state, not to be changed, if it is in memory."""
        tip = found.tip
        if found.view is not self._views[0]:
            return None
        line = self._lines.get(tip.branch if tip is not None and tip.pure else f"@{found.seq}")
        if line is None or (tip is not None and tip.pure and line.held.seq != tip.head):
            return None
        return line.held.state

    def told(self, found: Found, namespace: str) -> tuple[Extra, list[Write]]:
        """Returns the data of a checkpoint, not to be changed; and all writes for it, in order."""
        own, tip = self._views[0], found.tip
        if tip is not None and found.view is own and len(self._views) == 1:
            line = self._lines.get(tip.branch)
            if (
                line is not None
                and line.put is not None
                and line.held.seq == tip.head == tip.at
                and own.log.key(thread_names.writes_key(namespace, found.id, 1)) is None
            ):
                return line.put, []
        commit = found.view.commit(found.seq)
        record = record_of(commit)
        if not record:
            raise (
                thread_refusals.removed(self.name, found.id)
                if commit.trimmed
                else malformed(commit)
            )
        told = Extra(record["rest"], record["metadata"], parent_of(found.view, record))
        return told, self.writes_of(found, namespace)

    def writes_of(self, found: Found, namespace: str, reach: int = NEAR) -> list[Write]:
        """Returns the writes for a checkpoint; see `view.writes_of`."""
        return writes_of(self._views, found.view, found.seq, namespace, found.id, reach)

    # -- checkpoints -----------------------------------------------------------------------

    def put(self, coder: Coder, put: Put, on_race: OnRace) -> None:
        """Commits a checkpoint; durable when this returns.

        Raises:
            Conflict: its parent has a child already, and `on_race` says so.
            NotFound: the thread was deleted since its parent was put.
        """
        waits = bool(self._views) and self.queue.holds(put.namespace, put.parent)
        if waits and self._put_with_writes(coder, put):
            return
        for _ in chances():
            self._flush(put.namespace, put.parent)
            views = self._for_append(put.namespace, put.parent)
            if not views:
                thread_refusals.refuse_late_put(self._logs, self.name, put)
                if self._create(coder, put):
                    return
                continue
            place = self._place(views, put, on_race)
            try:
                self._commit_at(coder, put, views[0], place)
                return
            except KeyUsedError:
                self._views[0].forget()
                if self._put_again(coder, put, views[0], on_race):
                    return
            except Conflict:  # somebody was faster: decide anew
                self._views[0].forget()
            except NotFound:
                self.forget()
        raise self.too_busy()

    def too_busy(self) -> Conflict:
        """For a commit that others were faster than each time."""
        problem, hint = "could not get a commit in between those of others", "make the call again"
        return Conflict(problem, target=f"thread {self.name!r}", hint=hint)

    def _create(self, coder: Coder, put: Put) -> bool:
        """The thread with its first checkpoint, in one commit; False: decide anew."""
        if put.namespace or put.parent is not None:
            self._create_empty()
            return False
        self._begins()
        delta, state, sources = state_changes.begin(coder, put.checkpoint)
        key = thread_names.checkpoint_key("", put.id, 1)
        try:
            log, held = self._logs.create(
                self.name,
                state,
                thread_commits.cause_of(put, key, "create"),
                records=[pack(put.rest, put.metadata, None, 0, delta)],
            )
        except Conflict:
            return False
        self.forget()
        self._views = [View(log)]
        self._step_to(held.seq)
        self._views[0].begin(Tip("main", held.seq, held.seq, put.id, 0, True))
        self._keep("main", ThreadLine(held, sources))
        return True

    def _create_empty(self) -> None:
        with suppress(Conflict):  # somebody else did
            self._logs.create(self.name, state_changes.nothing(), Cause("create", "thread"))

    def _place(self, views: list[View], put: Put, on_race: OnRace) -> Slot:
        """Returns the place for a checkpoint: behind its parent, or on a line of its own."""
        own = views[0]
        tips = own.tips(put.namespace)
        late = thread_commits.late(tips, put.id)
        tip = open_at(tips, put.parent)
        if tip is not None:
            return Slot(tip.branch, False, self._line(own, tip), late=late, parent=tip.at)
        branch = thread_names.branch_of(put.namespace, own.lines(put.namespace) + 1)
        first = tips[0] if tips and tips[0].open and not tips[0].at and tips[0].head else None
        parent = None
        if put.parent is not None:
            parent = find_any(views, put.namespace, put.parent)
            if parent is None:
                thread_refusals.refuse_gone(self.name, own, put.namespace, put.parent)
            if parent is None and was_deleted(self._logs, own, put.namespace, put.parent):
                thread_refusals.refuse_late(self.name, put.id)
        if parent is None or parent.view is not own:
            # Without a parent here (none at all, unknown, or in the log that it was copied from).
            if parent is not None and any(one.at for one in tips):
                self._check_race(put, on_race)
            if first is not None:
                return Slot(first.branch, False, None, first.head, late)
            return Slot(branch, True, None, 1, late)
        if not any(one.at == parent.seq for one in tips):  # it ends a line that has more no more
            self._check_race(put, on_race)
        line = self._past(own, parent.seq)
        return Slot(branch, True, line, late=late, parent=parent.seq)

    def _check_race(self, put: Put, on_race: OnRace) -> None:
        """The parent has a child. Beside it on purpose, or in ignorance of it?"""
        asked = self._asked.knows(self.name, put.namespace, put.parent or "")
        if on_race != "branch" and not asked:
            thread_refusals.refuse_race(self.name, put)

    def _put_with_writes(self, coder: Coder, put: Put) -> bool:
        """Commits a checkpoint along with the queued writes for its parent. Only at a line's end
        that is in memory: else, or where it is refused, False, and the caller goes step by step."""
        view = self._views[0]
        tips = view.tips(put.namespace)
        tip = open_at(tips, put.parent)
        line = self._lines.get(tip.branch) if tip is not None else None
        if tip is None or line is None or line.held.seq != tip.head or line.held.since is None:
            return False
        # Who looks for the writes takes the first child on the parent's line.
        past = view.past()
        if not tip.pure or (past.moved and view.commit(tip.at).branch != tip.branch):
            return False
        place = Slot(tip.branch, False, line, late=thread_commits.late(tips, put.id), parent=tip.at)
        mine = self.queue.take(put.namespace, put.parent)
        if not mine:  # somebody else was faster
            return False
        held = None
        try:
            (delta, state, cause, records), sources = thread_commits.of_checkpoint(
                coder, put, place, 1, past
            )
            records += thread_commits.records_of(tip, mine)
            held = view.log.append(
                line.held, delta, state, cause, branch=tip.branch, records=records, folded=True
            )
            self._saved(view, put, place, 1, held, sources)
        except BaseException as error:
            if held is None or isinstance(error, Conflict):
                self.queue.put_back(mine)
            self._lines.pop(tip.branch, None)
            view.forget()
            if isinstance(error, Conflict | NotFound):  # others were here: decide anew
                return False
            raise
        for request in mine:
            request.settle(None)
        return True

    def _commit_at(self, coder: Coder, put: Put, view: View, place: Slot, number: int = 1) -> None:
        try:
            (delta, state, cause, records), sources = thread_commits.of_checkpoint(
                coder, put, place, number, view.past()
            )
            held = view.log.begin(place.after) if place.base is None else place.base.held
            append = partial(view.log.append, branch=place.branch, new=place.new, folded=True)
            held = append(held, delta, state, cause, records=records)
            self._saved(view, put, place, number, held, sources)
        except BaseException:
            self._lines.pop(place.branch, None)  # what it was made of is used up
            raise

    def _commits_at(self, coder: Coder, put: Put, view: View, place: Slot, number: int) -> bool:
        """Commits a checkpoint there; False: decide anew."""
        try:
            self._commit_at(coder, put, view, place, number)
        except Conflict:
            view.forget()
            return False
        return True

    def _saved(
        self, view: View, put: Put, place: Slot, number: int, held: Held, sources: Sources
    ) -> None:
        self._committed(view, held.seq)
        view.put_tip(put.namespace, Tip(place.branch, held.seq, held.seq, put.id, place.late, True))
        told = None
        if number == 1:
            view.note_written(put.namespace, put.id, 0)
            told = Extra({"v": USUAL_V, **put.rest}, put.metadata, put.parent)
        self._keep(place.branch, ThreadLine(held, sources, told))

    def _committed(self, view: View, seq: int) -> None:
        """Notes the log's end; if others committed in between, what is known of them is
        outdated."""
        if seq != self._end + 1:
            view.forget()
        self._step_to(seq)

    def _put_again(self, coder: Coder, put: Put, view: View, on_race: OnRace) -> bool:
        """Handles a checkpoint whose id exists. If it is put again unchanged, nothing is done;
        otherwise the later one counts."""
        known = view.find(put.namespace, put.id)
        if known is None:
            return self._put_after_all(coder, put, view, on_race)
        _, state, _ = state_changes.begin(coder, put.checkpoint)
        there = view.at(known).state
        before = record_of(view.log.commit(known))
        as_before = [parent_of(view.log, before), before["rest"], before["metadata"]]
        as_now = [put.parent, put.rest, put.metadata]
        if same(as_now, as_before) and same(there, state):
            return True
        parent = view.find(put.namespace, put.parent) if put.parent is not None else None
        number = view.puts(put.namespace, put.id) + 1
        tips = view.tips(put.namespace)
        tip = next((one for one in tips if one.at == known and one.open), None)
        late = max((one.late for one in tips), default=0) + 1
        if tip is not None:
            place = Slot(tip.branch, False, self._line(view, tip), late=late, parent=parent or 0)
        else:
            branch = thread_names.branch_of(put.namespace, view.lines(put.namespace) + 1)
            line = ThreadLine(view.at(known), {})
            place = Slot(branch, True, line, late=late, parent=parent or 0)
        return self._commits_at(coder, put, view, place, number)

    def _put_after_all(self, coder: Coder, put: Put, view: View, on_race: OnRace) -> bool:
        """Puts a checkpoint whose id existed before a rollback discarded it."""
        number = view.puts(put.namespace, put.id) + 1
        if number == 1:
            return False
        place = self._place(self._views, put, on_race)
        return self._commits_at(coder, put, view, place, number)

    # -- writes ----------------------------------------------------------------------------

    def settle(self, request: Request) -> None:
        """Commits queued writes, if nobody did, and those for the same checkpoint that wait. Takes
        `lock` by itself."""
        with self.lock:
            if not request.done:
                self._flush(request.namespace, request.id)

    def _flush(self, namespace: str, checkpoint_id: str | None) -> None:
        """Commits the writes queued for a checkpoint, before what depends on them."""
        mine = self.queue.take(namespace, checkpoint_id)
        if not mine:
            return
        error: BaseException | None = None
        try:
            self._commit_writes(namespace, mine)
        except BaseException as problem:
            error = problem
        for request in mine:
            request.settle(error)

    def _commit_writes(self, namespace: str, requests: list[Request]) -> None:
        checkpoint_id = requests[0].id
        for _ in chances():
            views = self._for_append(namespace, checkpoint_id)
            if not views:
                thread_refusals.refuse_late_writes(self._logs, self.name, namespace, checkpoint_id)
                self._create_empty()
                continue
            view = views[0]
            tips = view.tips(namespace)
            tip, line_of = open_at(tips, checkpoint_id), namespace
            if tip is None:
                if find_any(views, namespace, checkpoint_id) is None:
                    thread_refusals.refuse_gone(self.name, view, namespace, checkpoint_id)
                    if was_deleted(self._logs, view, namespace, checkpoint_id):
                        thread_refusals.refuse_late(self.name, checkpoint_id)
                tip, line_of = next((one for one in view.tips("") if one.open), None), ""
            if tip is None:  # it was deleted since it was looked at
                self.forget()
                continue
            number = view.written(namespace, checkpoint_id) + 1
            try:
                self._append_writes(view, line_of, tip, namespace, number, requests)
                return
            except Conflict:
                view.forget()
            except NotFound:
                self.forget()
        raise self.too_busy()

    def _append_writes(
        self,
        view: View,
        line_of: str,
        tip: Tip,
        namespace: str,
        number: int,
        requests: list[Request],
    ) -> None:
        line = self._lines.get(tip.branch)
        if line is not None and line.held.seq != tip.head:
            line = None
        base = line.held if line is not None else Held(tip.head, None, None)
        delta, state, cause, records = thread_commits.of_writes(
            tip, namespace, number, requests, base.state, view.past()
        )
        held = view.log.append(base, delta, state, cause, branch=tip.branch, records=records)
        self._wrote(view, line_of, tip, namespace, number, requests, held)
        if line is not None:
            line.held = moved(held, held.seq)

    def _wrote(
        self, view: View, line_of: str, tip: Tip, namespace: str, number: int,
        requests: list[Request], held: Held,
    ) -> None:  # two lines, for the limit of the file  # fmt: skip
        self._committed(view, held.seq)
        later = Tip(tip.branch, held.seq, tip.at, tip.id, tip.late, tip.pure)
        view.put_tip(line_of, later)
        view.note_written(namespace, requests[0].id, number)
