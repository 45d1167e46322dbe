"""The portable file: a log as JSON Lines, complete or refused.

A header line, one line per commit, a footer. The commits' stored bytes are in base64, so that ids
stay as they are; the fields beside them are for readers (and for `jq`), and only `asked` and
`orders` are read back (by `perdure.transfer.portable_file`). The footer has the count, the root,
and the SHA-256 of all lines before it: a file that was cut off or changed on its way is refused
before anything is written.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, BinaryIO

import perdure
from perdure.cli import plain
from perdure.model import id_text
from perdure.store import PORTABLE_VERSION, LogEntry
from perdure.types import AgentInfo


def write_log(
    info: AgentInfo,
    entries: Iterable[LogEntry],
    stream: BinaryIO,
    *,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Writes the file; returns the count and the root in its footer."""
    digest = sha256()

    def put(line: dict[str, Any]) -> None:
        data = plain.ascii_dumps(line).encode() + b"\n"
        digest.update(data)
        stream.write(data)

    put(
        {
            "perdure_export": PORTABLE_VERSION,
            "agent": info.name,
            "incarnation": info.incarnation,
            "perdure": perdure.__version__,
            "exported_at": plain.time_json(datetime.now(UTC)),
        }
    )
    number, root = 0, ""
    for number, entry in enumerate(entries, 1):
        commit = entry.commit
        root = id_text(commit.id)
        readable = plain.commit_json(commit)
        line = {name: readable[name] for name in ("seq", "id", "at", "branch", "parents", "cause")}
        line["header"] = base64.b64encode(entry.header).decode()
        line["payload"] = base64.b64encode(entry.payload).decode()
        for name, data in (("asked", entry.asked), ("orders", entry.orders)):
            if data is not None:
                line[name] = base64.b64encode(data).decode()
        put(line)
        progress(number, info.seq)
    footer = {
        "perdure_end": PORTABLE_VERSION,
        "commits": number,
        "root": root,
        "sha256": digest.hexdigest(),
    }
    stream.write(plain.ascii_dumps(footer).encode() + b"\n")
    return {"commits": number, "root": root}
