"""Rows of agents and of their names that a disk lost, rebuilt from the agents' own logs.

Rows beside a log can be lost without a trace, because a page from before a row was written has a
valid checksum; the log has them all. A log counts only if it is complete and consistent: each
commit by itself, and by its hash in the next one.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.core.format import chain
from perdure.errors import Corrupt, UnsupportedFormat
from perdure.model import AgentInfo, Commit
from perdure.state.agent_names import Names
from perdure.storage.appending import Ref
from perdure.storage.capabilities import Backend
from perdure.storage.log.commits import SEQ_END, check_follows
from perdure.storage.log.reader import LogReader
from perdure.storage.log.way_back import EPOCHS


def unlisted(backend: Backend, no: int) -> AgentInfo | None:
    """Returns the agent whose log has a number under which none is listed. None if the log does not
    name it, or another one is listed in its place."""
    rows = backend.read(no, 1, SEQ_END, limit=1)
    try:
        fields = chain.read_header(rows[0].header, "") if rows else []
    except (Corrupt, UnsupportedFormat):
        return None
    if len(fields) < 3 or type(fields[1]) is not str or type(fields[2]) is not int:
        return None
    info = AgentInfo(fields[1], no, fields[2], False, 0)
    if backend.agent(info.name, info.incarnation) is not None:
        return None
    names = _names(LogReader(backend, info))
    if names is None:
        return None
    return AgentInfo(info.name, no, info.incarnation, names.deleted, 0)


def lost_names(backend: Backend, info: AgentInfo) -> tuple[list[Ref], list[str]]:
    """Returns names of an agent that are missing, or stand at an earlier commit than the log says:
    each was written in one transaction with its commit. Where they say more than the log, it is the
    log that lost something.

    Returns:
        The rows as they should be, and a message for each.
    """
    found, told = list[Ref](), list[str]()
    names = None if info.purged else _names(LogReader(backend, info))
    if names is None:
        return found, told
    stored = {ref.name: ref for ref in backend.refs(info.no)}
    if not stored.keys() <= names.refs.keys():
        return [], []  # one of them may stand under another name
    for name, (kind, seq, deleted) in names.refs.items():
        ref, epoch = stored.get(name), names.epochs.get(name, 0)
        point = names.points[name] if kind == "checkpoint" else None
        if ref is None:
            where = "was not there"
        elif ref.kind != kind or ref.seq > seq or ref.deleted > deleted or ref.checkpoint != point:
            return [], []
        elif (ref.seq, ref.deleted) == (seq, deleted):
            continue
        else:
            where = f"stood at commit {ref.seq}" + " and was not marked as deleted" * deleted
            epoch = max(epoch, ref.epoch)
        epoch += EPOCHS if kind == "branch" else 0
        found.append(
            Ref(name, "checkpoint" if point else "branch", seq, deleted, epoch, checkpoint=point)
        )
        told.append(
            f"agent {info.name!r}: its {kind} {name!r} {where}: it is at commit {seq} again, as "
            "its log says"
        )
    return found, told


def _names(reader: LogReader) -> Names | None:
    """Returns the names according to a log; None if it is incomplete or inconsistent."""
    names, before = Names(), None
    try:
        for commit in _log(reader):
            if commit.damaged or commit.incarnation != reader.incarnation:
                return None
            if commit.seq != (before.seq + 1 if before else 1):
                return None
            check_follows(commit, before)
            names.after(commit)
            before = commit
    except (Corrupt, UnsupportedFormat):
        return None
    return names if before is not None else None


def _log(reader: LogReader) -> Iterable[Commit]:
    return reader.commits(1, SEQ_END, damaged_too=True, newer_too=False)
