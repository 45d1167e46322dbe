"""Whole logs: as `perdure import` reads them from a file, and as the engine and the state read
them back once they are in a store, whose chains and digests are right: they were made anew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from io import BytesIO
from typing import Any

import msgspec

import perdure
from perdure.core.format import chain, envelope
from perdure.engine.journal.failures import rebuild_error
from perdure.engine.journal.journal import Journal
from perdure.model import id_text
from perdure.store import Store
from perdure.transfer.portable_file import read_file
from perdure.transfer.whole_log import LogEntry
from tests.fuzz.mutating import Parts
from tests.fuzz.target import Looks, Target

SALT = b"\0" * envelope.SALT_SIZE
COMMITS_MAX = 60


def parts_of(entries: Sequence[LogEntry]) -> Parts:
    """A log as an input: of each commit the header, and the payload's body."""
    parts = []
    for entry in entries:
        parts += [entry.header, envelope.open_envelope(entry.payload, "a payload")]
    return parts


def mended(parts: Parts) -> list[LogEntry]:
    """A log of headers and bodies in turn, as one that nobody has damaged: links, digests, places
    and times in it are right, and it is of one agent. All else is as it is."""
    entries: list[LogEntry] = []
    prev, at, first = b"", 0, None
    for header, body in zip(parts[0::2], parts[1::2], strict=False):
        payload = envelope.seal(body, SALT)
        try:
            fields = msgspec.msgpack.decode(header)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            continue
        if type(fields) is list and len(fields) == 14:
            first = first or fields
            fields[1], fields[2] = first[1], first[2]
            fields[3], fields[4], fields[13] = len(entries) + 1, prev, envelope.digest(payload)
            if type(fields[8]) is int and 0 <= at < 2**62:
                fields[8] = at = max(fields[8], at + 1)
            if type(fields[6]) is list:
                fields[6] = [
                    min(one, len(entries)) if type(one) is int and one > 0 else one
                    for one in fields[6]
                ]
            header = chain._encode(fields)
        entries.append(LogEntry(header, payload))
        prev = chain.commit_id(header)
    return entries


def look_at(store: Store, looks: Looks) -> None:
    """All that a user can ask of what is in a store, and a change of each kind."""
    agents = []
    with looks.look():
        agents = store.agents()
    for info in agents:
        with looks.look():
            agent = store.agent_of(info)
            with looks.look():
                agent.verify()
            with looks.look():
                for commit in agent.log(all_branches=True):
                    repr(commit.cause)
            for seq in range(1, min(info.seq, COMMITS_MAX) + 1):
                with looks.look():
                    agent.at(seq).state
            with looks.look():
                agent.branches()
                agent.checkpoints()
    for run in _runs(store, looks):
        _look_at_run(store, run.id, looks)
    for info in agents:
        _change(store, info, looks)


def _runs(store: Store, looks: Looks) -> list[Any]:
    with looks.look():
        return store.runs()
    return []


def _look_at_run(store: Store, run: str, looks: Looks) -> None:
    with looks.look():
        handle = store.handle(run)
        for ask in (handle.why, handle.report, handle.effects, handle.questions):
            with looks.look():
                ask()
        with looks.look():
            if handle.status in ("done", "cancelled"):
                handle.result(timeout=0)
            elif handle.status == "failed":  # an error that was recorded comes as what it was
                with looks.look(Exception):
                    handle.result(timeout=0)
                assert isinstance(rebuild_error(handle.info.result, run), Exception)
        with looks.look():
            for journal in handle._journals():
                assert isinstance(journal, Journal)


def _change(store: Store, info: Any, looks: Looks) -> None:
    with looks.look():
        agent = store.agent_of(info)
        with looks.look():
            agent.diff(1, info.seq)
        for change in (agent.undo, agent.redo, lambda: agent.fork("another")):
            with looks.look():
                change()
        with looks.look():
            agent.rollback(1, cancel_run=True)
        with looks.look():
            store.delete(info.name)


def _logs(parts: Parts, looks: Looks) -> None:
    """Behind the chain."""
    with perdure.open("memory://") as store:
        with looks.look():
            store.import_log(mended(parts))
            looks.note("in")
        look_at(store, looks)


def _portable(parts: Parts, looks: Looks) -> None:
    """An export's lines; the footer's count, root and digest are right, where it is one."""
    lines = b"".join(part.rstrip(b"\n") + b"\n" for part in parts)
    for data in (b"".join(parts), _footed(parts), lines):
        with looks.look():
            read = read_file(BytesIO(data), "export")
            with perdure.open("memory://") as store:
                store.import_log(read.entries, root=read.root)
                looks.note("in")


def _footed(parts: Parts) -> bytes:
    lines = [part.rstrip(b"\n") + b"\n" for part in parts[:-1]]
    root = ""
    for line in lines:
        try:
            root = id_text(chain.commit_id(msgspec.convert(json.loads(line), _Line).header))
        except (ValueError, RecursionError):
            continue
    try:
        footer = json.loads(parts[-1]) if parts else None
    except (ValueError, RecursionError):
        footer = None
    if type(footer) is not dict:
        return b"".join([*lines, *parts[-1:]])
    footer.update(commits=len(lines) - 1, root=root, sha256=sha256(b"".join(lines)).hexdigest())
    return b"".join([*lines, json.dumps(footer).encode()])


class _Line(msgspec.Struct):
    header: bytes


logs = Target("logs", _logs)
portable = Target("portable", _portable)
