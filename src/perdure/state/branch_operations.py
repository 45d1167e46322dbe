"""Operations on an agent's branch besides editing and moving it, each written once (see flow)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from perdure.core.arguments.names import check_label, check_name
from perdure.core.format import records
from perdure.core.values.diff import diff
from perdure.core.values.ops import Op
from perdure.core.values.state_hash import state_hash
from perdure.errors import Conflict
from perdure.model import Cause, Checkpoint, Commit, RunInfo
from perdure.state import checkpoints
from perdure.state.edit_block import key_riders, used_key
from perdure.state.head_naming import name_commit
from perdure.state.jump_commits import committing_move, find_head
from perdure.state.time_travel import unfinished_runs
from perdure.state.working_copy import Flow, WorkingCopy
from perdure.storage.appending import Riders
from perdure.storage.log.refusals import HeldError
from perdure.storage.retention import STORES_OWN
from perdure.system import shell
from perdure.visible import visible

T = TypeVar("T")


def saving(working: WorkingCopy[T], state: T, cause: Cause) -> Flow[Commit | None]:
    """Commits a whole value as the delta from the current state."""
    working.refuse_inside_edit()

    def prepare() -> tuple[Commit | None, list[Op], Riders]:
        working.load()
        new = working.schema.take(state, (), aliases_refused=True)
        working.schema.build(new)
        declared = (state_hash(new),)
        if (used := used_key(working, cause, declared)) is not None:
            return used, [], Riders()
        working.normalise()
        new = working.merged_unknown(new)
        delta = diff(working.plain, new)
        working.drop_drift()  # a value handed over whole may be the live one, changed
        return None, delta, key_riders(cause, declared)

    used, delta, riders = yield prepare
    if used is not None or (not delta and working.seq and riders.key is None):
        return used  # type: ignore[no-any-return]
    made = yield from working.committing_delta(delta, cause, riders, whole=True)
    return made.read()


def checkpointing(
    working: WorkingCopy[Any],
    name: str,
    config: Mapping[str, Any] | None,
    dependencies: Iterable[str],
    *,
    beside: bool = True,
) -> Flow[Checkpoint]:
    """Names the branch's head as a recovery point. `beside`: also while a run executes there."""
    name = check_label(name)

    def prepare() -> Checkpoint:
        working.refresh()
        _check_new(working, name)
        run = next(iter(unfinished_runs(working)), None)
        return checkpoints.current_point(
            working,
            name,
            checkpoints.config_hash(config),
            dependencies,
            run.id if run else None,
            _position(working, run) if run else None,
        )

    point: Checkpoint = yield prepare
    riders = Riders(records=[checkpoints.record_of(point)], checkpoint=point)
    try:
        yield from working.creating()
        made = yield from working.committing_delta([], Cause("checkpoint", name), riders)
    except HeldError:  # a name needs no part of the branch that its run has
        if not beside:
            raise
        named: Checkpoint = yield partial(_naming_head, working, point)
        return named
    return replace(point, seq=made.seq)


def _naming_head(working: WorkingCopy[Any], point: Checkpoint) -> Checkpoint:
    reader = working.reader
    if reader.is_taken(point.name):
        raise name_taken(working.name, point.name)
    head, names = reader.ref(working.branch).seq, tuple(point.dependencies)
    return name_commit(working.context, reader, point.name, head, point.config_hash, names)


def _position(working: WorkingCopy[Any], run: RunInfo) -> str | None:
    for commit in working.reader.commits(run.started, newest_first=True):
        if commit.cause.run == run.id and commit.cause.step:
            return commit.cause.step
    return None


def forking(working: WorkingCopy[Any], name: str, at: Callable[[], int] | None) -> Flow[None]:
    """Makes a new branch at a commit; with None, at this branch's head."""
    name = check_label(name)

    def prepare() -> tuple[int, int | None]:
        _check_new(working, name)
        if working.reader_if_created() is None:
            return 0, None if at is None else at()
        return find_head(working), None if at is None else at()

    head, target = yield prepare
    if not head:
        yield from working.creating()
        head = yield partial(find_head, working)
    target = head if target is None else target
    yield from committing_move(
        working, head, target, Cause("fork", name, refers=(target,)), branch=name
    )


def _check_new(working: WorkingCopy[Any], name: str) -> None:
    if name == working.branch:
        raise name_taken(working.name, name)


def name_taken(agent: str, name: str) -> Conflict:
    """Returns the error for a checkpoint or branch under a name that is taken."""
    return Conflict(
        f"the name {name!r} is taken", target=f"agent {agent!r}", hint="choose another name"
    )


def deleting_branch(working: WorkingCopy[Any], name: str) -> Flow[Commit]:
    """Deletes another branch."""
    name = check_name(name, "a branch")
    if name in STORES_OWN:
        raise Conflict(
            "it belongs to the store and cannot be deleted",
            target=f"agent {working.name!r}, {name!r}",
        )
    if name == working.branch:
        raise Conflict(
            "a branch cannot delete itself",
            target=f"agent {working.name!r}, branch {name!r}",
            hint="call it on a handle of another branch, e.g. agent.branch('main')",
        )

    heads: list[int] = []

    def prepare() -> None:
        heads.append(working.reader.ref(name).seq)  # before the look at its runs
        working.refresh()
        for run in unfinished_runs(working, name):  # I8: it could never go on, nor end
            raise Conflict(
                f"run {visible(run.id)} uses it, and is not finished ({run.status})",
                target=f"agent {working.name!r}, branch {name!r}",
                hint=f"let it finish, or end it first: `{shell.perdure('cancel', run.id)}`",
            )
        for asked in working.context.backend.inbox(agent=working.name, kind="start"):
            if type(asked.value) is dict and asked.value.get("branch") == name:
                raise Conflict(
                    f"run {visible(asked.run)} is to begin on it",
                    target=f"agent {working.name!r}, branch {name!r}",
                    hint=f"let it finish, or end it first: `{shell.perdure('cancel', asked.run)}`",
                )

    yield prepare
    riders = Riders(records=[records.Named(name=name)], drop_branch=name, drop_head=heads[-1])
    made = yield from working.committing_delta([], Cause("delete-branch", name), riders)
    return made.read()
