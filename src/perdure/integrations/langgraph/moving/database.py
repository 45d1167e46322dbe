"""A PostgreSQL database that is only read: how it is reached, its snapshots, and its errors.

Nothing of a password is ever shown: not in the database's name, and not in an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.rows import DictRow, dict_row, tuple_row

from perdure.errors import Corrupt, NotAStore, NotFound, PerdureError, StoreUnavailable
from perdure.system.urls import read_postgres, shown

DEFAULTS: dict[str, Any] = {
    "application_name": "perdure import-langgraph",
    "connect_timeout": 10,
    # A host that is gone without a word is noticed after half a minute, not after two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
_SECRETS = ("password", "sslpassword")


class Database:
    """One connection that writes nothing. It goes from snapshot to snapshot (see `begin`).

    Args:
        url: in libpq's form; ``schema=name`` in its query names the schema of the tables.

    Attributes:
        shown: the URL without a password.
        connection: with rows as dicts, as LangGraph's saver expects.

    Raises:
        ValueError: libpq cannot read the URL.
        NotFound: there is no such database. StoreUnavailable: the server refuses the connection.
    """

    def __init__(self, url: str) -> None:
        self.shown = shown(url)
        conninfo, own = read_postgres(url, ("schema",))
        self._schema = own.get("schema")
        secrets = [str(conninfo[name]) for name in _SECRETS if conninfo.get(name)]
        self._hidden = [word for secret in secrets for word in (secret, quote(secret, ""))]
        try:
            self.connection: psycopg.Connection[DictRow] = psycopg.Connection.connect(
                **{**DEFAULTS, **conninfo},
                client_encoding="UTF8",
                row_factory=dict_row,
                prepare_threshold=None,  # a pooler between may give each transaction another server
            )
        except (psycopg.Error, OSError) as error:
            raise self._refused(error) from None  # its words may hold what must not be shown
        self.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self.connection.read_only = True

    def close(self) -> None:
        self.connection.close()

    def begin(self) -> None:
        """Ends the current snapshot, and takes a new one.

        It locks out only who would drop or alter the tables. Row-level security is off, so that
        rows which this user may not see are an error, and no thread comes over in parts.
        """
        self.connection.rollback()
        local = {"row_security": "off", "idle_in_transaction_session_timeout": "0"}
        if self._schema is not None:
            local["search_path"] = '"' + self._schema.replace('"', '""') + '"'
        for name, value in local.items():  # for this transaction: a pooler's server is others', too
            self.connection.execute("SELECT set_config(%s, %s, true)", (name, value))

    def rows(self, statement: str, *values: Any) -> Sequence[Any]:
        with self.connection.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(statement.encode(), values or None).fetchall()

    # -- errors ----------------------------------------------------------------------------

    @contextmanager
    def said(self) -> Iterator[None]:
        """PostgreSQL's errors as those of the tree."""
        try:
            yield
        except psycopg.Error as error:
            raise self._error(error) from error

    def _words(self, error: BaseException) -> str:
        text = " ".join(str(error).split())
        for secret in self._hidden:
            text = text.replace(secret, "***")
        return text

    def _refused(self, error: BaseException) -> PerdureError:
        """libpq keeps the server's code to itself while it connects; its words must do."""
        words, target = self._words(error), f"database {self.shown}"
        if re.search(r'database ".*" does not exist', words):
            return NotFound(f"there is no such database ({words})", target=target)
        for part, problem, hint in _REFUSALS:
            if re.search(part, words):
                return StoreUnavailable(f"{problem} ({words})", target=target, hint=hint)
        raise AssertionError("the last one fits all")

    def _error(self, error: psycopg.Error) -> PerdureError:
        words, target = self._words(error), f"database {self.shown}"
        state = error.sqlstate or ""
        if state == "42501":
            return StoreUnavailable(
                f"permission denied ({words})",
                target=target,
                hint="GRANT SELECT on the four tables whose names begin with checkpoint to this "
                "user; where row-level security is on, BYPASSRLS too, or use the tables' owner",
            )
        if state[:2] in ("42", "3F"):
            return NotAStore(
                f"its tables are not those of LangGraph's PostgresSaver ({words})", target=target
            )
        if state[:2] in ("22", "XX"):
            return Corrupt(f"cannot be read: {words}", target=target)
        problem, hint = _UNAVAILABLE.get(state[:2], ("the database refused", "see its log"))
        return StoreUnavailable(f"{problem} ({words})", target=target, hint=hint)


_REFUSALS = (
    (
        r"authentication failed|no password supplied",
        "wrong user or password",
        "check the URL's user and password, or ~/.pgpass",
    ),
    (
        r'role ".*" does not exist|no pg_hba.conf entry|not permitted to log in|permission denied',
        "this user may not log in",
        "check the URL, and the server's pg_hba.conf",
    ),
    (r"too many|connection slots", "the server is out of connections", "try again later"),
    ("", "the server cannot be reached", "check host, port and network, and try again"),
)

_AGAIN = "run the same command again: what came over stays"
_UNAVAILABLE = {
    "": ("the connection was lost", _AGAIN),
    "08": ("the connection was lost", _AGAIN),
    "40": ("the server ended the snapshot, for its replication or for others", _AGAIN),
    "53": ("the server is out of resources", "free disk, memory or connections, and try again"),
    "55": ("a lock could not be had in time", _AGAIN),
    "57": (
        "the server or an operator cancelled",
        "if it was statement_timeout, raise it for this user; " + _AGAIN,
    ),
    "58": ("the server has an input/output error", "see its log; the disk may be failing"),
}
