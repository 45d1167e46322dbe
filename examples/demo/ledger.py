"""A ledger of the demonstration's own, outside the library: what the tool really did, and when.

The library's log says which tool calls there were. To check it, each physical call also appends a
line here, with nothing of the library in between but the name of the call and of its owner.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Line:
    """One physical call of the tool.

    Attributes:
        key: the call's idempotency key, the same for all attempts.
        epoch: the fencing token: which owner of the run made it.
        pid: the process that made it.
        returned: False when it began, True when it was through.
    """

    key: str
    epoch: int
    pid: int
    returned: bool


class Ledger:
    """An append-only file of lines, written by several processes and read by one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.lines: list[Line] = []

    def append(self, line: Line) -> None:
        """Durable when this returns, and whole: one write of few bytes, at the file's end."""
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, json.dumps(asdict(line)).encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)

    def follow(self) -> list[Line]:
        """The lines that have come since the last time; `lines` has them all."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        new = [Line(**json.loads(line)) for line in whole.splitlines()]
        self.lines += new
        return new
