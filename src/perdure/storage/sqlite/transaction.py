"""A transaction outside the log: committed at the end of its block, else rolled back."""

from __future__ import annotations

from collections.abc import Callable
from sys import _getframe
from typing import TypeVar

import apsw

from perdure.errors import StoreUnavailable
from perdure.storage.sqlite.absent import Find
from perdure.storage.sqlite.faults import FAILED
from perdure.storage.sqlite.writer import Writer, roll_back

T = TypeVar("T")


class Transaction:
    """Context manager, inside of `Alone`: its transaction is durable when it ends.

    Raises:
        StoreUnavailable, Corrupt: it may have happened; its statements may be run again.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def __enter__(self) -> apsw.Connection:
        try:
            self._connection = self._writer.begin()
        except FAILED as error:
            raise self._writer.failed(error) from error
        return self._connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            try:
                if error is None:
                    self._writer.commit(self._connection)
            finally:
                roll_back(self._connection)
        except FAILED as failed:
            raise self._writer.failed(failed) from failed
        if isinstance(error, FAILED):
            raise self._writer.failed(error) from error


class Alone:
    """Context manager: holds the writer's lock, and leaves no transaction open. For a plain
    function's block, whose frame holds the lock (system/locks.py).

    An exception may come where `Transaction` begins to end. So one lies around the other: a single
    exception can only skip one of the two ends.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer, self._lock = writer, writer.lock

    def __enter__(self) -> None:
        self._lock.take(_getframe(1))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._writer.drop_transaction()
        finally:
            self._lock.give_back(_getframe(1))


def settled(writer: Writer, work: Callable[[apsw.Connection], T], find: Find = lambda db: db) -> T:
    """Runs, inside of `Alone`, a `Transaction` whose outcome is known in the end.

    A failed COMMIT may have happened: `work` is then called again, in a reopened file, and finds by
    itself what it did before. If that fails, `find` tells whether it is there; by default that is
    unknown.

    Raises:
        StoreUnavailable: it was not done; or "unknown", if even that cannot be determined.
    """
    committing = False
    try:
        with Transaction(writer) as db:
            result = work(db)
            committing = True
        return result
    except StoreUnavailable as problem:
        if not committing:
            raise
        try:
            with Transaction(writer) as db:
                result = work(db)
        except StoreUnavailable as again:
            raise writer.judge(problem, find)[0] from again
        return result
