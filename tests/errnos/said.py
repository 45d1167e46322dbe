"""What a process says of its progress without a system call, which could be the one that fails."""

from __future__ import annotations

import json
import mmap
from typing import Any

ROOM = 1 << 20


class Said:
    """Lines in memory that a forked child shares with its parent. For one writer at a time."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, ROOM)

    def clear(self) -> None:
        self._memory[:8] = bytes(8)

    def say(self, what: str, detail: Any = None) -> None:
        used = int.from_bytes(self._memory[:8], "little")
        line = json.dumps([what, detail]).encode() + b"\n"
        self._memory[8 + used : 8 + used + len(line)] = line
        self._memory[:8] = (used + len(line)).to_bytes(8, "little")

    def all(self) -> list[tuple[str, Any]]:
        used = int.from_bytes(self._memory[:8], "little")
        return [
            (what, detail)
            for what, detail in map(json.loads, self._memory[8 : 8 + used].splitlines())
        ]
