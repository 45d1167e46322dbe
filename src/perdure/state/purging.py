"""Purging: what deleted agents left is removed, part by part, unless a living agent reads it.

An agent may be a copy of another one: it begins with a record that points to a commit of the other
log, and reads what is before it there. Who makes such a copy says so first in the log of its
origin, on the branch `@copies`, whose commit is refused once the origin is deleted: so of a deleted
agent all copies are known, and no more will come (decision 0020).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from perdure.core import chain, logs
from perdure.errors import Conflict, Corrupt, NotFound, UnsupportedFormat
from perdure.model import AgentInfo, Verified, id_text
from perdure.storage.port import Backend
from perdure.storage.reader import LogReader
from perdure.storage.retention import COPIES

_log = logs.logger("perdure.log")

COPIED = "copied"
"""What the record is, in its `t`, with which a copy begins."""

ANNOUNCED_US = 3600 * 1_000_000
"""How long a copy that was said, and is not there, counts as being made still."""

PAGE = 100


class Purged(Struct, frozen=True):
    """What a purge came to.

    Attributes:
        agents: those of which all is removed, as often as they were deleted.
        kept: those that living agents read: copies of them. They go when those do.
        more: whether there is more to remove, for which there was no time.
    """

    agents: list[AgentInfo]
    kept: list[AgentInfo]
    more: bool = False


def sweep(backend: Backend, seconds: float | None = None, first: AgentInfo | None = None) -> Purged:
    """Purge what was deleted to be purged.

    Args:
        seconds: about as long it may take; None: until all is done.
        first: one to begin with.
    """
    until = time.monotonic() + seconds if seconds is not None else float("inf")
    done: list[AgentInfo] = []
    kept: list[AgentInfo] = []
    for info in _in_turn(backend, first):
        if _is_needed(backend, info):
            kept.append(info)
        else:
            while backend.purge(info.no):
                if time.monotonic() > until:
                    return Purged(done, kept, True)
            done.append(info)
        if time.monotonic() > until:
            return Purged(done, kept, True)
    return Purged(done, kept)


def _is_needed(backend: Backend, info: AgentInfo) -> bool:
    """Also where it cannot be told who reads it: that keeps this one, and none of the others."""
    try:
        return needed_by(backend, info) is not None
    except (Corrupt, UnsupportedFormat) as error:
        _log.warning("agent %r is not purged: %s", info.name, error)
        return True


def _in_turn(backend: Backend, first: AgentInfo | None) -> Iterator[AgentInfo]:
    """In any order, so that those that are kept are not in the way of all others."""
    if first is not None:
        yield first
    after = 0
    while page := backend.to_purge(after, PAGE):
        after = page[-1].no
        random.shuffle(page)
        yield from (info for info in page if first is None or info.no != first.no)


def purge_name(backend: Backend, name: str) -> Purged:
    """Purge every deleted incarnation of a name, also those that were not deleted for it.

    Raises:
        NotFound: there is none.
    """
    latest = backend.agent(name)
    found = (
        [backend.agent(name, number + 1) for number in range(latest.incarnation)] if latest else []
    )
    deleted = [info for info in found if info is not None and info.deleted]
    if not deleted:
        raise NotFound(
            "there is no deleted agent of that name", target=f"agent {name!r}",
            hint="only what was deleted, by store.delete(name), can be purged",
        )  # fmt: skip
    done: list[AgentInfo] = []
    kept: list[AgentInfo] = []
    for info in deleted:
        if needed_by(backend, info) is not None:
            kept.append(info)
            continue
        while backend.purge(info.no):
            pass
        done.append(info)
    return Purged(done, kept)


def needed_by(backend: Backend, info: AgentInfo) -> str | None:
    """The name of a living agent that reads the log of a deleted one, be it as a copy of a copy."""
    if info.purged:
        return None  # it was found out before
    ref = backend.ref(info.no, COPIES)
    if ref is None or ref.kind != "branch":
        return None
    copies = LogReader(backend, info).fold(ref.seq).state
    for name, said in copies.items():
        found = list(_copies_called(backend, name, info))
        for copy in found:
            user = name if not copy.deleted else needed_by(backend, copy)
            if user is not None:
                return user
        if not found and backend.now() - said < ANNOUNCED_US:
            return str(name)
    return None


def _copies_called(backend: Backend, name: str, origin: AgentInfo) -> Iterator[AgentInfo]:
    latest = backend.agent(name)
    for number in range(1, latest.incarnation + 1 if latest else 1):
        info = backend.agent(name, number)
        if info is None:
            continue
        if info.purged:  # nobody reads it: so nobody reads by it
            yield info
            continue
        for record in LogReader(backend, info).commit(1).records:
            if (record.get("t"), record.get("agent"), record.get("incarnation")) == (
                COPIED, origin.name, origin.incarnation
            ):  # fmt: skip
                yield info


def verify_grave(backend: Backend, reader: LogReader, anchor: str | None) -> Verified:
    """What is left of a purged log: its last commit, which says that the agent was deleted.

    Raises:
        Corrupt: it does not; or the anchor is neither this commit's id nor the one before it.
    """
    seq = reader.last_seq()
    last = reader.commit(seq)
    if last.cause.kind != "delete" or not any(deletes(record) for record in last.records):
        raise Corrupt(
            "its log was purged, and does not end with its deletion", target=reader.target(seq),
            hint=chain.HINT,
        )  # fmt: skip
    if anchor is not None and anchor not in (id_text(last.id), id_text(last.prev)):
        raise Conflict(
            f"the anchor {anchor} cannot be looked up: the log was purged", target=reader.target(),
            hint="only its last two ids are known; verify a copy that was made before",
        )  # fmt: skip
    return Verified(reader.name, last.seq, 0, last.id, True)


def deletes(record: Any) -> bool:
    return bool(record.get("t") == "agent-deleted")
