"""Purging: the logs of deleted agents are removed, part by part, unless a living agent reads them.

An agent may be a copy of another one: it begins with a record that points to a commit of the other
log, and reads what is before it there. Before such a copy is made, a commit on the branch `@copies`
of the origin's log says so, which is refused once the origin is deleted: so all copies of a deleted
agent are known, and no more will come (decision 0020).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

from msgspec import Struct

from perdure.core.format import chain
from perdure.core.format.records import Deleted, Record
from perdure.errors import Conflict, Corrupt, NotFound, UnsupportedFormat
from perdure.model import AgentInfo, Commit, Verified, id_text
from perdure.public_data import PublicData
from perdure.storage.capabilities import Backend
from perdure.storage.log.reader import LogReader
from perdure.storage.retention import COPIES
from perdure.system import logs

_log = logs.logger("perdure.log")

COPIED = "copied"
"""The kind of the record, in its `t`, with which a copy begins."""

ANNOUNCED_US = 3600 * 1_000_000
"""The time for which an announced copy that is not there counts as still being made."""

PAGE = 100


class Purged(PublicData, Struct, frozen=True):
    """The result of a purge.

    Attributes:
        agents: those that are removed completely, once for each deletion.
        kept: those that living copies read. They are removed when those are.
        more: True if there is more to remove, for which there was no time.
    """

    agents: list[AgentInfo]
    kept: list[AgentInfo]
    more: bool = False


def sweep(
    backend: Backend,
    seconds: float | None = None,
    of: AgentInfo | None = None,
    may_go: Callable[[AgentInfo], bool] = lambda info: True,
) -> Purged:
    """Purges agents that were deleted to be purged.

    Args:
        seconds: the approximate time that it may take; None: until everything is done.
        of: only that agent, and those whose copy it is; no others are read.
        may_go: False keeps an agent that nobody reads here.
    """
    until = time.monotonic() + seconds if seconds is not None else float("inf")
    done: list[AgentInfo] = []
    kept: list[AgentInfo] = []
    known: dict[int, str | None] = {}
    for info in _in_turn(backend) if of is None else _with_origins(backend, of):
        if is_needed(backend, info, known) or not may_go(info):
            kept.append(info)
        else:
            while backend.purge(info.no):
                if time.monotonic() > until:
                    return Purged(done, kept, True)
            done.append(info)
        if time.monotonic() > until:
            return Purged(done, kept, True)
        if of is not None and kept:  # what it is a copy of is read by the same one
            break
    return Purged(done, kept)


def is_needed(
    backend: Backend, info: AgentInfo, known: dict[int, str | None] | None = None
) -> bool:
    """True if a living agent needs the log, also if that cannot be told: an unreadable log keeps
    this one, and none of the others."""
    try:
        return needed_by(backend, info, known) is not None
    except (Corrupt, UnsupportedFormat) as error:
        _log.warning("agent %r is not purged: %s", info.name, error)
        return True


def _in_turn(backend: Backend) -> Iterator[AgentInfo]:
    """Yields agents to purge in random order, so that those that are kept do not block all
    others."""
    after = 0
    while page := backend.to_purge(after, PAGE):
        after = page[-1].no
        random.shuffle(page)
        yield from page


def _with_origins(backend: Backend, info: AgentInfo | None) -> Iterator[AgentInfo]:
    """Yields an agent that was deleted to be purged, then its origin, if that was, too, and so on.
    The origin is read before an agent is yielded: the log may be gone afterwards."""
    while info is not None and not info.purged and _is_to_go(backend, info):
        copied = _copied_from(LogReader(backend, info).peek(1))
        yield info
        info = backend.agent(*copied) if copied is not None else None


def _is_to_go(backend: Backend, info: AgentInfo) -> bool:
    last = LogReader(backend, info).peek(info.seq)
    return any(deletes(record) and record.purge for record in last.typed)


def incarnations(backend: Backend, name: str) -> Iterator[AgentInfo]:
    """Yields the agents of a name, deleted ones too, oldest first."""
    latest = backend.agent(name)
    for number in range(1, latest.incarnation + 1 if latest is not None else 1):
        if (info := backend.agent(name, number)) is not None:
            yield info


def origins(backend: Backend, info: AgentInfo) -> Iterator[AgentInfo]:
    """Yields the agents whose logs one reads as a copy of them, the nearest first.

    Raises:
        NotFound: one of them is not in this store; what is read through a living one is not, then.
    """
    one = info
    while not one.purged and (copied := _copy_record(LogReader(backend, one).peek(1))) is not None:
        origin = backend.agent(*_origin_of(copied))
        if origin is None or origin.purged or _is_another(backend, origin, copied):
            if info.deleted:  # so that nothing kept it from being purged
                return
            raise NotFound(
                "what it was copied from is not in this store, and it cannot be read without",
                target=f"agent {info.name!r}",
                hint=f"bring {_origin_of(copied)[0]!r} along from where it was, or copy it again",
            )
        yield (one := origin)


def _is_another(backend: Backend, origin: AgentInfo, copied: Mapping[str, Any]) -> bool:
    """Returns True if the log is not the one that was copied, but another of that name."""
    if "id" not in copied:  # of an earlier version
        return False
    seq = int(copied["seq"])
    return origin.seq < seq or LogReader(backend, origin).peek(seq).id != bytes(copied["id"])


def purge_name(backend: Backend, name: str) -> Purged:
    """Purges every deleted incarnation of a name, also those that were not deleted to be purged.

    Raises:
        NotFound: there is none.
    """
    deleted = [info for info in incarnations(backend, name) if info.deleted]
    if not deleted:
        raise NotFound(
            "there is no deleted agent of that name",
            target=f"agent {name!r}",
            hint="only what was deleted, by store.delete(name), can be purged",
        )
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


def needed_by(
    backend: Backend, info: AgentInfo, known: dict[int, str | None] | None = None
) -> str | None:
    """Returns the name of a living agent that reads the log of a deleted one, even as a copy of a
    copy; None if there is none.

    Args:
        known: earlier results by the agents' numbers; new ones are added.
    """
    known = {} if known is None else known
    ahead, origins = [info], {info.no: 0}
    while ahead:
        one = ahead.pop()
        user, copies = (known[one.no], []) if one.no in known else _read_by(backend, one)
        if user is not None:
            no = one.no
            while no:  # and so of those by which it was come to
                known[no], no = user, origins[no]
            return user
        for copy in copies:
            if origins.setdefault(copy.no, one.no) == one.no:
                ahead.append(copy)
    known.update(dict.fromkeys(origins))
    return None


def _read_by(backend: Backend, info: AgentInfo) -> tuple[str | None, list[AgentInfo]]:
    """Returns the name of a living copy, or of one that is being made; or None with its copies,
    which are all deleted, and may have living ones."""
    ref = backend.ref(info.no, COPIES) if not info.purged else None  # which was found out before
    if ref is None or ref.kind != "branch":
        return None, []
    copies: list[AgentInfo] = []
    for name, said in LogReader(backend, info).fold(ref.seq).state.items():
        found = list(_copies_called(backend, name, info))
        if any(not copy.deleted for copy in found):
            return str(name), []
        if not found and backend.now() - said < ANNOUNCED_US:
            return str(name), []
        copies += found
    return None, copies


def _copies_called(backend: Backend, name: str, origin: AgentInfo) -> Iterator[AgentInfo]:
    for info in incarnations(backend, name):
        # A purged log is known to have no reader, so nobody reads through it either.
        copied = None if info.purged else _copied_from(LogReader(backend, info).commit(1))
        if info.purged or copied == (origin.name, origin.incarnation):
            yield info


def _copied_from(first: Commit) -> tuple[str, int] | None:
    """Returns name and incarnation of the agent whose copy one is, from its first commit."""
    record = _copy_record(first)
    return None if record is None else _origin_of(record)


def _copy_record(first: Commit) -> Mapping[str, Any] | None:
    return next((record for record in first.records if record.get("t") == COPIED), None)


def _origin_of(copied: Mapping[str, Any]) -> tuple[str, int]:
    return str(copied["agent"]), int(copied["incarnation"])


def verify_grave(backend: Backend, reader: LogReader, anchor: str | None) -> Verified:
    """Verifies what is left of a purged log: its last commit, which says that the agent was
    deleted.

    Raises:
        Corrupt: it does not; or the anchor is neither this commit's id nor the one before it.
    """
    seq = reader.last_seq()
    last = reader.commit(seq)
    if last.cause.kind != "delete" or not any(map(deletes, last.typed)):
        raise Corrupt(
            "its log was purged, and does not end with its deletion",
            target=reader.target(seq),
            hint=chain.HINT,
        )
    if anchor is not None and anchor not in (id_text(last.id), id_text(last.prev)):
        raise Conflict(
            f"the anchor {anchor} cannot be looked up: the log was purged",
            target=reader.target(),
            hint="only its last two ids are known; verify a copy that was made before",
        )
    return Verified(reader.name, last.seq, 0, last.id, True)


def deletes(record: Record) -> TypeGuard[Deleted]:
    return isinstance(record, Deleted)
