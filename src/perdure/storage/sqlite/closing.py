"""Keeps writers out of a store that follows another, or of an agent that has moved.

Triggers do this. They are in the file only while something is closed: so an ordinary commit pays
nothing, and every process is refused in its own transaction, also with earlier versions of the
program.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from perdure.missing import Missing
from perdure.storage.answers import Standing
from perdure.storage.appending import Append
from perdure.storage.sqlite.rows import do, run
from perdure.storage.standing import ClosedError, check_stands, closed_error

SHIPPING = -1
"""The row that lets a transaction through; it is taken out before that ends."""

_CLOSING = ("close_log", "close_heads", "close_names", "close_mail")


def find(db: apsw.Connection, no: int) -> Standing | None:
    """See `Backend.standing`."""
    if not run(db, "has_standings"):
        return None
    rows = run(db, "find_standing", (no,))
    return Standing(bool(rows[0][0]), rows[0][1]) if rows else None


def stand(
    db: apsw.Connection, standing: Standing | None, no: int, after: Standing | Missing | None
) -> None:
    """See `Backend.stand`; in the open transaction."""
    check_stands(find(db, 0), after, standing, no, f"sqlite:///{db.filename}")
    put(db, standing, no)


def put(db: apsw.Connection, standing: Standing | None, no: int) -> None:
    """Sets a standing, whatever was before."""
    if standing is None:
        if not run(db, "has_standings"):
            return
        run(db, *(("end_standing", (no,)) if no else ("end_standings",)))
    else:
        run(db, "make_standings")
        do(db, "put_standing", (no, standing.closed, standing.why))
    if run(db, "any_closed"):
        for name in _CLOSING:
            run(db, name)
    else:
        run(db, "reopen")


def make_standings(db: apsw.Connection) -> None:
    """Adds everything that this file adds to a store's schema."""
    for name in ("make_standings", *_CLOSING):
        run(db, name)


@contextmanager
def shipping(db: apsw.Connection) -> Iterator[None]:
    """Allows the block's writes although the store is closed."""
    if not run(db, "has_standings"):
        yield
        return
    do(db, "put_standing", (SHIPPING, 0, ""))
    yield  # where it raises, the transaction is rolled back, and this row with it
    do(db, "end_standing", (SHIPPING,))


def find_closed(db: apsw.Connection, no: int, agent: str = "") -> ClosedError | None:
    """Returns the refusal for a write to an agent, or, with 0, to the store; None if it is open."""
    own = find(db, no) if no else None
    standing = own or find(db, 0)
    if standing is None or not standing.closed:
        return None
    target = f"agent {agent!r}" if own and agent else f"store {db.filename}"
    return closed_error(standing, target)


def closed(db: apsw.Connection, item: Append, error: apsw.ConstraintError) -> ClosedError:
    """Returns the refusal of a commit that a trigger refused; raises any other error again."""
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_CONSTRAINT_TRIGGER:
        found = find_closed(db, item.no or 0, item.agent)
        if found is not None:
            return found
    raise error


def check_takes(db: apsw.Connection, agent: str) -> None:
    """Checks that the store takes messages to an agent; as the trigger does.

    Raises:
        ClosedError: it does not.
    """
    if run(db, "has_standings") and run(db, "find_closed_to", (agent,)):
        found = find_closed(db, 0)
        assert found is not None
        raise found


@contextmanager
def unless_closed(db: apsw.Connection, no: int = 0) -> Iterator[None]:
    """Runs a statement that a trigger may refuse.

    Raises:
        ClosedError: it was refused.
    """
    try:
        yield
    except apsw.ConstraintError as error:
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_CONSTRAINT_TRIGGER:
            found = find_closed(db, no, _name(db, no))
            if found is not None:
                raise found from None
        raise


def _name(db: apsw.Connection, no: int) -> str:
    return next((row[1] for row in run(db, "list_incarnations") if row[0] == no), "") if no else ""
