"""Transactions of SQL databases, by any driver with the interface of Python's DB-API (PEP 249)."""

from __future__ import annotations

import re
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from perdure.core.arguments.checks import function as check_function
from perdure.core.arguments.checks import one_of
from perdure.core.arguments.names import check_words, shown
from perdure.errors import PerdureError

STYLES = {"qmark": ("?", "?"), "format": ("%s", "%s"), "pyformat": ("%s", "%s")}
STYLES["numeric"] = (":1", ":2")

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


def sql_transaction(
    connect: Callable[[], Any],
    *,
    table: str = "perdure_outcomes",
    paramstyle: str | None = None,
) -> Callable[[], SqlTransaction]:
    """Returns an opener for ``@perdure.tool(transaction=…)``: each call of the tool has a
    transaction of this database, ``perdure.transaction().connection``, and takes effect exactly
    once.

    The outcome of each call is stored along with its effect, in a table that is made at the first
    call. Rows of runs that have ended may be removed.

    Args:
        connect: makes a connection, of any driver with Python's DB-API, such as ``lambda:
            sqlite3.connect("shop.db")`` or ``lambda: psycopg.connect(url)``. It begins transactions
            by itself, as those do. It is closed with the transaction.
        table: its name, with a schema if need be.
        paramstyle: of the driver; default: as its module says.

    Raises:
        TypeError, ValueError: `connect` cannot be called, the name of the table has other
            characters than those of plain names, or the style is unknown.
    """
    check_function(connect, "connect=")
    table = check_words(table, "table=")
    if not _TABLE.fullmatch(table):
        raise ValueError(f"table={shown(table)}: a plain name, or two of them with a dot between")
    if paramstyle is not None:
        paramstyle = one_of(paramstyle, "paramstyle=", tuple(STYLES))
    return lambda: SqlTransaction(connect(), table, paramstyle)


class SqlTransaction:
    """The transaction of one tool call; from `sql_transaction`.

    Attributes:
        connection: for the tool's body, which neither commits nor rolls back.
    """

    def __init__(self, connection: Any, table: str, paramstyle: str | None) -> None:
        self.connection = connection
        self._table = table
        self._key = ""
        style = paramstyle or _style_of(connection)
        self._first, self._second = STYLES.get(style, STYLES["qmark"])

    def begin(self, key: str) -> bytes | None:
        """Claims the key; see `Transaction`.

        Raises:
            PerdureError: the connection commits each statement by itself, or the body of an earlier
                call has committed by itself.
        """
        self._key = key
        try:
            found = self._find()
        except Exception:
            self.connection.rollback()
            self._make_table()
            found = self._find()
        if found is not None:
            return found
        try:
            # Until this transaction ends, another one with the key waits here.
            self._execute(
                f"INSERT INTO {self._table} (call_key, outcome) "
                f"VALUES ({self._first}, {self._second})",
                key,
                "",
            )
        except Exception:
            self.connection.rollback()
            if (found := self._find()) is None:
                raise
            return found
        self._check_holds()
        return None

    def commit(self, outcome: bytes) -> None:
        stored = b64encode(outcome).decode()
        self._execute(
            f"UPDATE {self._table} SET outcome = {self._first} WHERE call_key = {self._second}",
            stored,
            self._key,
        )
        self.connection.commit()
        with suppress(Exception):  # it is committed, whatever this says
            self.connection.close()

    def rollback(self) -> None:
        try:
            self.connection.rollback()
        finally:
            self.connection.close()

    def _find(self) -> bytes | None:
        cursor = self._execute(
            f"SELECT outcome FROM {self._table} WHERE call_key = {self._first}", self._key
        )
        row = cursor.fetchone()
        if row is None:
            return None
        if not row[0]:
            raise PerdureError(
                "its transaction was committed before its outcome was stored",
                target=f"call {self._key}",
                hint="the tool's body must not commit: the transaction is committed behind it. "
                "Look what this call did, and settle it",
            )
        return b64decode(row[0])

    def _make_table(self) -> None:
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {self._table} "
            "(call_key VARCHAR(64) PRIMARY KEY, outcome TEXT NOT NULL)"
        )
        self.connection.commit()

    def _check_holds(self) -> None:
        """Refuses a connection without transactions: the claim is committed already."""
        commits = getattr(self.connection, "autocommit", None) is True
        if not commits and getattr(self.connection, "in_transaction", True) is not False:
            return
        self._execute(f"DELETE FROM {self._table} WHERE call_key = {self._first}", self._key)
        raise PerdureError(
            "its connection commits each statement by itself",
            target=f"table {self._table}",
            hint="connect without autocommit (sqlite3: without isolation_level=None)",
        )

    def _execute(self, sql: str, *values: str) -> Any:
        cursor = self.connection.cursor()
        cursor.execute(sql, values)
        return cursor


def _style_of(connection: Any) -> str:
    for one in type(connection).__mro__:
        module = sys.modules.get(one.__module__.partition(".")[0])
        if (style := getattr(module, "paramstyle", None)) is not None:
            return str(style)
    return "qmark"
