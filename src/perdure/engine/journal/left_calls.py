"""The calls of histories that a run left, as the log tells of them: its own before it was set back;
those of the runs that it was forked from, also behind the fork.

A fork and the run that it was made from go on from the same turn. What that run does in the rest of
this turn may happen while the fork is under way, so it is read again when the fork comes to a call;
each commit is read once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.core.format.left_behind import LeftBehind, LeftCall, LeftEnd
from perdure.core.format.records import Completed, Intent, Outcome, Record, WaitEnded
from perdure.core.schema.digest_keys import form_of
from perdure.core.schema.value_digest import is_known
from perdure.engine.journal.call_identity import Form
from perdure.engine.journal.journal import Journal
from perdure.engine.journal.scopes import scope_of
from perdure.model import FINISHED, Commit, RunInfo
from perdure.state.runs.run_reading import RecordedCalls, RecordedWaits, begun_key
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.log.reader import SEQ_END, LogReader

Kind = tuple[str, frozenset[tuple[str, str]]]
"""The called function, and the digests of its arguments: where both are equal, the calls are."""

LEFT = "in a history that this run left, or by the run that it was forked from"
"""The history that such a call was made in, in the words of an error."""


class Made(Struct):
    """A tool call that was made, or a run that was started.

    Attributes:
        name: the called function, without the calling task; `scope`: that task's path.
        key: its permanent key: the idempotency key, or the run's id. Empty: it may have been made,
            by a commit that cannot be read.
        seq: the seq of the commit that recorded it first.
        outcome: the last record of its outcome; None if there is none, or it was not read yet.
        outcome_at: seq of the commit with that; 0 if there is none.
        real: it was called; not only recorded that a person must decide about it.
        instead: the key of the call that it replaced, or was to replace.
        of: the module of the called function; empty if that is not recorded.
        place, run: of its records.
        late: that run made it behind the fork.
        undone: a compensation of it was begun.
        undoes: of a compensation, the key of the call that it undid.
    """

    name: str
    scope: str
    key: str
    seq: int
    args: Mapping[str, str]
    preview: str
    outcome: Outcome | None = None
    real: bool = False
    instead: str = ""
    of: str = ""
    outcome_at: int = 0
    place: str = ""
    run: str = ""
    late: bool = False
    undone: bool = False
    undoes: str = ""

    @property
    def kind(self) -> Kind:
        return self.name, frozenset(self.args.items())

    @property
    def stands(self) -> bool:
        """True if it may have had an effect: it was called, and is not known to have failed to."""
        return self.real and not (self.outcome is not None and self.outcome.not_done)

    def had(self, args: Mapping[str, str]) -> bool:
        """Returns True if it is known to have had these arguments. An unknown argument is equal to
        nothing."""
        return dict(self.args) == dict(args) and all(map(is_known, args.values()))

    def gave(self, args: Mapping[str, str], of: str) -> Outcome | None:
        """The outcome that can be taken over for a call of the same name, of a function of that
        module, with these arguments; None: nobody knows it, or whether it is the same call."""
        outcome = self.outcome
        if self.undone:  # what it gave is not there any more
            return None
        if self.of != of and self.of:  # it may have moved, or be another one
            return None
        if outcome is None or outcome.cancelled or outcome.not_done:
            return None
        return outcome if self.had(args) else None


class LeftCalls:
    """The calls that a run may find: each is found once, even after a crash in between.

    Args:
        untils: by the ids of the runs whose records it shares, itself first, then the one that it
            was forked from, and so on: the last commit that it shares, or left.
        behind: what it left in earlier turns.

    Attributes:
        by_key: the calls, in the log's order.
        unread: the seq of an unreadable commit which may record a call of these runs: so any
            unknown call may have been made. 0 if there is none.
    """

    def __init__(
        self,
        backend: Backend,
        reader: LogReader,
        info: RunInfo,
        untils: Mapping[str, int],
        behind: LeftBehind,
        journal: Journal,
    ) -> None:
        self.by_key: dict[str, Made] = {}
        self.unread = behind.unread
        self._ends = Ends({end.name: end for end in behind.ends})
        self._backend, self._reader = backend, reader
        self._run, self._untils = info.id, untils
        self._recorded, self._settled = RecordedCalls(), dict[tuple[str, int], Made]()
        self._last: dict[tuple[str, str], Made] = {}
        """The call that was made last at each place of a run."""
        self._on_path = _on_the_path(journal)
        self._late: dict[tuple[str, Kind], deque[Made]] = {}
        self._instead: dict[str, list[Made]] = {}
        self._late_again = False
        self._forms: dict[str, dict[Any, Mapping[str, str]]] = {}
        """By the calls' names: arguments in each form in which some are recorded."""
        self._ahead: Counter[tuple[str, Kind]] = Counter()
        self._passed, self._own, self._met = set[str](), set[str](), set[str]()
        # Those that are in the turn of the fork still, as far as this has read.
        self._beside = {run for run in untils if run != info.id and untils[run] > info.turn_at}
        self._read_to = info.turn_at
        for one in behind.calls:
            self._add(_carried(one))
        self._early(journal, behind)

    @property
    def ends(self) -> Mapping[str, LeftEnd]:
        """The ends of other runs that were taken there, by the names of their messages."""
        return self._ends.taken

    def _early(self, journal: Journal, behind: LeftBehind) -> None:
        """Reads the calls that were made before the fork."""
        if any(self._untils.values()):
            self._read(max(self._untils.values()), journal)
        for commit in journal.commits:
            self.note_said(commit)
        carried = {one.key for one in behind.calls}
        self._left: dict[Kind, list[Made]] = {}
        for one in self.by_key.values():
            if not one.stands or one.late:
                continue
            if one.key not in self._on_path and not self._is_replaced(one):
                self._left.setdefault(one.kind, []).append(one)
            if one.key not in carried:
                self._came_first(one)

    def find(
        self,
        name: str,
        scope: str,
        args: Mapping[str, str],
        form: Form | None,
        undoes: Collection[str] | None = None,
    ) -> Made | None:
        """Returns the call of this name and these arguments that was made in this task, or else the
        first that was made; it is not found again. `form`, `undoes`: see `Before.made`."""
        self.look()
        kinds = [(name, frozenset(args.items()))]
        if form is not None:
            forms = self._forms.get(name, {}).values()
            kinds += [(name, frozenset(form(recorded).items())) for recorded in forms]
        for kind in kinds:
            same = self._left.get(kind, [])
            if self._late_again:
                same[:] = [one for one in same if not self._is_replaced(one)]
            fit = [one for one in same if undoes is None or one.undoes in undoes]
            if fit:
                found = next((one for one in fit if one.scope == scope), fit[0])
                same.remove(found)
                return found
        if undoes is not None:  # what others undo beside this is theirs
            return None
        late = (self._late_of(run, kind) for kind in kinds for run in self._untils)
        return next((queue.popleft() for queue in late if queue), None)

    def unanswered(self) -> list[Made]:
        """Returns the calls that the run may find by now, also those that it has found."""
        self.look()
        for run, kind in self._late:
            self._late_of(run, kind)
        return [one for one in self.by_key.values() if one.stands and one.key not in self._passed]

    # -- what the other run does meanwhile -----------------------------------------------------

    def look(self) -> None:
        """Reads what the runs that it was forked from have done since the last look. What one of
        them does at this very moment, both may do."""
        if not self._beside:
            return
        rows = [row for run in self._beside for row in self._backend.runs(RunQuery(run_id=run))]
        ends = [row.ended if row.status in FINISHED else SEQ_END for row in rows]
        if (until := max(ends, default=0)) > self._read_to:
            self._read(until)

    def _came_first(self, own: Made) -> None:
        """Notes a call that a fork was the first to come to: the same call of a run that it was
        made from, made later, is no further one."""
        if own.instead:
            return
        older = [*self._untils]
        for run in older[older.index(own.run) + 1 :]:
            self._ahead[run, own.kind] += 1

    def _late_of(self, run: str, kind: Kind) -> deque[Made]:
        """Returns the late calls of a run that the forks have not come to by themselves, the next
        one first."""
        queue = self._late.get((run, kind), deque())
        while queue:
            one = queue[0]
            if not one.stands:
                del self.by_key[one.key]  # if it is made after all, it comes anew
            elif self._is_replaced(one):
                pass
            elif self._ahead[run, kind] and not one.instead and one.key not in self._met:
                self._ahead[run, kind] -= 1
                self._passed.add(one.key)
            else:
                break
            queue.popleft()
        return queue

    def _is_replaced(self, one: Made) -> bool:
        return any(other.stands for other in self._instead.get(one.key, ()))

    # -- reading -------------------------------------------------------------------------------

    def _read(self, until: int, journal: Journal | None = None) -> None:
        """Reads on in the log, to this commit or to its end. `journal`: that of the run, for values
        that were completed before the fork: they are so in there, too."""
        for commit in self._reader.commits(self._read_to + 1, until, damaged_too=True):
            self._read_to = commit.seq
            if not self.unread and self._may_call(commit):
                self.unread = commit.seq
            for record in commit.typed:
                until_there = self._untils.get(record.run)
                if until_there is not None:
                    self._note(record, commit.seq, journal, late=commit.seq > until_there)
            if journal is None and not self._beside:
                return

    def _may_call(self, commit: Commit) -> bool:
        """Returns True if a commit is unreadable and may record a call of one of these runs. Its
        header may tell whose it is."""
        if not commit.damaged or commit.records:
            return False
        run = commit.cause.run
        if commit.seq > max(self._untils.values()):
            return run is None or run in self._beside
        return run is None or run in self._untils

    def _note(self, record: Record, seq: int, journal: Journal | None, *, late: bool) -> None:
        run, place = record.run, record.place
        if record.made:  # a fork came to that call behind the other run, not ahead of it
            self._met.add(record.made)
        if late and run == self._run:
            self._note_own(record, seq)
            return
        if late and run not in self._beside:
            return
        if late and record.t == "run-turn":
            self._beside.discard(run)
            return
        self._ends.note(record, seq)
        if isinstance(record, Completed):
            if not late and journal is not None:
                journal.complete(record, seq)
            made_there = self._settled.get((place, record.seq))
            if made_there is not None and made_there.outcome is not None:
                made_there.outcome = replace(made_there.outcome, value=record.value)
                made_there.outcome_at = seq
            return
        if place:
            self._note_call(record, seq, late)

    def _note_own(self, record: Record, seq: int) -> None:
        """Notes a call of the run itself, behind the fork."""
        key = begun_key(record)
        if key and key not in self._own:  # a later attempt does not say what the call is for
            self._own.add(key)
            if not record.made_at:
                self._came_first(_made(record.place, key, record, seq))

    def _note_call(self, record: Record, seq: int, late: bool) -> None:
        key = self._recorded.key_of(record)
        if begun_key(record):
            made = self.by_key.get(key) or self._add(_made(record.place, key, record, seq))
            self._last[record.run, record.place] = made
            if isinstance(record, Intent):
                paid = self._last.get((record.run, record.compensates))
                if paid is not None:
                    paid.undone, made.undoes = True, paid.key
            if not made.real and not record.made_at:
                made.real = True
                if late:
                    self._came_late(made)
            made.outcome = record if isinstance(record, Outcome) else None
            made.outcome_at = seq if isinstance(record, Outcome) else 0
        call = self.by_key.get(key)
        if call is None or not isinstance(record, Outcome):
            return
        if record.t == "outcome" or (record.t == "cancelled" and call.outcome is None):
            call.outcome, call.outcome_at = record, seq
            self._settled[record.place, seq] = call

    def _add(self, made: Made) -> Made:
        self.by_key[made.key] = made
        self._forms.setdefault(made.name, {}).setdefault(form_of(made.args), made.args)
        if made.instead:
            self._instead.setdefault(made.instead, []).append(made)
        return made

    def _came_late(self, made: Made) -> None:
        made.late = True
        if made.key not in self._on_path:
            self._late.setdefault((made.run, made.kind), deque()).append(made)
        self._late_again = self._late_again or bool(made.instead)

    def note_said(self, commit: Commit) -> None:
        """Notes what a person said of these calls since."""
        for record in commit.typed:
            if isinstance(record, Outcome) and record.t == "outcome":
                call = self.by_key.get(str(record.key))
                if call is not None:
                    call.outcome, call.outcome_at = record, commit.seq


