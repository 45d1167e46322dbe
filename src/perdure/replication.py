"""Copies of stores, and moves between them: stores that follow another, promotion, migration, and
restoring a moment.

    with perdure.replication.following("agents.db", "postgresql://db/agents") as follower:
        follower.drain()
        print(follower.lag())

docs/replication.md says what is promised, and what is not.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from msgspec import Struct

from perdure.core.arguments import exact_types
from perdure.core.arguments.checks import flag, flags
from perdure.core.arguments.checks import function as callable_
from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import shown
from perdure.engine.control.stopping import stop_without_children
from perdure.errors import NotFound, StoreUnavailable
from perdure.public_data import PublicData, from_micros, to_micros
from perdure.storage.capabilities import Backend
from perdure.storage.locate import locate
from perdure.storage.standing import Aside as Aside
from perdure.storage.standing import ClosedError as ClosedError
from perdure.storage.standing import read_why
from perdure.store import Store
from perdure.system.flag import Flag
from perdure.system.urls import shown as without_password
from perdure.transfer.divergence import DivergedError as DivergedError
from perdure.transfer.divergence import Divergence as Divergence
from perdure.transfer.follower import Follower as Follower
from perdure.transfer.follower_reports import Lag as Lag
from perdure.transfer.follower_reports import Step as Step
from perdure.transfer.incomplete import DoneBeforeError as DoneBeforeError
from perdure.transfer.incomplete import IncompleteError as IncompleteError
from perdure.transfer.migration import Migration as Migration
from perdure.transfer.migration import Moved as Moved
from perdure.transfer.promotion import Promoted as Promoted
from perdure.transfer.promotion import promote as _promote
from perdure.transfer.restoring import restore as _restore

Url = str | os.PathLike[str]

POLL_S = 0.2
BUSY_MAX = 0.1
"""Of its time a follower that finds nothing spends at most about so much on looking."""

BACK_MAX_S = 10.0


class Restored(PublicData, Struct, frozen=True):
    """The content that a store was filled with: everything up to a moment, except what is
    `incomplete`.

    Attributes:
        messages: the number of its unread messages.
    """

    commits: int
    messages: int
    incomplete: tuple[Aside, ...] = ()


@contextmanager
def _opened(source: Url, target: Url) -> Iterator[tuple[Backend, Backend]]:
    """Opens both stores; the target is made if it is not there, the source is not."""
    one = locate(source, create=False)
    try:
        other = locate(target)
        try:
            yield one, other
        finally:
            other.close()
    finally:
        one.close()


@contextmanager
def following(source: Url, target: Url, *, resync: bool = False) -> Iterator[Follower]:
    """Gives a target that follows a source, from now on and until it is promoted: nobody else
    writes to it. Its progress is kept in the target: open it again, also after a crash, and it
    continues.

    Args:
        source, target: URLs. The target is made if it is not there; it must have no agents.
        resync: takes a target that has agents, or that followed another source, once each of its
            logs is found to be a beginning of the source's.

    Raises:
        DivergedError: the target has commits that the source lacks; it names agent and seq.
        Conflict: the target has agents of its own, follows another store, or was promoted.
        NotFound: there is no such source.
    """
    flag(resync, "resync=")
    with _opened(source, target) as (one, other):
        follower = Follower(one, other)
        follower.begin(resync=resync)
        yield follower


def follow(
    follower: Follower,
    stop: threading.Event | Flag,
    on_step: Callable[[Step], None] = lambda step: None,
    on_trouble: Callable[[StoreUnavailable, float], None] = lambda error, again_s: None,
) -> None:
    """Ships new commits as they come, until `stop` is set. While one of the stores is unavailable,
    it keeps trying.

    Args:
        stop: the caller's. Use a `Flag` if a signal handler sets it on this thread: an event would
            wait for itself.
        on_step: called after each look at the source that brought something, or after which other
            agents are set aside.
        on_trouble: called with the error, and the seconds until the next try.

    Raises:
        DivergedError, Corrupt, Conflict: as `Follower.step`.
    """
    back_s, aside = 0.0, follower.aside
    while not stop.is_set():
        began = time.monotonic()
        try:
            if back_s:  # a store that was away may be another one
                follower._check_beginnings()
            step = follower.step()
            if not (step.commits or step.messages):  # a source that was closed never has more
                follower._read_again()
        except StoreUnavailable as error:
            if not error.retry:
                raise
            follower.shipper.forget()
            back_s = min(back_s * 2 or POLL_S, BACK_MAX_S)
            on_trouble(error, back_s)
            stop.wait(back_s)
            continue
        back_s = 0.0
        if step.commits or step.messages or step.aside != aside:
            aside = step.aside
            on_step(step)
        if not step.more:
            stop.wait(max(POLL_S, (time.monotonic() - began) / BUSY_MAX))


def promote(
    target: Url,
    source: Url | None = None,
    *,
    source_is_lost: bool = False,
    take_incomplete: bool = False,
) -> Promoted:
    """Makes a follower a store of its own.

    A reachable source is closed first, so that its writers are told where it went, and everything
    is shipped: nothing acknowledged is lost. May be repeated after a crash.

    Args:
        source: its URL, if it is not the one that the follower knows.
        source_is_lost: do without it. What it acknowledged and the follower does not have yet is
            lost; if it comes back, nothing stops its old writers, and it will have diverged when it
            is replicated.
        take_incomplete: goes on although some agents are set aside (`Follower.aside`): each
            continues from its last commit that is here.

    Raises:
        IncompleteError: agents are set aside: it names them, and why.
        StoreUnavailable: the source cannot be reached, and `source_is_lost` is False; or it failed
            on the way: make the call again.
        DoneBeforeError: it was promoted by an earlier call.
        Conflict: the target follows nobody.
        DivergedError: the source has other commits than the target.
    """
    flags(source_is_lost=source_is_lost, take_incomplete=take_incomplete)
    other = locate(target, create=False)
    try:
        if source_is_lost:
            return _promoted(other, None, take_incomplete)
        why = read_why(other.standing())
        if why is None or why.kind != "follows":
            return _promoted(other, None)  # which says what it is instead
        one = _reach(source or why.url, why.at)
        try:
            return _promoted(other, one, take_incomplete)
        finally:
            one.close()
    finally:
        other.close()


def _promoted(target: Backend, source: Backend | None, take_incomplete: bool = False) -> Promoted:
    try:
        promoted = _promote(target, source, take_incomplete=take_incomplete)
    except DoneBeforeError:  # by a call that may have ended right behind it
        _note_lost_children(target)
        raise
    if promoted.incomplete or not promoted.lossless:
        _note_lost_children(target)
    return promoted


def _note_lost_children(target: Backend) -> None:
    """Notes which runs of a copy that is a store of its own now need a person, because parts of
    others are lost."""
    with Store(target) as store:
        stop_without_children(store.runner.context, store.runner.wakeups)


def _reach(url: Url, at: int) -> Backend:
    try:
        return locate(url, create=False)
    except (StoreUnavailable, NotFound, ValueError) as error:
        raise _unreachable(url, at, error) from error


def _unreachable(url: Url, at: int, error: Exception) -> StoreUnavailable:
    problem = getattr(error, "problem", str(error))
    since = from_micros(at).isoformat() if at else "its beginning"
    return StoreUnavailable(
        f"cannot be reached to hand over: {problem}",
        target=f"store {without_password(os.fspath(url))}",
        hint="if it is elsewhere, name it (`--source URL`); if it is lost, say so "
        f"(`--source-is-lost`): what it acknowledged after {since} is then lost, too",
    )


def migrate(
    source: Url,
    target: Url,
    on_moved: Callable[[Moved], None] = lambda moved: None,
    on_step: Callable[[int], None] = lambda commits: None,
    *,
    take_incomplete: bool = False,
) -> list[Moved]:
    """Moves all agents of a store to another one while they run.

    Their data is copied first; then each agent has a pause of its own, in which neither store takes
    its commits. May be killed at any moment, and called again: it continues.

    Args:
        target: made if it is not there; it must have no agents.
        on_moved: called after each agent.
        on_step: called with the number of commits copied since the last call.
        take_incomplete: also moves agents that the target cannot take completely, as far as it can.

    Returns:
        The agents that this call moved.

    Raises:
        IncompleteError: it names the agents that cannot be moved completely. If the target cannot
            keep their names, nothing was moved. Problems found on the way do not stop the others:
            they have moved, and these go on at the source, which stays open. Call it again once
            they are repaired.
        DoneBeforeError: an earlier call moved all of them to this target.
        Conflict: the target has agents of its own; or the agents are not at the source.
        StoreUnavailable: make the call again.
    """
    flag(take_incomplete, "take_incomplete=")
    callable_(on_moved, "on_moved=")
    callable_(on_step, "on_step=")
    with _opened(source, target) as (one, other):
        migration = Migration(one, other, take_incomplete=take_incomplete)
        try:
            moved = migration.run(on_moved, on_step)
        except DoneBeforeError:  # by a call that may have ended right behind it
            _note_lost_children(other)
            raise
        if migration.aside:
            _note_lost_children(other)
        return moved


def restore(source: Url, target: Url, at: datetime, *, take_incomplete: bool = False) -> Restored:
    """Fills a new store with everything that another had committed by a moment, agent by agent,
    verified on the way. May be killed, and called again with the same moment: it continues.

    Args:
        take_incomplete: leaves out agents whose state of that moment retention removed in part, and
            takes damaged ones as far as they go.

    Raises:
        ValueError: `at` has no zone.
        DoneBeforeError: an earlier call filled it with this moment.
        Conflict: the target has agents; or retention removed a state of that moment.
        IncompleteError: agents are damaged at the source.
    """
    flag(take_incomplete, "take_incomplete=")
    if not is_a(at, datetime):
        raise TypeError(f"at must be a datetime with a zone, not {shown(at)}")
    at = exact_types.moment(at)
    if at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} names no moment without a zone")
    with _opened(source, target) as (one, other):
        until = to_micros(at)
        follower = Follower(one, other, kind="restoring", until=until)
        return Restored(*_restore(follower, take_incomplete=take_incomplete))
