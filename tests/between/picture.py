"""A store as it looks to whoever reads it, without what differs from one try to the next: times,
ids, executors, numbers of messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perdure import Store
from perdure.core.values.ops import Op
from perdure.errors import NotFound
from perdure.missing import MISSING
from perdure.model import AgentInfo, Commit, RunInfo
from perdure.storage.capabilities import Backend
from perdure.storage.log.reader import LogReader
from perdure.storage.standing import read_why
from perdure.verification.verify import verify_log
from tests.between.worlds import backend_of
from tests.simulation.house import logs

Picture = Mapping[str, Any]

BY_CHANCE = re.compile(r"\b[0-9a-f]{24,32}\b")
"""Keys that nobody gave."""

MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*")


def picture(store: Store, names: Mapping[str, str]) -> Picture:
    """Everything of a store that two tries have in common; its logs verify.

    Args:
        names: urls of stores, and what they are called here.

    Raises:
        Corrupt: a log is not whole, or what is beside it says otherwise.
    """
    backend = backend_of(store)
    found: dict[str, Any] = {"standing": _standing(backend, 0, names)}
    for info in logs(backend):
        verify_log(backend, LogReader(backend, info))
        found[f"{info.name}/{info.incarnation}"] = _agent(backend, info, names)
    found["runs"] = sorted(_run(run) for run in backend.runs())
    found["inbox"] = sorted(_message(one) for one in backend.inbox())
    known, cursor = [], ""
    while (part := backend.mail(cursor)).messages:
        known += [_message(one)[:4] for one in part.messages]
        cursor = part.cursor
    found["known"] = sorted(known)
    return {name: _same(one) for name, one in found.items()}


def _same(value: Any) -> Any:
    """Returns a value with each text as it is in all tries."""
    match value:
        case str():
            return MOMENT.sub("then", BY_CHANCE.sub("#", value))
        case dict():
            return {name: _same(one) for name, one in value.items()}
        case list() | tuple():
            return [_same(one) for one in value]
    return value


def _standing(backend: Backend, no: int, names: Mapping[str, str]) -> Any:
    why = read_why(backend.standing(no))
    if why is None:
        return None
    return why.kind, names.get(why.url, why.url), [one.problem for one in why.aside]


def _agent(backend: Backend, info: AgentInfo, names: Mapping[str, str]) -> Any:
    reader = LogReader(backend, info)
    refs = [(ref.name, ref.kind, ref.seq, ref.deleted) for ref in backend.refs(info.no)]
    if info.purged:
        return {"purged": info.seq, "refs": refs}
    commits = [*reader.commits(1)]
    return {
        "deleted": info.deleted,
        "standing": _standing(backend, info.no, names),
        "refs": refs,
        "log": [_commit(commit) for commit in commits],
        "states": [_state(reader, commit.seq) for commit in commits],
        "keys": [
            commit.cause.key
            for commit in commits
            if commit.cause.key and backend.key(info.no, commit.cause.key)
        ],
    }


def _commit(commit: Commit) -> Any:
    cause = commit.cause
    return (
        commit.branch,
        commit.parents,
        cause.kind,
        cause.what,
        cause.key,
        cause.run,
        [_op(op) for op in commit.delta],
        [(record.get("t"), record.get("run"), record.get("place")) for record in commit.records],
        commit.trimmed,
    )


def _op(op: Op) -> str:
    return repr(op)


def _state(reader: LogReader, seq: int) -> str:
    try:
        return repr(reader.fold(seq).state)
    except NotFound:
        return "gone"


def _run(run: RunInfo) -> Any:
    return (
        run.id,
        run.branch,
        run.status,
        run.started,
        run.ended,
        repr(run.result),
        run.problem or "",
        run.waits,
        run.turn,
        run.turn_at,
        run.parent,
        bool(run.wake_at_micros),
    )


def _message(one: Any) -> Any:
    key = one.key if one.kind != "cancel" else ""
    value = "" if one.value is MISSING else repr(one.value)
    return one.run, one.kind, one.name, key, value
