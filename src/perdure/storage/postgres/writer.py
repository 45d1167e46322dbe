"""Batches of commits: one transaction and one round trip, and recovery of a lost answer.

A batch goes out as one statement, which is its own transaction: what it will lock, all its commits,
and the COMMIT. If the connection is lost before the answer, it is unknown whether that was done.
Then each commit is looked up on a new connection (`landed_1`, which waits for what the lost one may
still be doing), and written again if it is not there (I1).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from sys import _getframe
from typing import Any, TypeVar

import psycopg
from msgspec.structs import replace

from perdure.errors import PerdureError, StoreUnavailable
from perdure.storage.appending import Append, Appended, Outcome, Refused
from perdure.storage.disk_waits import DiskWaits
from perdure.storage.late_flush import LateFlush
from perdure.storage.lost_commits import LostCommitsError
from perdure.storage.postgres import plain_commit
from perdure.storage.postgres.address import Address
from perdure.storage.postgres.append import TYPES, outcome_of, values_of_all
from perdure.storage.postgres.awake import Haste
from perdure.storage.postgres.connection import Connection
from perdure.storage.postgres.faults import (
    AGAIN,
    DeadlineError,
    InDoubtError,
    is_lost,
    translate,
)
from perdure.storage.postgres.pool import BACKOFF_MAX_S, BACKOFF_S, ConnectionPool
from perdure.storage.postgres.rows import text
from perdure.storage.postgres.statements import statements
from perdure.storage.postgres.wire import to_number, truth
from perdure.storage.postgres.witness import Witness
from perdure.storage.unknown_outcome import unknown

T = TypeVar("T")

AT_ONCE_MAX = 500
"""Commits in one transaction: a longer batch goes in several."""

FOLLOWERS_MAX = 8
"""Of one commit, that go over the wire with it."""

AGAIN_MAX = 8
"""The most times that a transaction is repeated after a deadlock or a serialization failure."""


class Writer:
    """See the module."""

    def __init__(
        self,
        address: Address,
        pool: ConnectionPool,
        waits: DiskWaits,
        now: Callable[[], int],
        witness: Witness,
    ) -> None:
        self._address = address
        self._pool = pool
        self._waits = waits
        self._late = LateFlush(waits.flush_after_s, self.flush)
        self._now = now
        self._witness = witness
        self._sql = statements(address.schema)
        self._haste = Haste(min(address.awake_s, address.deadline_s))

    # -- commits ---------------------------------------------------------------------------

    def append(self, batch: Sequence[Append]) -> list[Outcome]:
        """See `Backend.append`."""
        # One order for all processes, so that their batches cannot wait for each other in a ring:
        # first the existing logs, then names of new ones.
        if len(batch) == 1:
            return self._settled(batch)
        order = sorted(range(len(batch)), key=lambda at: _place(batch[at]))
        outcomes: dict[int, Outcome] = {}
        together = [at for at in order if len(batch[at].then) <= FOLLOWERS_MAX]
        for first in range(0, len(together), AT_ONCE_MAX):
            part = together[first : first + AT_ONCE_MAX]
            done = self._settled([batch[at] for at in part])
            outcomes.update(zip(part, done, strict=True))
        for at in order:
            if len(batch[at].then) > FOLLOWERS_MAX:
                outcomes[at] = self._settled([batch[at]])[0]
        return [outcomes[at] for at in range(len(batch))]

    def _settled(self, items: Sequence[Append]) -> list[Outcome]:
        if not items:
            return []
        try:
            return self._transact(items)
        except InDoubtError as doubt:
            return [self._unknown(doubt)] * len(items)
        except UnwritableError as error:
            return [error.reason] if len(items) == 1 else self._settle_each(items, error.reason)
        # Any other exception comes from outside, and something may have been sent: see
        # committer.py.
        except (psycopg.Error, PerdureError, DeadlineError) as error:
            if is_lost(error):
                return self._look_up(items, error)
            if len(items) == 1 or (
                isinstance(error, PerdureError | DeadlineError)
                and not isinstance(error, LostCommitsError)
            ):
                return [translate(error, self._address)] * len(items)
            return self._settle_each(items)

    def _settle_each(
        self, items: Sequence[Append], reason: Exception | None = None
    ) -> list[Outcome]:
        """Settles each alone, because one of them cannot be written: the others succeed."""
        outcomes = [outcome for item in items for outcome in self._settled([item])]
        if reason is not None and not any(isinstance(one, type(reason)) for one in outcomes):
            raise reason  # none of them is to blame
        return outcomes

    def _transact(self, items: Sequence[Append]) -> list[Outcome]:
        durable = self._waits.due(items)
        for tried in range(1, AGAIN_MAX + 1):
            try:
                place, connection = self._pool.take(_getframe())
                try:
                    connection.forget_doubt()
                    outcomes = self._write(connection, items, durable)
                    # For refused commits replication does not matter.
                    if connection.doubt is not None and any(map(_is_in, outcomes)):
                        connection.check_doubt()
                    if durable:
                        self._waits.unsynced = 0
                        self._late.done()
                        self._keep_in_mind(items, outcomes)
                    else:
                        self._late.due()
                except BaseException as error:
                    self._pool.give_back(place, _getframe(), error)
                    raise
                self._pool.give_back(place, _getframe())
                return outcomes
            except AGAIN:
                if tried == AGAIN_MAX:
                    raise
                time.sleep(random.uniform(0, BACKOFF_S))
        raise AssertionError("the last try returns or raises")

    def _write(
        self, connection: Connection, items: Sequence[Append], durable: bool
    ) -> list[Outcome]:
        if self._witness.lost:
            self._witness.check(connection, [item.no for item in items])
        if len(items[0].then) > FOLLOWERS_MAX:
            return [self._write_whole(connection, items[0], self._now())]
        if len(items) == 1 and plain_commit.is_plain(items[0]):
            no = plain_commit.write(
                connection, self._sql["append_plain"], items[0], durable, self._haste
            )
            if no is not None:
                return [Appended(no)]
        _, *arrays = _values_of(items, durable, self._now())
        values = (truth(durable), *arrays)
        answer = connection.call(self._sql["append"], TYPES, values).get_value
        return [
            outcome_of((to_number(answer(at, 0)), answer(at, 1)), item, self._address.shown)
            for at, item in enumerate(items)
        ]

    def _keep_in_mind(self, items: Sequence[Append], outcomes: Sequence[Outcome]) -> None:
        """Notes what a server must not lose; of `group` and `os` it may."""
        for item, outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, Appended):
                last = item.then[-1] if item.then else item
                self._witness.saw(outcome.no, last.seq, last.header)
                if last.riders.holder is not None and last.epoch is not None:
                    self._witness.took(outcome.no, last.branch, last.epoch)

    def _write_whole(self, connection: Connection, item: Append, now: int) -> Outcome:
        """Writes a commit that creates its agent, with the many that follow it: all, or none. Each
        is sent alone: together they may be too big. On an error the connection is closed, which
        ends the transaction (pool.py)."""
        cursor = psycopg.RawCursor(connection)
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        no: int | None = None
        outcome: Outcome = Refused("gone")
        for each in (item, *item.then):
            values = _values_of([replace(each, no=no, then=())], True, now)
            row = cursor.execute(self._sql["append"], values, binary=True).fetchone()
            outcome = outcome_of(row, each, self._address.shown)
            if not isinstance(outcome, Appended):
                break
            no = outcome.no
        connection.execute("COMMIT" if isinstance(outcome, Appended) else "ROLLBACK")
        return outcome

    # -- after a lost connection -----------------------------------------------------------

    def _look_up(self, items: Sequence[Append], error: Exception) -> list[Outcome]:
        self._pool.forget()
        until = time.monotonic() + self._address.deadline_s
        outcomes: list[Outcome] = []
        unknown: StoreUnavailable | None = None
        for item in items:
            # If one could not be looked up, the others cannot: they have waited as long.
            outcome = unknown or self._look_up_one(item, until, error)
            outcomes.append(outcome)
            if isinstance(outcome, StoreUnavailable) and outcome.outcome == "unknown":
                unknown = outcome
        return outcomes

    def _look_up_one(self, item: Append, until: float, error: Exception) -> Outcome:
        pause = BACKOFF_S
        while True:
            try:
                return self._found_or_written(item)
            except LostCommitsError as lost:
                return lost
            except (InDoubtError, PerdureError) as problem:
                return self._unknown(problem)
            except UnwritableError as own:
                return own.reason
            except (psycopg.Error, DeadlineError) as again:
                if not is_lost(again) and not isinstance(again, DeadlineError):
                    return self._unknown(again)
                error = again
            self._pool.forget()
            if time.monotonic() + pause > until:
                return self._unknown(error)
            time.sleep(pause)
            pause = min(pause * 2, BACKOFF_MAX_S)

    def _found_or_written(self, item: Append) -> Outcome:
        no = self._landed(item)
        if no is None:
            outcome = self._transact([item])[0]
            # A first commit has no log to wait at: the lost one may have come in until now.
            if not isinstance(outcome, Refused) or (no := self._landed(item)) is None:
                return outcome
        landed = Appended(no)
        if self._waits.needed([item]):
            self._keep_in_mind([item], [landed])
        return landed

    def _landed(self, item: Append) -> int | None:
        with self._pool.connection() as connection:
            self._witness.check(connection, [item.no])
            connection.forget_doubt()
            durable = self._waits.needed([item])
            values = (durable, text(item.agent), item.no, item.incarnation, item.seq, item.header)
            connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            connection.execute(self._sql["wait_for_branch"], (item.no, text(item.branch)))
            found = connection.execute(self._sql["landed"], values).fetchone()
            connection.execute("COMMIT")
            connection.check_doubt()
        return None if found is None else found[0]

    def _unknown(self, error: BaseException) -> StoreUnavailable:
        return unknown(translate(error, self._address), f"store {self._address.shown}")

    # -- everything else -------------------------------------------------------------------

    def flush(self) -> None:
        """Makes everything acknowledged durable."""
        self.settled(lambda db: db.execute(self._sql["flush"]))

    def close(self) -> None:
        """Flushes what still waits for that."""
        self._late.close()

    def renew(self) -> None:
        """Resets itself in a forked child."""
        self._late.renew()

    def settled(self, work: Callable[[Connection], T], *, repeat: bool = True) -> T:
        """Runs a transaction outside the log. If its answer was lost, it is done again: `work`
        finds by itself what it did before; if it cannot, pass `repeat=False`.

        Raises:
            StoreUnavailable: it was not done; or "unknown", if even that cannot be determined.
        """
        lost: Exception | None = None
        until = time.monotonic() + self._address.deadline_s
        for tried in range(1, AGAIN_MAX + 1):
            try:
                with self._pool.connection() as connection:
                    connection.forget_doubt()
                    result = work(connection)
                    connection.check_doubt()
                return result
            except InDoubtError as error:
                raise self._unknown(error) from error
            except PerdureError as error:
                if lost is None:
                    raise
                raise self._unknown(lost) from error
            except (psycopg.Error, DeadlineError) as error:
                again = isinstance(error, AGAIN)
                if is_lost(error):
                    self._pool.forget()
                    lost, again = error, repeat
                if not again or tried == AGAIN_MAX or time.monotonic() > until:
                    raise (self._unknown(error) if lost else translate(error, self._address)) from (
                        error
                    )
            time.sleep(random.uniform(0, BACKOFF_S))
        raise AssertionError("the last try returns or raises")


class UnwritableError(Exception):
    """A commit's content cannot be sent, for that reason; nothing was."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


def _values_of(items: Sequence[Append], durable: bool, now: int) -> tuple[Any, ...]:
    try:
        return values_of_all(items, durable, now)
    except Exception as error:
        raise UnwritableError(error) from error


def _is_in(outcome: Outcome) -> bool:
    return isinstance(outcome, Appended)


def _place(item: Append) -> tuple[bool, int, str, int]:
    """Returns its sort key in a batch. One agent's commits keep their order: sorting is stable."""
    return item.no is None, item.no or 0, item.agent, item.incarnation
