"""What can be said of a file whose page checksums are wrong, without them: for `perdure.repair`.

Nothing here writes to it. Each connection is one that reads pages whose checksum is wrong, too.
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
"""What `integrity_check` says where a table and its index differ, and both can be walked through.
(https://sqlite.org/pragma.html#pragma_integrity_check)"""

_TOLD_MAX = 20
_FOUND_MAX = 10_000


def differing_indexes(db: apsw.Connection, path: str) -> bool:
    """Whether look-ups find other rows than a scan of the tables does, and that is all.

    Raises:
        Corrupt: a b-tree itself is damaged: nobody can say which of its rows are missing.
    """
    found = [str(row[0]) for row in db.execute(f"PRAGMA integrity_check({_FOUND_MAX})")]
    if found == ["ok"]:
        return False
    if broken := [line for line in found if not _OF_AN_INDEX.match(line)]:
        raise Corrupt("; ".join(broken[:_TOLD_MAX]), target=f"store {path}", hint=RESTORE)
    return True


class Doubtful(Struct, frozen=True):
    """Tables with a page that fails its checksum in the main file.

    Attributes:
        commits: such pages with commits; None: more than are kept.
        keyed: the numbers of agents that have keys, where those of anybody are on such a page.
    """

    tables: frozenset[str]
    commits: tuple[bytes, ...] | None = ()
    keyed: frozenset[int] = frozenset()

    def may_hold(self, header: bytes) -> bool:
        """Whether some of the header of a commit may be on such a page."""
        if self.commits is None:
            return True
        ends = header[:_END], header[-_END:]
        return any(end in page for page in self.commits for end in ends)


_END = 48
"""Bytes of a header that are looked for; SQLite keeps so many of a row on one page at least."""

_KEPT_MAX = 256


def find_doubtful(db: apsw.Connection, path: str) -> Doubtful:
    """See `Doubtful`. Of an index nothing is in doubt: it can be compared with its table, and be
    made anew from that."""
    failing = _failing_pages(db, path)
    if not failing:
        return Doubtful(frozenset())
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
    return Doubtful(frozenset(found), tuple(commits) if kept else None, frozenset(keyed))


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
    """Whether another SQLite moved a page that was new: where the checksum goes it is empty. Not
    so where all of its last sector is: that is what a disk leaves of a write that it lost."""
    return not any(page[-_SUM:]) and any(page[-_SECTOR:])


_SUM = 8
_SECTOR = 512


def check_what_nothing_proves(db: apsw.Connection, path: str, doubtful: frozenset[str]) -> None:
    """Refuse what a repair would hide, as no log says it.

    Raises:
        Corrupt: the schema is another one, or may be; rows belong to no agent; or who may write to
            the store stands on a page that fails its checksum.
    """
    if "sqlite_schema" in doubtful:
        _check_schema(db, path)
    check_list(db, path)
    if "standings" in doubtful and db.execute("SELECT 1 FROM standings").get:
        raise _refusal("a page that says who may write to it fails its checksum", path)


def check_list(db: apsw.Connection, path: str) -> None:
    """Of the list of agents: each that has rows is on it, and lives or is deleted. A page that is
    as it was before an agent began, as a disk leaves it that lost a write, has a right checksum.

    Raises:
        Corrupt: it is another list.
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
    """The numbers of agents that have rows and are not listed."""
    rows: Any = db.execute(
        "SELECT id >> 36 FROM commits UNION SELECT agent_no FROM refs UNION SELECT agent_no "
        "FROM keys UNION SELECT id >> 36 FROM snapshots EXCEPT SELECT no FROM agents"
    )
    return [int(no) for (no,) in rows]


def _numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:_TOLD_MAX]))


def _check_schema(db: apsw.Connection, path: str) -> None:
    """Against one that is made anew."""
    fresh = apsw.Connection(":memory:")
    try:
        version = int(db.pragma("user_version"))
        for number in sorted(migrations()):
            if number <= version:
                fresh.execute(migrations()[number])
        made = _schema(fresh)
        if version == max(migrations()):  # no earlier format had any
            make_standings(fresh)
            wal_base.make(fresh)
        known = _schema(fresh)
    finally:
        fresh.close()
    there = _schema(db)
    if not made <= there <= known:
        names = sorted(str(one[1]) for one in (made - there) | (there - known))
        raise _refusal(f"its schema is another one, of {', '.join(names)}", path)


def _schema(db: apsw.Connection) -> set[tuple[object, ...]]:
    return set(db.execute("SELECT type, name, tbl_name, sql FROM main.sqlite_schema"))


def _refusal(problem: str, path: str) -> Corrupt:
    return Corrupt(problem, target=f"store {path}", hint=chain.HINT)
