"""Proofs about a file with wrong page checksums, made without them: for `perdure.repair`.

Nothing here writes to it. The connections also read pages with wrong checksums.
"""

from __future__ import annotations

import re
from typing import Any

import apsw
from msgspec import Struct

from perdure.core.format import chain
from perdure.errors import Corrupt
from perdure.storage.log.way_back import PUT_BACK
from perdure.storage.sqlite import wal_base
from perdure.storage.sqlite.closing import make_standings
from perdure.storage.sqlite.faults import RESTORE
from perdure.storage.sqlite.statements import migrations

_OF_AN_INDEX = re.compile(
    r"row \d+ (missing from|values differ from) index |wrong # of entries in index |"
    r"non-unique entry in index |rowid not at end-of-record for row \d+ of index "
)
"""The findings of `integrity_check` if a table and its index differ, and both can be read.
(https://sqlite.org/pragma.html#pragma_integrity_check)"""

_TOLD_MAX = 20
_FOUND_MAX = 10_000


def differing_indexes(db: apsw.Connection, path: str) -> bool:
    """Returns True if look-ups find other rows than a scan of the tables does, and nothing else is
    wrong.

    Raises:
        BrokenTreeError: a b-tree itself is damaged: its missing rows are unknown.
    """
    found = [str(row[0]) for row in db.execute(f"PRAGMA integrity_check({_FOUND_MAX})")]
    if found == ["ok"]:
        return False
    if broken := [line for line in found if not _OF_AN_INDEX.match(line)]:
        raise BrokenTreeError(broken, path)
    return True


class BrokenTreeError(Corrupt):
    """A b-tree is damaged. `pages`: the numbers of pages that may be to blame."""

    def __init__(self, found: list[str], path: str) -> None:
        super().__init__("; ".join(found[:_TOLD_MAX]), target=f"store {path}", hint=RESTORE)
        self.pages = sorted({int(number) for one in found for number in _PAGE.findall(one)})


_PAGE = re.compile(r"[Pp]age (\d+)")


class DoubtfulPages(Struct, frozen=True):
    """Tables with a page that fails its checksum in the main file.

    Attributes:
        commits: such pages with commits; None if there are too many to keep.
        keyed: the numbers of agents that have keys, if any keys are on such a page.
    """

    tables: frozenset[str]
    commits: tuple[bytes, ...] | None = ()
    keyed: frozenset[int] = frozenset()

    def may_hold(self, header: bytes) -> bool:
        """True if part of a commit's header may be on such a page."""
        if self.commits is None:
            return True
        ends = header[:_END], header[-_END:]
        return any(end in page for page in self.commits for end in ends)


_END = 48
"""Bytes of a header that are looked for; SQLite keeps so many of a row on one page at least."""

_KEPT_MAX = 256


def find_doubtful(db: apsw.Connection, path: str) -> DoubtfulPages:
    """Returns what is in doubt of a file. Indexes never are: each can be compared with
    its table, and rebuilt from it."""
    failing = _failing_pages(db, path)
    if not failing:
        return DoubtfulPages(frozenset())
    tables = {str(name) for (name,) in db.execute("SELECT tbl_name FROM sqlite_schema")}
    tables.add("sqlite_schema")
    found: set[str] = set()
    commits: list[bytes] = []
    for name, number in db.execute("SELECT name, pageno FROM dbstat"):
        if number in failing and name in tables:
            found.add(str(name))
            if name == "commits":
                commits.append(failing[number])
    kept = len(failing) <= _KEPT_MAX
    keyed: set[int] = set()
    if "keys" in found:
        keyed = {int(no) for (no,) in db.execute("SELECT DISTINCT agent_no FROM keys")}
    return DoubtfulPages(frozenset(found), tuple(commits) if kept else None, frozenset(keyed))


