"""The handle of one agent on one branch: its state, and all operations on its log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from perdure.core.arguments.checks import flag, flags, function
from perdure.core.arguments.names import cause_of, check_name
from perdure.core.live.drift import Drift
from perdure.engine.control.delivery import is_own
from perdure.engine.control.going_back import GoingBack, HasRunId, id_of
from perdure.errors import Conflict, GuardMismatch, NotFound
from perdure.model import Branch, Change, Checkpoint, Commit, Verified
from perdure.retention.trimming import Trimmed, trim
from perdure.state import branch_operations, checkpoints
from perdure.state.agent_at import AgentAt as AgentAt
from perdure.state.checkpoints import Mismatch
from perdure.state.commit_lookup import Where as Where
from perdure.state.commit_lookup import horizon, place_of
from perdure.state.context import Context
from perdure.state.edit_block import Edit, used_key
from perdure.state.returned_drafts import refuse_awaitable, refuse_new_state
from perdure.state.state_diff import changes
from perdure.state.working_copy import Flow, WorkingCopy
from perdure.storage.appending import Ref
from perdure.storage.log.refusals import is_race
from perdure.system.backoff import CHANCES_MAX, chances
from perdure.verification.snapshot_removal import healing_log
from perdure.verification.verify import Progress, verify_log

T = TypeVar("T")
R = TypeVar("R")
"""A commit: by seq, by the name of a checkpoint or branch, or the head at a moment."""


class Agent(GoingBack[T]):
    """One agent, on one branch. Made by `Store.agent`; the log holds the truth, this a copy.

    A handle may be shared by threads; edits through it happen one after the other.
    """

    def __init__(self, context: Context, working: WorkingCopy[T]) -> None:
        self._context = context
        self._working = working

    def __repr__(self) -> str:
        return f"<perdure agent {self.id!r}, branch {self.branch_name!r}>"

    @property
    def id(self) -> str:
        return self._working.name

    @property
    def branch_name(self) -> str:
        return self._working.branch

    @property
    def seq(self) -> int:
        """Seq of the commit whose state this handle has; 0 before the first commit."""
        return self._working.seq

    @property
    def exists(self) -> bool:
        """True if the agent is there now: it has a commit, and was not deleted."""
        reader = self._working.reader_if_created()
        if reader is None:
            return False
        info = self._context.backend.agent(self.id, reader.incarnation)
        return info is not None and not info.deleted

    # -- state -----------------------------------------------------------------------------

    @property
    def state(self) -> T:
        """The typed state as last read or written here; `refresh` looks again.

        Change it inside `edit`. A change outside is not stored; the next edit of the same path
        raises `Drifted`.

        Raises:
            SchemaError: the stored state does not fit the schema; names each path.
        """
        return self._working.look()

    def refresh(self) -> T:
        """Reads what others have committed since; returns the state.

        Changes of `state` outside `edit` are dropped.
        """
        with self._working.lock:
            self._working.refresh()
            self._working.drop_drift()
            return self._working.typed

    def follow(self) -> list[Commit] | None:
        """Moves on to the branch's head over what others have committed, in place.

        Like `refresh`, but the cost depends on those commits, not on the size of the state, and
        `state` stays the same object. For views that are kept in step with the log.

        Returns:
            Those commits, oldest first; None if the state was read again (the first time, after a
            rollback, far behind): then anything in it may be different.

        Raises:
            NotFound: the agent or branch was deleted. Conflict: inside an open edit.
        """
        with self._working.lock:
            return self._working.follow()

    def edit(
        self,
        what: str = "",
        *,
        key: str | None = None,
        group: str | None = None,
        tags: Iterable[str] = (),
        trace: str | None = None,
    ) -> Edit[T]:
        """Makes one atomic commit: ``with agent.edit("why") as draft: draft.status = "done"``.

        The block works on a recording draft of the branch's head. When it ends the change is
        validated, committed and durable; if it raises, nothing has happened. An edit that changes
        nothing commits nothing.

        Args:
            key: an idempotency key. Used before with the same `what`, the block runs on a
                throwaway draft and nothing is committed again.
            group: commits that share it are undone together.

        Raises:
            Conflict: the head moved while the block ran, or the key was used for something else.
            SchemaError: what the block left breaks the schema or an invariant.
            StoreUnavailable: see its `outcome`.
        """
        return Edit(self._working, cause_of("edit", what, key, tags, group=group, trace=trace))

    def update(
        self, fn: Callable[[T], object], what: str = "", *, key: str | None = None,
        group: str | None = None, tags: Iterable[str] = (), trace: str | None = None,
    ) -> Commit | None:  # two lines, for the limit of the file  # fmt: skip
        """Makes an edit whose block is `fn(draft)`, run again on the new head after each conflict.

        Returns:
            The commit; the recorded one without calling `fn`, if the key was used; None if
            nothing changed.

        Raises:
            SchemaError, StoreUnavailable: as `edit`.
            Conflict: after 100 tries, with growing pauses; or the key was used for something
                else, an executor has the branch, an edit is open, or `fn` raised it.
            TypeError: `fn` is a coroutine function, or returned a new state and did not change
                the draft.
        """
        function(fn, "fn, what makes the change,")
        name = what or str(getattr(fn, "__name__", ""))
        cause = cause_of("edit", name, key, tags, group=group, trace=trace)
        with self._working.lock:
            used = used_key(self._working, cause)
        if used is not None:
            return used
        for tried in chances():
            edit, lost = Edit(self._working, cause), False
            try:
                with edit as draft:
                    result = fn(draft)
                    if result is not None:
                        refuse_awaitable(result, fn, self.id)
                        refuse_new_state(result, fn, edit._block, self.id)
                    lost = True  # what is a conflict from here on was a race
                return edit.commit
            except Conflict as error:
                if not (lost and is_race(error)) or tried == CHANCES_MAX - 1:
                    raise
                self._working.reopen_if_created_meanwhile()
        raise AssertionError("unreachable")

    def save(
        self, state: T, what: str = "", *, key: str | None = None, tags: Iterable[str] = ()
    ) -> Commit | None:
        """Commits a whole value: diffed against the state here, then stored as that delta.

        Fields of a newer minor version that this program does not know are kept.

        Returns:
            The commit, or None if nothing differs.

        Raises:
            Conflict: the head is no longer the one that this handle has read.
            SchemaError: a newer program stored fields in a list's items, and the items cannot be
                matched (docs/state.md, "Versions and migrations").
        """
        cause = cause_of("save", what, key, tags)
        return self._do(branch_operations.saving(self._working, state, cause))

    def drift(self) -> list[Drift]:
        """Returns each path where `state` differs from the log, or would not survive rehydration.
        Ephemeral fields are meant not to.

        Inside an open edit, that edit's changes do not count.
        """
        with self._working.lock:
            return self._working.drift()

    # -- the log ---------------------------------------------------------------------------

    def log(
        self, *, newest_first: bool = False, all_branches: bool = False, damaged_too: bool = False
    ) -> Iterator[Commit]:
        """Yields the commits of this branch, and of those it was forked from up to the fork.

        Rolled-back commits are included: the log is history. With `all_branches`, every commit of
        the agent in order of seq.

        Args:
            damaged_too: continues after a commit that cannot be read, and yields its readable
                parts; see `Commit.damaged`. One commit stands for a gap, at its last seq.

        Raises:
            Corrupt: at such a commit; the error names the way back.
        """
        flags(newest_first=newest_first, all_branches=all_branches, damaged_too=damaged_too)
        reader = self._working.reader_if_created()
        if reader is None:
            return iter(())
        if all_branches:
            return reader.told(newest_first=newest_first, damaged_too=damaged_too)
        head, branch = reader.ref(self.branch_name).seq, self.branch_name
        found = reader.history(head, branch, damaged_too=damaged_too)
        return found if newest_first else reversed(list(found))

    def commit(self, where: Where, *, damaged_too: bool = False) -> Commit:
        """Returns one commit of the log.

        Args:
            damaged_too: for one that cannot be read, returns its readable parts.

        Raises:
            NotFound: there is no such commit. Corrupt: it cannot be read; see the error's hint.
        """
        reader, seq = self._working.reader, self._resolve(where)
        return reader.peek(seq) if flag(damaged_too, "damaged_too=") else reader.commit(seq)

    def at(
        self, where: Where, *, config: Mapping[str, Any] | None = None, strict: bool = False
    ) -> AgentAt[T]:
        """Returns the state at a commit, a checkpoint, a branch's head, or a moment.

        Args:
            config: compared with the configuration that a checkpoint recorded.
            strict: refuses a checkpoint with a guard that does not hold; else see `mismatches`.

        Raises:
            NotFound: there is none; the error names those that exist.
            Corrupt: the state is not the one that the checkpoint recorded; or a commit that it is
                made of cannot be read: the error names the way back.
            GuardMismatch: with `strict`, naming each guard.
            ValueError: a naive datetime. TypeError: not something that names a commit.
        """
        where, strict = place_of(where), flag(strict, "strict=")
        name = check_name(where, "a branch or checkpoint") if type(where) is str else None
        ref = None if name is None else self._working.reader.ref(name)
        past = AgentAt(self._working.reader, self._working.schema, self._resolve(where))
        if ref is not None and ref.checkpoint is not None:
            past.mismatches = self._check_guards(ref.checkpoint, past, config)
            if strict and past.mismatches:
                raise GuardMismatch(
                    "; ".join(map(str, past.mismatches)),
                    target=f"agent {self.id!r}, checkpoint {where!r}",
                    hint="leave out strict=True to go on anyway",
                )
        return past

    def _check_guards(
        self, checkpoint: Checkpoint, past: AgentAt[T], config: Mapping[str, Any] | None
    ) -> list[Mismatch]:
        target = f"agent {self.id!r}, checkpoint {checkpoint.name!r}"
        checkpoints.check_state(checkpoint, past.plain, target)
        return checkpoints.compare(checkpoint, self._working.schema, config=config)

    def diff(self, a: Where, b: Where) -> list[Change]:
        """Returns the differences between two states, path by path. Raises as `at` does."""
        reader = self._working.reader
        old, new = reader.fold(self._resolve(a)), reader.fold(self._resolve(b))
        return list(changes(old.state, new.state))

    def verify(
        self, *, anchor: str | None = None, progress: Progress | None = None, heal: bool = False
    ) -> Verified:
        """Proves that no byte of the log changed, and that all views of it agree with it. With
        `heal`, removes damaged snapshots then, which are a cache of the log.

        Raises:
            Corrupt: the first finding; its `damages` are all of them. The hint has the states that
                cannot be read, and the way back.
            ValueError: the anchor is not a root that `verify` could have returned.
        """
        verify = healing_log if flag(heal, "heal=") else verify_log
        return verify(self._context.backend, self._working.reader, anchor=anchor, progress=progress)

    def trim(self, before: Where | timedelta) -> Trimmed:
        """Removes the history of all branches before a commit, permanently: its changes, records,
        and states (docs/retention.md). Headers stay, and what is needed from before: the states of
        heads and checkpoints, the arguments and results of runs, calls in doubt. An unfinished run
        keeps everything since its turn began. If it is killed in between, call it again.

        Args:
            before: a commit; a moment, as of which the state stays; or an age.

        Raises:
            NotFound: there is no such commit. ValueError: a naive datetime, or a negative age.
            Conflict: a copy reads its log; or it belongs to a framework, whose adapter trims it.
        """
        reader = self._working.reader
        return trim(self._context, reader, horizon(reader, before, self._context.backend.now()))

    # -- checkpoints and branches ----------------------------------------------------------

    def checkpoint(
        self,
        name: str,
        *,
        config: Mapping[str, Any] | None = None,
        dependencies: Iterable[str] = (),
    ) -> Checkpoint:
        """Names the branch's head as a recovery point, with guards; the whole state is validated.

        Args:
            config: the agent's configuration; its hash is kept.
            dependencies: names of distributions whose installed versions are kept.

        Raises:
            Conflict: the name is taken by a branch or checkpoint, or was.
            ValueError: the name is invalid, or reads as a commit's number or a moment.
            NotFound: a distribution is not installed.
            SchemaError: the state does not fit its schema.
        """
        beside = not is_own(self._working)
        given = name, config, dependencies
        return self._do(branch_operations.checkpointing(self._working, *given, beside=beside))

    def checkpoints(self) -> list[Checkpoint]:
        """Returns all checkpoints of the agent, by name."""
        return [ref.checkpoint for ref in self._refs() if ref.checkpoint is not None]

    def branches(self) -> list[Branch]:
        """Returns all branches of the agent, deleted ones included, by name."""
        return [
            Branch(ref.name, ref.seq, ref.deleted, ref.epoch, ref.holder)
            for ref in self._refs()
            if ref.kind == "branch"
        ]

    def _refs(self) -> list[Ref]:
        reader = self._working.reader_if_created()
        return self._context.backend.refs(reader.no) if reader else []

    def branch(self, name: str) -> Agent[T]:
        """Returns a handle on another branch of the agent.

        Raises:
            NotFound: there is none of that name.
        """
        ref = self._working.reader.ref(check_name(name, "a branch"))
        if ref.kind != "branch":
            raise NotFound("is a checkpoint, not a branch", target=f"agent {self.id!r}, {name!r}")
        return self._on_branch(name)

    def _on_branch(self, name: str) -> Agent[T]:
        name = check_name(name, "a branch")
        reader = self._working.reader
        working = WorkingCopy(
            self._context, self.id, self._working.schema, name, incarnation=reader.incarnation
        )
        return Agent(self._context, working)

    def fork(
        self, name: str, *, at: Where | None = None, before: HasRunId | str | None = None
    ) -> Agent[T]:
        """Makes a new branch at any commit (default: this branch's head): O(1), copies nothing.

        Args:
            before: a run of the agent, or its id: the branch has the state from before it began.

        Raises:
            Conflict: the name is taken, or was.
            NotFound: there is no such commit, or run, or it has not begun.
            ValueError: the name is invalid, or reads as a commit's number or a moment; or there are
                both `at` and `before`.
        """
        self._do(self._forking(name, at, before))
        return self._on_branch(name)

    def _forking(
        self, name: str, at: Where | None, before: HasRunId | str | None = None
    ) -> Flow[None]:
        if at is not None and before is not None:
            raise ValueError("say either at= a commit, or before= a run")
        target = None if at is None else partial(self._resolve, at)
        if before is not None:
            target = partial(self._before, id_of(before))
        return branch_operations.forking(self._working, name, target)

    def _before(self, run: str) -> int:
        return self._working.reader.peek(self._began(run).started).parent

    def delete_branch(self, name: str) -> Commit:
        """Deletes a branch. Its commits stay in the log, its name stays taken.

        Raises:
            NotFound: no such branch.
            Conflict: it is this handle's own, or an unfinished run has it.
        """
        return self._do(branch_operations.deleting_branch(self._working, name))