def _on_the_path(journal: Journal) -> set[str]:
    """Returns the keys of the calls in the run's own history, and of those that they replaced."""
    keys: set[str] = set()
    for entry in journal.entries.values():
        for record in (entry.call, entry.outcome):
            if record is not None:
                keys.update(stands_for(record))
    return keys


def stands_for(record: Record) -> Iterator[str]:
    """Yields the keys of the calls that a record on the path stands for: of its own, and of the one
    that it replaced. A signal's key may be one of a call, which its receiver answers."""
    if key := begun_key(record):
        yield key
    if record.made:
        yield record.made


class Ends:
    """The ends of other runs that runs took: the last of each, as its type read it.

    Attributes:
        taken: by the names of the messages.
    """

    def __init__(self, taken: dict[str, LeftEnd] | None = None) -> None:
        self.taken = taken or {}
        self._waits = RecordedWaits()
        self._names: dict[tuple[str, int], str] = {}

    def note(self, record: Record, seq: int) -> None:
        """Notes a record of a commit; each has to be, in the log's order."""
        self._waits.note(record)
        if isinstance(record, WaitEnded) and record.t == "wait-ended":
            branch = self._waits.branch_of(record)
            if branch is not None and branch.kind == "child":
                self._names[record.place, seq] = branch.name
                self._take(branch.name, record.place, seq)
        elif isinstance(record, Completed) and (record.place, record.seq) in self._names:
            self._take(self._names[record.place, record.seq], record.place, seq)

    def _take(self, name: str, place: str, seq: int) -> None:
        self.taken[name] = LeftEnd(name=name, place=place, seq=seq)


def _made(place: str, key: str, record: Record, seq: int) -> Made:
    scope, instead = scope_of(place), record.made
    return Made(
        place[len(scope) :].rpartition("#")[0],
        scope,
        key,
        seq,
        record.args,
        record.preview,
        instead="" if instead == key else instead,
        of=str(record.of) if isinstance(record, Intent) else "",
        place=place,
        run=record.run,
    )


def left(made: Made) -> LeftCall:
    return LeftCall(
        place=made.place,
        run=made.run,
        key=made.key,
        seq=made.seq,
        args=made.args,
        preview=made.preview,
        outcome=0 if made.undone else made.outcome_at,
        made=made.instead,
        of=made.of,
    )


def _carried(call: LeftCall) -> Made:
    scope = scope_of(call.place)
    return Made(
        call.place[len(scope) :].rpartition("#")[0],
        scope,
        call.key,
        call.seq,
        call.args,
        call.preview,
        real=True,
        instead=call.made,
        of=call.of,
        outcome_at=call.outcome,
        place=call.place,
        run=call.run,
    )
