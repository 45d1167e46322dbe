"""The feed over all agents: where it continues, and how it never skips a late commit.

Sequence numbers show when a row was written, not when it could be seen: a reader that goes by them
skips late commits. So each commit keeps the transaction that wrote it, and the feed yields only
those before the oldest one that still runs: no new one can come before them.

One more thing is needed. A transaction may begin early, wait, and write to a log after one that
began later has ended: its number is the smaller one, its commit the later one. So a commit keeps
the greatest of its own transaction and of the commit before it (`append_1`): that grows along each
log, and a row is still not given before its transaction has ended.

The feed's cursor names the store, the last commit given with its transaction, and a bit of its
header, so that a cursor of another store is detected, or of one that was since restored from an
older copy, or loaded into another server, which counts transactions anew. Messages work the same
way, by their transactions, and a mark of the last message: so their numbers grow within each
answer, but not across answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

from perdure.storage.answers import Mail
from perdure.storage.cursors import foreign_cursor, is_marked, mark_of, read_mark
from perdure.storage.port import Fed, Feed, StoredCommit
from perdure.storage.postgres.connection import Connection
from perdure.storage.postgres.rows import from_text, text, to_message

_FEED = re.compile(r"(\w+)\.([0-9]{1,18})\.([0-9]{1,18})\.([0-9]{1,18})\.(\w+)")
_MAIL = re.compile(r"(\w+)\.([0-9]{1,18})\.([0-9]{1,18})(?:\.([\w=-]+))?")


def read_feed(
    db: Connection,
    sql: Mapping[str, str],
    statement: str,
    store: str,
    url: str,
    cursor: str,
    limit: int,
) -> Feed:
    """See `Backend.feed`. `store` is the store's random id."""
    behind = _place(db, sql, store, url, cursor) if cursor else ("0", 0, 0)
    rows = db.cursor(binary=True).execute(sql[statement], (*behind, limit)).fetchall()
    entries = [
        Fed(no, from_text(agent), incarnation, StoredCommit(*commit))
        for _, no, agent, incarnation, *commit in rows
    ]
    if not rows:
        return Feed([], cursor)
    last = entries[-1]
    mark = _mark(last.commit.header)
    return Feed(entries, f"{store}.{rows[-1][0]}.{last.no}.{last.commit.seq}.{mark}")


def _place(
    db: Connection, sql: Mapping[str, str], store: str, url: str, cursor: str
) -> tuple[str, int, int]:
    found = _FEED.fullmatch(cursor)
    if found is not None and found[1] == store:
        no, seq = int(found[3]), int(found[4])
        row = db.cursor(binary=True).execute(sql["find_header"], (no, seq)).fetchone()
        same = row is None or _mark(row[0]) == found[5]
        if same and row is not None and row[1] == found[2]:
            return found[2], no, seq
        # A purge moves the last commit, and removes all others.
        if (
            same
            and db.execute(sql["is_purged"], (no,)).fetchone()
            and _has_begun(db, sql, found[2])
        ):
            return found[2], no, seq
    raise foreign_cursor(url)


def _mark(header: bytes) -> str:
    return sha256(header).hexdigest()[:16]


def read_mail(
    db: Connection,
    sql: Mapping[str, str],
    statement: str,
    store: str,
    url: str,
    cursor: str,
    limit: int,
) -> Mail:
    """See `Backend.mail`."""
    behind = _place_of_mail(db, sql, store, url, cursor) if cursor else ("0", 0)
    rows = db.cursor(binary=True).execute(sql[statement], (*behind, limit)).fetchall()
    last = 0 if len(rows) == limit else _last_number(db, sql)
    if not rows:
        return Mail([], cursor, last)
    messages = [to_message(row[:-1]) for row in rows]
    cursor = f"{store}.{rows[-1][-1]}.{messages[-1].no}.{mark_of(messages[-1])}"
    return Mail(sorted(messages, key=lambda one: one.no), cursor, last)


def _place_of_mail(
    db: Connection, sql: Mapping[str, str], store: str, url: str, cursor: str
) -> tuple[str, int]:
    """Returns the place of the message that a cursor names. Its transaction says too little: a
    standby that took over without the message counts on from there, and soon past it."""
    found = _MAIL.fullmatch(cursor)
    if found is None or found[1] != store or not _has_begun(db, sql, found[2]):
        raise foreign_cursor(url)
    tx, no = found[2], int(found[3])
    if found[4]:  # cursors of earlier versions have none
        mark = read_mark(found[4], url)
        row = db.cursor(binary=True).execute(sql["find_mail"], (tx, no)).fetchone()
        if row is None:
            life = text(mark.agent), mark.incarnation
            known = db.execute(sql["is_over"], life).fetchone() is not None
        else:  # shipped once more, it is in a later transaction
            known = row[-1] and is_marked(to_message(row[:-1]), mark)
        if not known:
            raise foreign_cursor(url)
    return tx, no


def _last_number(db: Connection, sql: Mapping[str, str]) -> int:
    row = db.execute(sql["last_number"]).fetchone()
    return int(row[0]) if row else 0


def _has_begun(db: Connection, sql: Mapping[str, str], tx: str) -> bool:
    row = db.execute(sql["has_begun"], (tx,)).fetchone()
    return bool(row and row[0])
