"""Reading of the portable file that `perdure export` writes: a log as JSON Lines, complete or
refused.

`perdure.cli.portable`, which writes the lines, documents their content.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import Any, BinaryIO

from msgspec import Struct

from perdure.errors import Corrupt, UnsupportedFormat
from perdure.system.late_imports import loading
from perdure.transfer.whole_log import LogEntry

PORTABLE_VERSION = 1
HINT = "the file is incomplete: export again, or copy it again"


class Portable(Struct, frozen=True):
    """The content of a file whose end, count and digest are right."""

    agent: str
    root: str
    entries: list[LogEntry]


def read_file(stream: BinaryIO, name: str) -> Portable:
    """Reads a file that `perdure export` wrote. Its chain is checked by `Store.import_log`.

    Raises:
        Corrupt: it is not such a file, is cut off, or was changed.
        UnsupportedFormat: a newer version wrote it.
    """
    target = f"file {name}"
    digest = sha256()
    lines = iter(stream)
    head = _parse(next(lines, b""), target, 1, digest)
    if "perdure_export" not in head:
        raise Corrupt("is not an export of an agent's history", target=target, hint=_hint(head))
    if head["perdure_export"] != PORTABLE_VERSION:
        raise UnsupportedFormat(
            f"export version {head['perdure_export']!r:.20}",
            target=target,
            hint="read it with a newer perdure",
        )
    entries: list[LogEntry] = []
    for number, data in enumerate(lines, 2):
        sum_before = digest.hexdigest()
        line = _parse(data, target, number, digest)
        if "perdure_end" in line:
            _check_footer(line, len(entries), sum_before, target)
            if next(lines, b"").strip():
                raise Corrupt("continues after its footer", target=target, hint=HINT)
            return Portable(str(head.get("agent")), str(line.get("root")), entries)
        entries.append(_entry(line, target, number))
    raise Corrupt(
        f"is cut off after {len(entries)} commits: its footer is missing", target=target, hint=HINT
    )


def _hint(head: dict[str, Any]) -> str:
    if "perdure_state" in head:
        return "it holds one state, not the history that makes up an agent"
    return "import reads what `perdure export AGENT` writes"


def _parse(data: bytes, target: str, number: int, digest: Any) -> dict[str, Any]:
    with loading:
        import json  # 6 ms to import, for this alone

    digest.update(data)
    try:
        line = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"line {number} is not JSON", target=target, hint=HINT) from error
    if type(line) is not dict:
        raise Corrupt(f"line {number} is not a JSON object", target=target, hint=HINT)
    return line


def _entry(line: dict[str, Any], target: str, number: int) -> LogEntry:
    try:
        beside = [line.get("asked"), line.get("orders")]
        return LogEntry(
            base64.b64decode(line["header"], validate=True),
            base64.b64decode(line["payload"], validate=True),
            *(None if one is None else base64.b64decode(one, validate=True) for one in beside),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise Corrupt(f"line {number} is not a commit", target=target, hint=HINT) from error


def _check_footer(footer: dict[str, Any], found: int, digest: str, target: str) -> None:
    if footer.get("commits") != found:
        raise Corrupt(
            f"has {found} commits, but its footer says {footer.get('commits')!r:.20}",
            target=target,
            hint=HINT,
        )
    if footer.get("sha256") != digest:
        raise Corrupt("was changed: its SHA-256 differs", target=target, hint=HINT)
