"""The world outside: it keeps every effect that a tool had, and obeys fencing tokens.

One file for each agent, appended to under a lock, so that what it says holds for killed and paused
processes alike.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


class Refused(Exception):
    """Somebody with a newer token has looked at this agent's affairs since."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that was done. `op`: what it is in business terms; `key`: of the tool call."""

    op: str
    key: str
    token: int
    pid: int


class World:
    """See the module. Used by any process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "world"
        self._folder.mkdir(exist_ok=True)

    def act(self, agent: str, op: str, key: str, token: int) -> None:
        """Have the effect.

        Raises:
            Refused: whoever asks was replaced, and its successor has looked here already.
        """
        with self._locked(agent) as file:
            if token < _fence(_lines(file)):
                raise Refused(f"{op}: token {token} is old")
            os.write(file, f"E\t{op}\t{key}\t{token}\t{os.getpid()}\n".encode())
            os.fsync(file)

    def look(self, agent: str, key: str, token: int) -> bool:
        """Whether the effect of a call was had. If not, none with an older token will be."""
        with self._locked(agent) as file:
            lines = _lines(file)
            if any(line[0] == "E" and line[2] == key for line in lines):
                return True
            if token > _fence(lines):
                os.write(file, f"F\t{token}\n".encode())
            return False

    def mend(self, agent: str) -> None:
        """What the agent failed of is put right."""
        (self._folder.parent / f"mended-{agent}").touch()

    def mended(self, agent: str) -> bool:
        """Whether it is."""
        return (self._folder.parent / f"mended-{agent}").exists()

    def effects(self, agent: str) -> list[Effect]:
        """What was done for an agent, in order."""
        with self._locked(agent) as file:
            found = [line for line in _lines(file) if line[0] == "E"]
        return [Effect(op, key, int(token), int(pid)) for _, op, key, token, pid in found]

    @contextmanager
    def _locked(self, agent: str) -> Iterator[int]:
        file = os.open(self._folder / agent, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def _lines(file: int) -> list[list[str]]:
    text = os.pread(file, os.fstat(file).st_size, 0).decode()
    return [line.split("\t") for line in text.splitlines()]


def _fence(lines: list[list[str]]) -> int:
    return max((int(line[1]) for line in lines if line[0] == "F"), default=0)
