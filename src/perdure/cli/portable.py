"""The portable file: a log as JSON Lines, complete or refused.

A header line, one line per commit, a footer. The commits' stored bytes are in base64, so that ids
stay as they are; what stands beside them is for readers (and for `jq`), and only `asked` of it is
read back. The footer has the count, the root, and the SHA-256 of all lines before it: a file that
was cut off or changed on its way is refused before anything is written.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, BinaryIO

import perdure
from perdure import AgentInfo, Corrupt, UnsupportedFormat
from perdure.cli import plain
from perdure.model import id_text
from perdure.store import LogEntry

VERSION = 1
HINT = "the file is not whole: export again, or copy it again"


def write_log(
    info: AgentInfo, entries: Iterable[LogEntry], stream: BinaryIO, *,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:  # fmt: skip
    """Write the file; returns the count and the root that its footer has."""
    digest = sha256()

    def put(line: dict[str, Any]) -> None:
        data = plain.ascii_dumps(line).encode() + b"\n"
        digest.update(data)
        stream.write(data)

    put(
        {
            "perdure_export": VERSION, "agent": info.name, "incarnation": info.incarnation,
            "perdure": perdure.__version__, "exported_at": plain.time_json(datetime.now(UTC)),
        }
    )  # fmt: skip
    number, root = 0, ""
    for number, entry in enumerate(entries, 1):
        commit = entry.commit
        root = id_text(commit.id)
        readable = plain.commit_json(commit)
        line = {name: readable[name] for name in ("seq", "id", "at", "branch", "parents", "cause")}
        line["header"] = base64.b64encode(entry.header).decode()
        line["payload"] = base64.b64encode(entry.payload).decode()
        if entry.asked is not None:
            line["asked"] = base64.b64encode(entry.asked).decode()
        put(line)
        progress(number, info.seq)
    footer = {"perdure_end": VERSION, "commits": number, "root": root, "sha256": digest.hexdigest()}
    stream.write(plain.ascii_dumps(footer).encode() + b"\n")
    return {"commits": number, "root": root}


@dataclass(frozen=True, slots=True)
class Portable:
    """What a file holds, once its end, count and digest are found right."""

    agent: str
    root: str
    entries: list[LogEntry]


def read_file(stream: BinaryIO, name: str) -> Portable:
    """Read a file that `write_log` wrote. Its chain is checked by `Store.import_log`.

    Raises:
        Corrupt: it is none, is cut off, or was changed.
        UnsupportedFormat: a newer version wrote it.
    """
    target = f"file {name}"
    digest = sha256()
    lines = iter(stream)
    head = _parse(next(lines, b""), target, 1, digest)
    if "perdure_export" not in head:
        raise Corrupt("is no export of an agent's history", target=target, hint=_hint(head))
    if head["perdure_export"] != VERSION:
        raise UnsupportedFormat(
            f"export version {head['perdure_export']!r:.20}", target=target,
            hint="read it with a newer perdure",
        )  # fmt: skip
    entries: list[LogEntry] = []
    for number, data in enumerate(lines, 2):
        sum_before = digest.hexdigest()
        line = _parse(data, target, number, digest)
        if "perdure_end" in line:
            _check_footer(line, len(entries), sum_before, target)
            if next(lines, b"").strip():
                raise Corrupt("goes on behind its footer", target=target, hint=HINT)
            return Portable(str(head.get("agent")), str(line.get("root")), entries)
        entries.append(_entry(line, target, number))
    raise Corrupt(
        f"is cut off after {len(entries)} commits: its footer is missing", target=target, hint=HINT
    )


def _hint(head: dict[str, Any]) -> str:
    if "perdure_state" in head:
        return "it holds one state, without the history that an agent is made of"
    return "import reads what `perdure export AGENT` writes"


def _parse(data: bytes, target: str, number: int, digest: Any) -> dict[str, Any]:
    digest.update(data)
    try:
        line = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"line {number} is not JSON", target=target, hint=HINT) from error
    if type(line) is not dict:
        raise Corrupt(f"line {number} is no JSON object", target=target, hint=HINT)
    return line


def _entry(line: dict[str, Any], target: str, number: int) -> LogEntry:
    try:
        asked = line.get("asked")
        return LogEntry(
            base64.b64decode(line["header"], validate=True),
            base64.b64decode(line["payload"], validate=True),
            base64.b64decode(asked, validate=True) if asked is not None else None,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise Corrupt(f"line {number} is no commit", target=target, hint=HINT) from error


def _check_footer(footer: dict[str, Any], found: int, digest: str, target: str) -> None:
    if footer.get("commits") != found:
        raise Corrupt(
            f"has {found} commits, its footer says {footer.get('commits')!r:.20}",
            target=target, hint=HINT,
        )  # fmt: skip
    if footer.get("sha256") != digest:
        raise Corrupt("was changed: its SHA-256 is another one", target=target, hint=HINT)
