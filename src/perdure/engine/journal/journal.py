"""The journal of one run: what its commits recorded, by place, and what of it was consumed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from itertools import count

from msgspec import Struct, field
from msgspec.structs import replace

from perdure.core.format.records import (
    Cancelled,
    Completed,
    Fired,
    Intent,
    Kept,
    Outcome,
    Placed,
    Record,
    Valued,
    WaitBegan,
    WaitEnded,
)
from perdure.core.values.plain_values import Plain
from perdure.engine.journal.call_identity import DATA, QUESTION, SCHEMA, Form, differing
from perdure.engine.journal.entry import TIMER, UNBOUND, UNORDERED, Entry
from perdure.engine.journal.failures import words
from perdure.engine.journal.lacking_resources import lacking, lacks
from perdure.engine.journal.question_digest import with_digests
from perdure.engine.journal.scopes import scope_of
from perdure.engine.journal.unreached import Leftover, first_left
from perdure.errors import NeedsAttention
from perdure.model import Commit
from perdure.state.surroundings import KnownSurroundings
from perdure.visible import visible


class OthersFirstError(Exception):
    """A call can be placed only after others of its scope have reached their records."""


class Journal(Struct):
    """The journal of a run.

    Attributes:
        origin: seq and id of the commit that began the run, or its turn, or set it back since.
        turn: id of the commit that began the run, or its turn: also of what was set back in it.
        order: the settled entries, in the order of the log, and the timers that went off.
        timers: these, by their names.
        clock: the times given to the function, in units since the turn's begin: by the place of the
            last outcome that it had heard of, and the number of requests since.
        began_at: the begin of the run, or of its current turn, in microseconds since 1970; 0 if
            unknown; `turn_at`: the seq of that commit.
        left: the entries that the function has not come to.
        unpatched: names of patches that the run does not have: it was past one when it was asked.
        aliases: ids of the runs that it was forked from.
        tickets: what the openers of its resources kept last, by the names of these.
        surroundings: what is known of those that it is executed in.
        input: the completed arguments of the turn, and the seq of the commit that has them; None:
            they lacked nothing when it began.
    """

    run: str
    origin: tuple[int, bytes] = (0, b"")
    turn: bytes = b""
    entries: dict[str, Entry] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    order: list[Entry] = field(default_factory=list)
    timers: dict[str, Entry] = field(default_factory=dict)
    clock: dict[str, dict[int, int]] = field(default_factory=dict)
    began_at: int = 0
    turn_at: int = 0
    left: Leftover = field(default_factory=Leftover)
    unpatched: set[str] = field(default_factory=set)
    aliases: Collection[str] = ()
    tickets: dict[str, Plain] = field(default_factory=dict)
    surroundings: KnownSurroundings = field(default_factory=KnownSurroundings)
    input: tuple[int, tuple[list[Plain], dict[str, Plain]]] | None = None
    _by_name: defaultdict[str, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    _by_args: dict[tuple[str, frozenset[tuple[str, str]]], list[Entry]] = field(
        default_factory=dict
    )
    _numbers: dict[str, count[int]] = field(default_factory=dict)
    _settled: dict[str, Entry] = field(default_factory=dict)
    _unsure: dict[str, Entry] = field(default_factory=dict)
    _fired: dict[str, list[Entry]] = field(default_factory=dict)
    _timers_in: dict[str, list[Entry]] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        run: str,
        commits: Iterable[Commit],
        origin: tuple[int, bytes] = (0, b""),
        aliases: Collection[str] = (),
        began: Commit | None = None,
    ) -> Journal:
        """Reads the journal from the branch's commits since the run, or its turn, began, oldest
        first.

        Args:
            aliases: ids of runs whose records there are this one's, too: it was forked from them.
            began: the commit that began the run, or its turn, if times count.
        """
        journal = cls(run, origin, commits=list(commits), aliases=aliases)
        if began is not None:
            journal.began_at, journal.turn = began.at_micros, began.id
            journal.turn_at = began.seq
            for record in began.typed:
                if record.run == run or record.run in aliases:
                    journal._note_placeless(record)
        for commit in journal.commits:
            for record in commit.typed:
                whose = record.run
                if whose == run or whose in aliases:
                    journal.note(record, commit.seq)
        journal.order = journal._in_order()
        for number, entry in enumerate(journal.order):
            entry.order = number
        journal.left.sealed()
        for named in journal._by_name.values():
            named.reverse()
        return journal

    def has_left(self, commit: Commit) -> bool:
        """Returns True if a commit is one of this run, or of one that it was forked from, in the
        history that it left when it was set back, or forked, last."""
        if commit.seq >= self.origin[0] or commit.cause.run not in (self.run, *self.aliases):
            return False
        return commit.at_micros >= self.began_at and all(
            commit.seq != one.seq for one in self.commits
        )

    def note(self, record: Record, seq: int) -> Entry | None:
        """Adds a record of a commit; returns the entry at its place, if that has one."""
        entry = None
        if isinstance(record, Completed):
            return self.complete(record, seq)
        if record.place:
            entry = self._add(record, seq)
        elif isinstance(record, Fired):
            self._note_fired(record, seq)
        else:
            self._note_placeless(record)
        if record.again is not None:
            self._cut()
        if entry is None:
            return None
        outcome = entry.outcome
        if outcome is None or (outcome.not_done and not entry.hands):
            self._unsure[entry.place] = entry
        elif self._unsure:
            self._unsure.pop(entry.place, None)
        return entry

    def _note_placeless(self, record: Record) -> None:
        if not isinstance(record, Kept):
            self.surroundings.note(record)
        elif record.run == self.run:  # not of the run it was forked from
            self.tickets[record.name] = record.value

    def complete(self, record: Completed, seq: int) -> Entry | None:
        """Adds what a type filled in, also in a history that the run left: the value is the same
        one there. Of several, the last counts."""
        if record.input is not None:
            if self.input is None or seq >= self.input[0]:
                self.input = seq, record.input
            return None
        entry = self.entries.get(record.place)
        if entry is None or entry.outcome is None or entry.seq != record.seq:
            return None  # another outcome is recorded there
        if seq < entry.completed_at:
            return entry
        entry.outcome = replace(entry.outcome, value=record.value)
        entry.completed_at = seq
        return entry

    def _note_fired(self, record: Fired, seq: int) -> None:
        for place in record.fired:
            fired = Outcome(t=record.t, run=record.run, place=place)
            entry = Entry(place, TIMER, seq, fired, fired, scope=scope_of(place))
            if self.timers.setdefault(place, entry) is entry:
                self._fired.setdefault(record.after, []).append(entry)
        if record.clock:
            self.clock.setdefault(record.after, {}).update(record.clock)

    def timers_in(self, scope: str) -> list[Entry]:
        """Returns the timers that went off and that this scope had set."""
        if self.timers and not self._timers_in:
            for entry in self.timers.values():
                self._timers_in.setdefault(entry.scope, []).append(entry)
        return self._timers_in.get(scope, [])

    def _in_order(self) -> list[Entry]:
        """Returns the settled entries in the order of the log, each followed by the timers that
        went off before the next."""
        if not self._fired:
            return list(self._settled.values())
        order = [*self._fired.get("", ())]
        for place, entry in self._settled.items():
            order += [entry, *self._fired.get(place, ())]
        return order

    def _add(self, record: Record, seq: int) -> Entry | None:
        place = record.place
        entry = self.entries.get(place)
        match record:
            case Outcome(t="step" | "edit" | "move" | "value" | "patch" as kind):
                entry = entry or self._open(Entry(place, kind, seq, record))
                entry.call, entry.outcome = record, record
                entry.cancelled_after_s = record.cancelled_after_s
                entry.told = record
                self._settle(entry, seq)
                if kind == "patch" and not record.value:
                    self.unpatched.add(entry.name[len(entry.scope) :])
            case Intent():
                entry = entry or self._open(Entry(place, str(record.kind), seq, record))
                if entry.cut:  # it is another call, with a key of its own
                    entry.call, entry.attempts, entry.cut = record, 0, False
                    entry.failures, entry.progress = (), None
                entry.attempts += not record.made_at
                entry.outcome, entry.in_doubt = None, True
                self._unsettle(entry)
            case Outcome(t="outcome"):
                if record.key is not None and (entry is None or record.key != entry.call.key):
                    return None  # said of another call, which was made there before
                entry = entry or self._open(Entry(place, "tool", seq, record))
                entry.outcome, entry.in_doubt = record, False
                entry.cancelled_after_s = record.cancelled_after_s
                entry.told = record
                self._settle(entry, seq)
            case WaitBegan():
                record = with_digests(record)
                entry = entry or self._open(Entry(place, "wait", seq, record))
                entry.seq, entry.call, entry.outcome, entry.cut = seq, record, None, False
                entry.refused = 0
                self._unsettle(entry)
            case WaitEnded(t="message-refused"):
                if entry is not None:
                    entry.refused += record.kind == "ask"
            case WaitEnded():
                entry = entry or self._open(Entry(place, "wait", seq, record))
                entry.outcome = record
                self._settle(entry, seq)
            case Placed(t="attempt-failed"):
                entry = entry or self._open(Entry(place, "step", seq, record))
                entry.failures = (*entry.failures, record)
                entry.in_doubt = False
            case Placed(t="progress"):
                entry = entry or self._open(Entry(place, "step", seq, record))
                entry.progress = record
            case Cancelled():
                entry = entry or self._open(Entry(place, record.kind, seq, record))
                if not entry.cancelled:  # else it was once more, before the function heard of it
                    entry.cancelled_after_s = record.after
                entry.told = record
                if entry.outcome is None:
                    entry.outcome, entry.in_doubt = record, False
                    self._settle(entry, seq)
        return entry

    def _cut(self) -> None:
        """Marks where the run was set back, or forked: calls under way then ended in the history
        that was left. An open question is asked again: its answer may be there."""
        for entry in self._unsure.values():
            entry.cut = entry.kind == "tool" or entry.asked or entry.asks

    def _open(self, entry: Entry) -> Entry:
        entry.scope, entry.first = scope_of(entry.place), entry.seq
        self.entries[entry.place] = entry
        if entry.kind != UNBOUND:
            self.left.add(entry)
        self._by_name[entry.name].append(entry)
        return entry

    def _settle(self, entry: Entry, seq: int) -> None:
        entry.seq = seq
        self._settled.pop(entry.place, None)
        if entry.kind not in UNORDERED:
            self._settled[entry.place] = entry

    def _unsettle(self, entry: Entry) -> None:
        """Makes an entry open again: it is tried, or settled, again by a person, before the run has
        continued with it."""
        self._settled.pop(entry.place, None)

    # -- what the function comes to ----------------------------------------------------------

    def find(
        self, name: str, args: Mapping[str, str] | None = None, form: Form | None = None
    ) -> Entry | None:
        """The entry that a call of this name belongs to: the first that was not come to with the
        same arguments, else the first. Calls that run side by side may come in another order.

        Args:
            name: with its scope, without the occurrence.
            form: makes the arguments' digests in the form of recorded ones.
        """
        first = first_left(self._by_name.get(name))
        if first is None or args is None or first.call.args == args:
            return first
        if form is not None:
            args = form(first.call.args)
        same = first_left(self._with_args().get((name, frozenset(args.items()))))
        return same if same is not None else first

    def _with_args(self) -> dict[tuple[str, frozenset[tuple[str, str]]], list[Entry]]:
        """The entries by name and arguments; made when calls first come in another order."""
        if not self._by_args:
            for entry in reversed(self.entries.values()):
                key = entry.name, frozenset(entry.call.args.items())
                self._by_args.setdefault(key, []).append(entry)
        return self._by_args

    def take(self, entry: Entry) -> None:
        """The function has come to it."""
        entry.consumed = True
        if entry.kind != UNBOUND:
            self.left.took(entry)

    def take_values(self, scope: str, before: int | None) -> None:
        """Takes the values of an edit whose task is cancelled before its block: those recorded with
        a commit `before` that of its end are not reached. None: it has not ended."""
        while (left := self.left.first_in(scope)) is not None and left.kind == "value":
            if before is not None and left.seq >= before:
                break
            self.take(left)

    def patched(self, named: str, scope: str) -> tuple[bool, Valued | None]:
        """Returns True if the run takes the new way at a patch, and what must be recorded of that.

        Once it took the old way it stays on it: a loop must not change its way in the middle.

        Args:
            named: the patch's name with its scope.
        """
        entry = self.find(named)
        if entry is not None:
            self.take(entry)
            return bool(entry.call.value), None
        name = named[len(scope) :]
        if name in self.unpatched:
            return False, None
        new = self.left.first_in(scope) is None
        if not new:  # it was here before there was a patch
            self.unpatched.add(name)
        place = self.new_place(named)
        return new, Valued(t="patch", run=self.run, place=place, value=new)

    def new_place(self, name: str) -> str:
        """The place of a call that is not recorded: the next occurrence that is free. Of calls that
        ran side by side, a later one may be recorded and an earlier one not."""
        # Threads may share a scope: no two of them draw the same number, and that needs no lock.
        numbers = self._numbers.get(name) or self._numbers.setdefault(name, count(1))
        while (place := f"{name}#{next(numbers)}") in self.entries:
            pass
        return place

    def key(self, place: str, args: Mapping[str, str]) -> str:
        """The idempotency key of a call."""
        # From the commit that began the turn, not from its name: in a new store the same name would
        # give the same keys, and receivers would ignore calls that they had not seen. From the
        # arguments, too: another request must not be taken for the same one.
        said = place
        for name in sorted(args):
            said += f"\0{name}\0{args[name]}"
        return sha256(self.origin[1] + said.encode()).hexdigest()[:32]

    @property
    def replaying(self) -> bool:
        """True if anything recorded is left to replay."""
        return self.left.number > 0

    def check_new(self, name: str, scope: str, kind: str = "") -> None:
        """A call that is not recorded: its scope must have come to all that it had recorded; of an
        edit, but for values that were drawn in its block, and recorded with another commit.

        Raises:
            NeedsAttention: the function does something else than it did before.
        """
        left = self.left.first_in(scope)
        if left is not None and kind == "edit" and left.kind in UNORDERED:
            others = [one for one in self.left.all_in(scope) if one.kind not in UNORDERED]
            left = others[0] if others else None
        if left is not None:
            raise changed(
                f"the function now calls {self.new_place(name)}, where it had "
                f"recorded {describe(left)}",
                self.run,
            )

    def check_finished(self, error: Exception | None = None) -> None:
        """The function returned, or raised: all that was recorded must have been come to.

        Raises:
            NeedsAttention: it was not.
            MemoryError, RecursionError: it was not, for want of room.
        """
        left = self.left.first()
        if left is not None:
            if isinstance(error, MemoryError | RecursionError):
                raise error  # no word of what the code is
            raise came_short("", left, error, self.run)

    def check_call(
        self,
        entry: Entry,
        kind: str,
        args: Mapping[str, str],
        preview: Callable[[], str],
        form: Form | None = None,
    ) -> None:
        """The call at a place must be the one that was recorded there.

        Raises:
            NeedsAttention: naming the arguments that differ.
        """
        recorded = entry.call.args
        if entry.kind != kind:
            raise changed(
                f"{entry.place} is a {kind} now and was recorded as a {entry.kind}", self.run
            )
        if recorded == args:
            return
        names = differing(recorded, args, form)  # a question may have been given its key since
        if {QUESTION, SCHEMA, DATA}.intersection(names):
            raise NeedsAttention(
                f"{visible(entry.place)} asks something else now: recorded "
                f"{entry.call.preview!r}, now {preview()!r}",
                target=f"run {self.run}",
                hint=ASKS_HINT + (TASKS_HINT if entry.scope else ""),
            )
        if names:
            raise NeedsAttention(
                f"{visible(entry.place)} is called with other arguments ({', '.join(names)}): "
                f"recorded {entry.call.preview!r}, now {preview()!r}",
                target=f"run {self.run}",
                hint="what a function passes on must come from its arguments, its state and "
                "recorded calls; use run.now(), run.random() and run.uuid()"
                + (TASKS_HINT if entry.scope else ""),
            )


TASKS_HINT = (
    "; and make tasks in the same order each time: asyncio.as_completed makes those of coroutines "
    "in any order, so give it tasks that asyncio.create_task has made"
)

ASKS_HINT = (
    "an answer counts for what was asked, and nothing else; put that back and run it again, or let "
    "runs that asked it do so still, with run.patched(…). What must not stop a run that asks later "
    "is named by its key: run.ask(…, key=…)"
)

CHANGED_HINT = (
    "the function's code changed under the run; put the old code back and run it again, "
    "or cancel the run and start another with a new key"
)


def changed(problem: str, run: str) -> NeedsAttention:
    return NeedsAttention(problem, target=f"run {run}", hint=CHANGED_HINT)


def came_short(
    scope: str, left: Entry, error: BaseException | None, run: str, *, cancelled: bool = False
) -> NeedsAttention:
    """Returns the error for a function, or a task of it, that ended without reaching its record."""
    if scope and isinstance(error, NeedsAttention):
        return error
    if scope and (lacked := lacking(error)) is not None:
        return lacks(lacked, run, f"run {run}")
    ended = "ended" if error is None else f"raised {type(error).__name__}: {words(error):.300}"
    ended = "was cancelled" if cancelled else ended
    who = scope.rstrip("/") or "the function"
    return changed(f"{who} {ended}, where it had recorded {describe(left)}", run)


def describe(entry: Entry) -> str:
    return f"{entry.kind} {entry.place}({entry.call.preview})"
