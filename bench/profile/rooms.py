"""Which part of the work a sample belongs to, by the innermost frame that says it.

A frame is of one of our files, or of `straight.py` and `fresh.py`, whose one function does all the
work: there the line itself says which part it is.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

REST = "everything else"


class Frame(NamedTuple):
    """`file` as the profiler has it, relative to a folder on the path."""

    function: str
    file: str
    line: int

    @property
    def text(self) -> str:
        """The line's own text; empty where it is in none of our files."""
        for folder in (ROOT, ROOT / "src"):
            if found := linecache.getline(str(folder / self.file), self.line):
                return found
        return ""


class Room(NamedTuple):
    """A part of the work. `files`, `functions`, `text`: patterns that all have to be found."""

    name: str
    files: str
    functions: str = ""
    text: str = ""

    def has(self, frame: Frame) -> bool:
        return (
            re.search(self.files, frame.file) is not None
            and re.search(self.functions, frame.function) is not None
            and (not self.text or re.search(self.text, frame.text) is not None)
        )


STRAIGHT_FILES = r"bench/(rows/straight|fresh)\.py"

SYNC = "SQLite: COMMIT, with the sync of the WAL"
STATEMENTS = "SQLite: the other statements"
OPENING = "opening the store"
FILES = "checking that the files are still ours"
HASHES = "hashes, header, link"
ENCODING = "encoding and compressing, decoding and inflating"
VALIDATION = "validation, and the live object"
DRAFT = "the draft: proxies and their recording"
SNAPSHOTS = "snapshots"
WRITING = "the committer: leading and notifying"
STATE = "the edit block and the working copy"
ENGINE = "the engine: place, arguments, record, outcome"

ROOMS: Sequence[Room] = (
    Room(SYNC, r"sqlite/writer", "_transact", "COMMIT"),
    Room(SYNC, r"sqlite/(writer|housekeeper)", "wal_grew"),
    Room(FILES, r"sqlite/(connection|files)", "check|_identity|of$"),
    Room(OPENING, r"sqlite/(connection|upgrade|closing|housekeeper|sockets)|perdure/store\.py"),
    Room(STATEMENTS, r"storage/sqlite/|apsw"),
    Room(ENCODING, r"core/format/envelope", "^(seal|_inflate|_tools)$"),
    Room(HASHES, r"core/format/(chain|envelope)|hashlib"),
    Room(HASHES, r"storage/log/snapshots", "sealed$"),
    Room(ENCODING, r"core/\w+/(codec|dictionary)"),
    Room(SNAPSHOTS, r"storage/log/snapshots|state/snapshot_"),
    Room(DRAFT, r"core/(draft/|live/ground|values/shifted)"),
    Room(
        VALIDATION,
        r"core/(live|schema|types)/|pydantic|state/live_object",
    ),
    Room(ENCODING, r"core/values/|perdure/delta"),
    Room(WRITING, r"storage/"),
    Room(STATE, r"perdure/(state/|agents|model)|core/|bench/workplace"),
    Room(ENGINE, r"perdure/engine/"),
    Room(SYNC, STRAIGHT_FILES, text='"COMMIT"'),
    Room(STATEMENTS, STRAIGHT_FILES, text=r"database\.|connect\("),
    Room(FILES, STRAIGHT_FILES, text=r"os\.stat|identities"),
    Room(ENCODING, STRAIGHT_FILES, text=r"payload =|_encode|decode"),
    Room(HASHES, STRAIGHT_FILES, text=r"sha256|os\.urandom|header|previous"),
    Room(VALIDATION, STRAIGHT_FILES, text=r"validate"),
)


def room_of(stack: Sequence[Frame]) -> str:
    """The room of a sample's stack, outermost frame first."""
    for frame in reversed(stack):
        for room in ROOMS:
            if room.has(frame):
                return room.name
    return REST
