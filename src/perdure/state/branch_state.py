"""One branch's state in memory: the plain state, the live typed object, and the head they are of.

Nothing here writes. What is in memory is loaded when asked for, and moved on over the commits that
the log has meanwhile; `WorkingCopy` commits changes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from perdure.core.draft.draft import Recording
from perdure.core.live.drift import Drift
from perdure.core.live.outside_changes import outside_changes
from perdure.core.schema.downgrades import as_written
from perdure.core.schema.schema import Schema
from perdure.core.values.diff import diff
from perdure.core.values.ops import Op, fold
from perdure.core.values.plain_values import Plain, copy
from perdure.missing import MISSING
from perdure.model import MAIN, Commit
from perdure.state import not_found, refused_calls
from perdure.state.context import Context
from perdure.state.handle_lock import HandleLock
from perdure.state.incarnation import Incarnation
from perdure.state.initial_state import FirstState, LateInitial, initial_state
from perdure.state.live_object import Live
from perdure.state.others_commits import MOVES, advance_both, newer_commits
from perdure.state.snapshot_age import SinceSnapshot
from perdure.state.threads import is_thread
from perdure.storage.log.reader import Folded, LogReader
from perdure.storage.looks import Reads

T = TypeVar("T")


class BranchState(Generic[T]):
    """One branch of one agent in memory. Not for two threads at once: callers take its `lock`.

    An exception may come between any two things that belong together: the plain state is missing
    meanwhile, and who finds that reads the log anew.
    """

    def __init__(
        self,
        context: Context,
        name: str,
        schema: Schema[T],
        branch: str,
        initial: Any = MISSING,
        incarnation: int | None = None,
        reads: Reads | None = None,
    ) -> None:
        self.context, self.name = context, name
        self._reads: Reads = reads or context.backend
        self.schema = schema
        self._is_thread = is_thread(schema.id)
        self.branch = branch
        self.lock = HandleLock(name)
        self.editing = False
        self.edit_lost: Callable[[], bool] | None = None
        """Tells whether the block that is open was left without its end."""
        self._open: object = None
        """Whose changes the plain state holds, uncommitted: a draft's, or a commit's under way. Set
        before the first one, and unset behind the last. An exception may come in between: who
        finds it set where nothing is under way reads the log anew."""
        self._initial = initial
        self._incarnation = Incarnation(self._reads, name, incarnation)
        self._reader: LogReader | None = None
        self._plain: Plain = MISSING
        self._live = Live(schema, name)
        self._seq, self._id = 0, b""
        self._stored: tuple[str, tuple[int, int]] | None = None
        self.schema_to_write = self._first
        """The schema to write: a newer minor version in the log stays, with its fields; and so does
        the version before, where programs of that one run beside this one."""
        self._older = self.migration_due = False
        """True if the next write must store a migration's result, or a default that changes."""
        self._normalised = False
        """True if it must store what the types make of the state."""
        self._incomplete = False
        """True if the plain state may lack defaults that change: others' commits were put on it,
        and nothing was built of it since."""
        self._since = SinceSnapshot()

    @property
    def _own(self) -> tuple[str, tuple[int, int]]:
        """The schema of this program."""
        return self.schema.id, self.schema.version

    @property
    def _first(self) -> tuple[str, tuple[int, int]]:
        """The schema under which a new agent is created."""
        return self.schema.id, self.schema.writes or self.schema.version

    @property
    def lowers(self) -> bool:
        """True if the log has the state in the form of the version before, and memory in its own:
        each write is put into that form; see `Schema.writes`."""
        writes = self.schema.writes
        return writes is not None and self.schema_to_write[1][0] == writes[0]

    # -- what is there ---------------------------------------------------------------------

    @property
    def seq(self) -> int:
        """Seq of the commit whose state this is; 0 for an agent that is not created yet."""
        if self._plain is MISSING:
            with self.lock:  # else it may be missing for the moment in which a commit lands
                self.load()
        return self._seq

    @property
    def plain(self) -> Plain:
        self.load()
        return self._plain

    @property
    def typed(self) -> T:
        if self._plain is MISSING:
            self._load_anew()
        if self._live.value is not MISSING:
            return self._live.value  # type: ignore[no-any-return]
        self._complete()
        return self._live.of(self._plain, self._seq, (self._stored or self._own)[1])

    def look(self) -> T:
        """Returns the live object. Takes the lock only where it has to be built, or a commit lands
        just now: another thread may hold it for all of a block of edit, and wait for this one."""
        shown = self._live.value
        if shown is not MISSING and self._plain is not MISSING:
            return shown  # type: ignore[no-any-return]
        with self.lock:
            return self.typed

    seen = typed  # what the function of a run sees; see `run_view`

    @property
    def in_memory(self) -> bool:
        return self._live.value is not MISSING and self._plain is not MISSING

    @property
    def known(self) -> bool:  # the last known answer of `exists`
        return self._reader is not None

    @property
    def reader(self) -> LogReader:
        """The agent's log. Raises NotFound if it has no commit yet."""
        reader = self._reader or self.reader_if_created()
        if reader is None:
            raise not_found.not_created(self.name)
        return reader

    def reader_if_created(self) -> LogReader | None:
        if self._reader is None:
            info = self._incarnation.find()
            if info is not None:
                self._reader = LogReader(self._reads, info)
        return self._reader

    def settle(self) -> None:
        """Fixes the incarnation: the one that is there now, or the next one."""
        info = self._incarnation.settle()
        if info is not None:
            self._reader = LogReader(self._reads, info)

    @property
    def incarnation(self) -> int:
        """The incarnation that is there, or that a first commit would create."""
        reader = self.reader_if_created()
        return reader.incarnation if reader is not None else self._incarnation.to_create()

    # -- keeping in step -------------------------------------------------------------------

    def load(self) -> None:
        self._mend()
        if self._plain is MISSING:
            self._load_anew()
        self._complete()

    def _complete(self) -> None:
        """Fills in the defaults that may be others each time, once: all that is built of the state
        has the same ones."""
        if self._incomplete:
            plain = self.schema.complete(self._plain, (self._stored or self._own)[1])
            if plain is not self._plain and not self.lowers:
                self.migration_due = True  # first: it must not go unnoticed
            self._plain, self._incomplete = plain, False

    def _mend(self) -> None:
        """Drops what is in memory if a change of it was interrupted."""
        if self._open is not None and not self.editing:
            self.forget()

    def refresh(self) -> None:
        """Moves on to the branch's head as it is now."""
        if self.editing:
            self.refuse_inside_edit()
        if self._open is not None:
            self._mend()
        if self._plain is MISSING or self._seq == 0:
            self._load_anew()
            return
        ref = self._reads.ref((self._reader or self.reader).no, self.branch)
        if ref is None or ref.deleted:
            raise not_found.deleted(self.name, self.branch)
        if ref.seq == self._seq:
            return
        newer = self._newer(ref.seq)
        if newer is None:
            self._load_anew()
        for commit in newer or ():
            self.advance(commit, in_place=True)

    def follow(self) -> list[Commit] | None:
        """Refreshes in place, at a cost that depends on what others have committed. Returns those
        commits; None where everything may be different now."""
        self.refuse_inside_edit()
        self._mend()
        read = self._plain is not MISSING and self._seq  # the typed state may not be built yet
        ref = read and self._reads.ref(self.reader.no, self.branch)
        newer = self._newer(ref.seq) if ref and not ref.deleted else None
        if newer is None or any(commit.cause.kind in MOVES for commit in newer):
            self.refresh()
            return None
        for commit in newer:
            self.advance(commit, in_place=True)
        return newer

    def _newer(self, head: int) -> list[Commit] | None:
        own = self._own
        if self._mixes:
            return None
        if self._stored != own:
            return None
        return newer_commits(self.reader, self._seq, self._id, head, own)

    @property
    def _mixes(self) -> bool:
        """True if others' commits cannot be put on the state in memory: it has what no commit has
        stored. Lists may have other items, and objects be of other classes."""
        return self.migration_due and (self._normalised or self.schema.fills_unions)

    def refuse_inside_edit(self) -> None:
        """Raises Conflict while a block of `edit` is open: its draft stands on the head."""
        if self.editing and self.edit_lost is not None and self.edit_lost():
            self.forget()
            self.editing = False
        if self.editing:
            raise refused_calls.inside_edit(self.name)

    def drift(self) -> list[Drift]:
        """Returns where the live object is not what is committed; an open draft does not count."""
        draft = self._open
        plain = draft.before() if isinstance(draft, Recording) and self.editing else self.plain
        return self.schema.drift(self.typed, plain)

    def as_created(self, plain: Plain) -> Plain:
        """Returns a state in the form in which the log begins with it, or with its version."""
        if not self.lowers:
            return plain
        return as_written(self.schema, plain, MISSING, self.schema_to_write[1])

    def lowered(self, root: Plain) -> Plain:
        """Returns a new state in the form of the log, after checking that it comes back.

        Raises:
            SchemaError: see `as_written`.
        """
        stored = MISSING
        if self._seq and not self.migration_due:
            stored = self.reader.fold(self._seq).state
        return as_written(self.schema, root, stored, self.schema_to_write[1])

    def stored_form(self) -> Plain:
        """Returns the state as it stands in the log, or will as soon as it is written."""
        if not self.lowers:
            return self.plain
        plain = self.plain
        if self._seq == 0 or self.migration_due:
            return self.as_created(plain)
        return self.reader.fold(self._seq).state

    def in_own_form(self, delta: list[Op]) -> list[Op]:
        """Returns ops on the state in memory that do what ops on the stored state do.

        Raises:
            SchemaError: what they bring back would not come back under the version before.
        """
        if not self.lowers or self.migration_due:
            return delta
        _, version = self.schema_to_write
        stored = fold(self.stored_form(), delta)
        schema = self.schema
        plain = schema.complete(schema.migrate(stored, version), version)
        as_written(schema, plain, stored, version)
        return diff(self.plain, plain)

    def merged_unknown(self, new: Plain) -> Plain:
        """Returns a whole value to be saved, with what the classes do not know of the state; see
        `Schema.merge_unknown`.

        Raises:
            SchemaError: as there; or a field seems to be renamed: the value under its old name
                would never be seen again.
        """
        merged = self.schema.merge_unknown(self.plain, new)
        if self._seq:
            _, version = self._stored or self._own
            for one in (self._plain, merged):
                self.schema.refuse_renamed(one, self.name, self._seq, version)
        return merged

    def changed_outside(self, *, whole: bool = False) -> Drift | None:
        """Returns a change of the live object that was made outside `edit`, if there is one; None
        while a change of it is under way.

        Args:
            whole: looks at all of the state, at a cost of O(state); else at its own fields.
        """
        typed, plain = self._live.value, self._plain
        if self._open is not None or typed is MISSING or plain is MISSING:
            return None
        if self._live.shows_others and not whole:
            return None
        found = outside_changes(self.schema.root, typed, plain, whole=whole)
        if found:
            return found[0]
        self._live.shows_others = found is not None
        return None

    def drop_drift(self) -> None:
        """Forgets changes made to the live typed object outside `edit`. Costs O(state)."""
        self._live.drop_drift(self._plain)

    def reopen_if_created_meanwhile(self) -> None:
        """Looks again, after a conflict on creating the agent, who is there."""
        with self.lock:
            if self._seq == 0 and not self.editing:
                self.forget()

    def forget(self) -> None:
        """Drops what is in memory; the next look rehydrates it from the log."""
        self._plain = MISSING
        self._live.drop()
        self._open = None

    def lose(self) -> None:
        """Drops what is known of a log that the store has lost a part of, its number included."""
        self._reader = None
        self.forget()

    def _load_anew(self) -> None:
        reader = self.reader_if_created()
        if reader is None:
            if self.branch != MAIN:
                raise not_found.no_first_branch(self.name, self.branch)
            self._start_from_initial()
            return
        ref = reader.ref(self.branch)
        if ref.kind != "branch":
            raise not_found.no_branch(self.name, self.branch)
        self._adopt(reader.fold(ref.seq))

    def _start_from_initial(self) -> None:
        if isinstance(self._initial, LateInitial):
            brought = self._initial.find()
            self._initial = brought.read_by(self.schema, self.name) if brought else MISSING
        if not isinstance(self._initial, FirstState):
            given = initial_state(self.schema, self._initial, self.name)
            self._initial = FirstState(self.schema.complete(given))
        plain = copy(self._initial.plain)
        self._plain = MISSING
        self._live.forget()
        self._live.of(plain, 0, self.schema.version)
        self._seq, self._id, self._incomplete = 0, b"", False
        self.schema_to_write = self._first
        self._plain = plain

    def _adopt(self, folded: Folded) -> None:
        if folded.schema_id != self.schema.id:
            raise not_found.other_schema(self.name, folded.schema_id, self.schema)
        stored = folded.schema_id, folded.schema_version
        plain = self.schema.complete(self.schema.migrate(folded.state, stored[1]), stored[1])
        self._plain = MISSING
        self._stored = stored
        (_, own), (_, version), writes = self._own, stored, self.schema.writes
        lowers = writes is not None and version[0] <= writes[0]
        self._older = version[0] < (writes or own)[0]
        due = self._older or (plain is not folded.state and not lowers)
        self.migration_due, self._normalised = due, False
        if lowers:
            self.schema_to_write = max(stored, self._first)
        else:
            self.schema_to_write = stored if own < version < (own[0] + 1,) else self._own
        self._live.drop()
        self._open, self._incomplete = None, False
        self._seq, self._id = folded.seq, folded.id
        self._since.begin(folded, migrated=due or lowers)
        self._plain = plain  # last: an exception before leaves none, which is read anew

    def rewind(self, folded: Folded) -> None:
        """Goes back, in memory only, to an earlier state: where a replay begins."""
        self._adopt(folded)
        self._live.forget()  # a replay begins with what a first run would have

    def advance(self, commit: Commit, *, in_place: bool = False) -> None:
        """Goes on, in memory only, over a commit of the branch that is in the log already.

        Args:
            in_place: change the live typed object, as committing here would have.
        """
        moved = commit.parent != self._seq or self.migration_due  # not on a state's path, all known
        mixed = self._mixes and commit.delta
        lowered = self.lowers and commit.delta  # of ops on a state of the other form
        if self._older or lowered or mixed or (moved and commit.cause.kind in MOVES):
            self._adopt(self.reader.fold(commit.seq))
            return
        # Until all is in step the plain state is not there: an exception leaves none to trust.
        plain, self._plain = self._plain, MISSING
        if not commit.delta:
            pass  # only of a run's journal
        elif in_place and self._live.value is not MISSING:
            plain = advance_both(self.reader, plain, self._live, commit)
            if plain is MISSING:
                self._adopt(self.reader.fold(commit.seq))
                return
        else:
            plain = self.reader.apply(plain, commit)
            self._live.drop()
        if self._live.value is MISSING and commit.delta:
            self._incomplete = True
        self._since.note(commit.delta, commit.size)
        self._seq, self._id = commit.seq, commit.id
        self._plain = plain