def _failing_pages(db: apsw.Connection, path: str) -> dict[int, bytes]:
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    size = int(db.pragma("page_size"))
    failing: dict[int, bytes] = {}
    # Through SQLite's own file layer: closing a plain descriptor would drop our locks.
    file = apsw.VFSFile("unix", path, flags)
    try:
        for number in range(1, file.xFileSize() // size + 1):
            page = file.xRead(size, (number - 1) * size)
            right = db.execute("SELECT verify_checksum(?)", (page,)).get
            if not right and not _never_had_one(page):
                failing[number] = page if len(failing) <= _KEPT_MAX else b""
    finally:
        file.xClose()
    return failing


def _never_had_one(page: bytes) -> bool:
    """True if another SQLite moved a new page: the place of its checksum is empty. Not if its whole
    last sector is empty: a disk leaves that when it loses a write."""
    return not any(page[-_SUM:]) and any(page[-_SECTOR:])


_SUM = 8
_SECTOR = 512


def check_what_nothing_proves(db: apsw.Connection, path: str, doubtful: frozenset[str]) -> None:
    """Refuses a repair that would hide something that no log records.

    Raises:
        Corrupt: the schema differs, or may differ; rows belong to no agent; or the store's standing
            is on a page that fails its checksum.
    """
    if "sqlite_schema" in doubtful:
        _check_schema(db, path)
    check_list(db, path)
    if "standings" in doubtful and db.execute("SELECT 1 FROM standings").get:
        raise _refusal("the page with its standing fails its checksum", path)


def check_list(db: apsw.Connection, path: str) -> None:
    """Checks the list of agents: each that has rows is on it, and lives or is deleted. A page from
    before an agent began, as a disk leaves it after a lost write, has a valid checksum.

    Raises:
        Corrupt: the list differs.
    """
    if orphans := unlisted(db, path):
        raise Corrupt(
            f"rows belong to agents that are not listed, of the numbers {_numbers(orphans)}",
            target=f"store {path}",
            hint=f"{chain.HINT}. {PUT_BACK}",
        )
    rows: Any = db.execute("SELECT no FROM agents WHERE deleted NOT IN (0, 1, 2)")
    if odd := [int(no) for (no,) in rows]:
        raise _refusal(f"neither living nor deleted: agents of the numbers {_numbers(odd)}", path)


def unlisted(db: apsw.Connection, path: str) -> list[int]:
    """Returns the numbers of agents that have rows and are not listed."""
    rows: Any = db.execute(
        "SELECT id >> 36 FROM commits UNION SELECT agent_no FROM refs UNION SELECT agent_no "
        "FROM keys UNION SELECT id >> 36 FROM snapshots EXCEPT SELECT no FROM agents"
    )
    return [int(no) for (no,) in rows]


def _numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:_TOLD_MAX]))


def _check_schema(db: apsw.Connection, path: str) -> None:
    """Compares the schema with a new one."""
    made, known = schemas(int(db.pragma("user_version")))
    there = _schema(db)
    if not made <= there <= known:
        names = sorted(str(one[1]) for one in (made - there) | (there - known))
        raise _refusal(f"its schema differs, in {', '.join(names)}", path)


def schemas(version: int) -> tuple[set[tuple[object, ...]], set[tuple[object, ...]]]:
    """Returns all rows but their page numbers that the schema of a format has, and that it may
    have."""
    fresh = apsw.Connection(":memory:")
    try:
        for number in sorted(migrations()):
            if number <= version:
                fresh.execute(migrations()[number])
        made = _schema(fresh)
        if version == max(migrations()):  # no earlier format had any
            make_standings(fresh)
            wal_base.make(fresh)
        return made, _schema(fresh)
    finally:
        fresh.close()


def _schema(db: apsw.Connection) -> set[tuple[object, ...]]:
    return set(db.execute("SELECT type, name, tbl_name, sql FROM main.sqlite_schema"))


def _refusal(problem: str, path: str) -> Corrupt:
    return Corrupt(problem, target=f"store {path}", hint=chain.HINT)
