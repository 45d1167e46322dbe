"""The storage port on a PostgreSQL database, for agents on many machines.

The database is the only server: what is atomic is one statement of a function in it (migrations/),
and a lock on the agent's row keeps the order. This module sends the statements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, Unpack

import msgspec
import psycopg
from psycopg.pq.abc import PGresult

from perdure.errors import NotFound, StoreUnavailable
from perdure.missing import MISSING, Missing
from perdure.model import AgentInfo, Durability, Lease, Message, RunInfo
from perdure.storage.answers import ExecutorRow, Mail, Serves, Sizes, Standing, serves_text
from perdure.storage.appending import Append, Outcome, Ref, Refused, StoredSnapshot
from perdure.storage.capabilities import EVERY_RUN, WHOLE, RunQuery, Sent, Shipment
from perdure.storage.clocks import Clock, wall_clock
from perdure.storage.disk_waits import DiskWaits
from perdure.storage.group_policy import GROUPED, GroupPolicy
from perdure.storage.port import Feed, StoredCommit
from perdure.storage.postgres import housekeeping, inbox, purging, schema
from perdure.storage.postgres.address import parse
from perdure.storage.postgres.append import closed_of
from perdure.storage.postgres.clock import StoreClock
from perdure.storage.postgres.connection import Connection, connect
from perdure.storage.postgres.faults import AGAIN, DeadlineError, is_lost, translate
from perdure.storage.postgres.feed import read_feed, read_mail
from perdure.storage.postgres.line import GRACE_S, PermanentConnection
from perdure.storage.postgres.looking import seen
from perdure.storage.postgres.notices import Notifier
from perdure.storage.postgres.pool import ConnectionPool
from perdure.storage.postgres.rows import from_text, ref_in, ref_of, text, to_ref
from perdure.storage.postgres.runs import list_ready, list_runs
from perdure.storage.postgres.shipping import ship, stand
from perdure.storage.postgres.statements import statements
from perdure.storage.postgres.wire import (
    BIGINT,
    BIGINTS,
    TEXT,
    TEXTS,
    number,
    numbers,
    texts,
    to_number,
    to_numbers,
)
from perdure.storage.postgres.witness import Witness
from perdure.storage.postgres.writer import AT_ONCE_MAX, Writer
from perdure.storage.shortcuts import (
    CLAIM_S,
    COMMITS,
    FAR_LEASES,
    LOOKS,
    MANY_HEADS,
    AgentAndRun,
    Head,
)
from perdure.storage.wanted import InboxConditions, InboxQuery
from perdure.system import process_id

T = TypeVar("T")

SEQ_MAX = 2**63 - 1
READ_TRIES = 3
REF = (BIGINT, TEXT)
FORGOTTEN_AFTER_US = 24 * 3600 * 1_000_000


class PostgresBackend:
    """See `perdure.storage.capabilities.Backend`, whose promises these methods keep."""

    capabilities = WHOLE | {LOOKS, FAR_LEASES, MANY_HEADS}

    def __init__(
        self,
        url: str,
        *,
        durability: Durability = "sync",
        group: GroupPolicy = GROUPED,
        create: bool = True,
        clock: Clock = wall_clock,
    ) -> None:
        self._address = parse(url)
        self.url = self._address.shown
        self._own_clock = None if clock is wall_clock else clock
        self._clock = StoreClock()
        self._sql = statements(self._address.schema)
        first = connect(self._address, self._clock)
        try:
            self._format = schema.prepare(first, self._address, create=create)
        except (psycopg.Error, DeadlineError) as error:
            raise translate(error, self._address) from error
        finally:
            first.end()
        self._pool = ConnectionPool(self._address, self._connect, self._meet)
        self._line = PermanentConnection(self._address, self._connect)
        self._notifier = Notifier(self._pool, self._address.schema, self._line.channel)
        self._witness = Witness(self._address)
        waits = DiskWaits(durability, group)
        self._writer = Writer(self._address, self._pool, waits, self.now, self._witness)
        self._all_durable = durability == "sync"
        self._ended: set[str] = set()
        process_id.renew_in_children(self)

    def _connect(self) -> Connection:
        connection = connect(self._address, self._clock)
        try:
            self._meet(connection)
        except BaseException as error:
            connection.end()
            if isinstance(error, psycopg.Error | DeadlineError):
                raise translate(error, self._address) from error
            raise
        return connection

    def _meet(self, connection: Connection) -> None:
        """Looks who answers on a connection, and what that one has."""
        # A newer program may have changed the tables since; see schema.py.
        if schema.find(connection, self._address) is None:
            raise StoreUnavailable(
                "its tables are no longer there",
                target=f"store {self.url}",
                hint="the schema was dropped, or this is another database",
            )
        if self._witness.meet(connection):
            self._clock.forget()
            self._clock.measure(lambda: self._ask_clock(connection))

    def _ask_clock(self, connection: Connection) -> int:
        return int((connection.execute(self._sql["clock"]).fetchone() or (0,))[0])

    def _reading(self, work: Callable[[Connection], T], no: int | None = None) -> T:
        """Reads, and repeats that on another connection if the first was lost, or after a deadlock.

        Args:
            no: the agent whose log is read.
        """
        for tried in range(1, READ_TRIES + 1):
            try:
                with self._pool.connection() as connection:
                    self._witness.check(connection, [no])
                    if self._clock.is_old and self._own_clock is None:
                        self._clock.measure(lambda: self._ask_clock(connection))
                    return work(connection)
            except (psycopg.Error, DeadlineError) as error:
                lost = is_lost(error)
                if not (lost or isinstance(error, AGAIN)) or tried == READ_TRIES:
                    raise translate(error, self._address) from error
                if lost:
                    self._pool.forget()
        raise AssertionError("the last try returns or raises")

    def _rows(self, name: str, values: Any = (), no: int | None = None) -> list[Any]:
        return self._reading(
            lambda db: db.cursor(binary=True).execute(self._sql[name], values).fetchall(), no
        )

    # -- the log ---------------------------------------------------------------------------

    def append(self, batch: Sequence[Append]) -> list[Outcome]:
        self._pool.check()
        return self._writer.append(batch)

    def read(
        self,
        no: int,
        first: int,
        last: int,
        *,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> list[StoredCommit]:
        name = "read_down" if newest_first else "read_up"
        between = max(first, 0), min(last, SEQ_MAX)
        found = [StoredCommit(*row) for row in self._rows(name, (no, *between, limit), no)]
        if found and self._all_durable:
            newest = found[0 if newest_first else -1]
            self._witness.read(no, newest.seq, newest.header)
        return found

    def feed(self, cursor: str = "", *, limit: int = 1000, to_the_end: bool = False) -> Feed:
        store, statement = self._format.store, "feed_to_the_end" if to_the_end else "feed"
        return self._reading(
            lambda db: read_feed(db, self._sql, statement, store, self.url, cursor, limit)
        )

    def snapshot(self, no: int, seq: int) -> StoredSnapshot | None:
        rows = self._rows("find_snapshot", (no, seq), no)
        if not rows:
            return None
        leaves = {leaf: data for _, _, leaf, data in rows if leaf is not None}
        return StoredSnapshot(rows[0][0], tuple(rows[0][1]), leaves)

    def key(self, no: int, key: str) -> tuple[int, bytes] | None:
        rows = self._rows("find_key", (no, text(key)))
        return (rows[0][0], rows[0][1]) if rows else None

    # -- agents and names ------------------------------------------------------------------

    def agent(self, name: str, incarnation: int | None = None) -> AgentInfo | None:
        if incarnation is None:
            rows = self._rows("find_agent", (text(name),))
        else:
            rows = self._rows("find_incarnation", (text(name), incarnation))
        return _info(rows[0]) if rows else None

    def agents(self, prefix: str = "", after: str = "", limit: int = 1000) -> list[AgentInfo]:
        values = {"prefix": text(prefix), "after": text(after), "limit": limit}
        return [_info(row) for row in self._rows("list_agents", values)]

    def ref(self, no: int, name: str) -> Ref | None:
        values = number(no), text(name).encode()
        return ref_in(self._reading(lambda db: db.call(self._sql["find_ref"], REF, values)))

    def heads(self, places: Sequence[tuple[int, str]]) -> list[Head]:
        """See `Heads.heads`."""
        return [
            head
            for first in range(0, len(places), AT_ONCE_MAX)
            for head in self._reading(partial(self._heads, places[first : first + AT_ONCE_MAX]))
        ]

    def _heads(self, places: Sequence[tuple[int, str]], db: Connection) -> Sequence[Head]:
        values = numbers([no for no, _ in places]), texts([text(name) for _, name in places])
        found = db.call(self._sql["find_heads"], (BIGINTS, TEXTS), values).get_value(0, 0)
        lacks = self._witness.lacks
        return [
            self._witness.error(no) if lacks(db, no) else head
            for (no, _), head in zip(places, to_numbers(found), strict=True)
        ]

    def refs(self, no: int) -> list[Ref]:
        return [to_ref(row) for row in self._rows("list_refs", (no,))]

    # -- runs and their inbox --------------------------------------------------------------

    def runs(self, query: RunQuery = EVERY_RUN) -> list[RunInfo]:
        return self._reading(lambda db: list_runs(db, self._sql, query))

    def ready(self, now: int, limit: int) -> list[RunInfo]:
        ours, moment = self._line.executors, self._moment()
        return self._reading(lambda db: list_ready(db, self._sql, now, limit, moment, ours))

    def next_wake(self) -> int:
        rows = self._rows("next_timer")
        return int(rows[0][0]) if rows else 0

    def send(self, message: Message) -> Sent | Refused:
        return self._writer.settled(inbox.Put(self._sql, message, self.now(), self.url))

    def inbox(self, run: str | None = None, **conditions: Unpack[InboxConditions]) -> list[Message]:
        wanted = InboxQuery(run, **conditions)
        return self._reading(lambda db: inbox.messages(db, self._sql, wanted))

    def mail(self, cursor: str = "", *, limit: int = 1000, to_the_end: bool = False) -> Mail:
        store, statement = self._format.store, "mail_to_the_end" if to_the_end else "mail"
        return self._reading(
            lambda db: read_mail(db, self._sql, statement, store, self.url, cursor, limit)
        )

    # -- what comes from other stores ------------------------------------------------------

    def standing(self, no: int = 0) -> Standing | None:
        rows = self._rows("find_standing", (no,))
        return Standing(*rows[0]) if rows else None

    def stand(
        self, standing: Standing | None, no: int = 0, *, after: Standing | Missing | None = MISSING
    ) -> None:
        self._writer.settled(lambda db: stand(db, self._sql, standing, no, after, self.url))

    def ship(self, shipment: Shipment) -> None:
        now = self.now()
        self._writer.settled(lambda db: ship(db, self._sql, shipment, now, self.url), repeat=False)

    # -- leases and executors --------------------------------------------------------------

    def lease(
        self,
        no: int,
        branch: str,
        executor: str | None,
        *,
        over: int | None = None,
        release: int | None = None,
    ) -> Lease | Ref:
        values = no, text(branch), None if executor is None else text(executor), over, release
        taking = release is None and executor is not None

        def lease(db: Connection) -> Any:
            self._witness.check(db, [no] if taking else [])
            return db.execute(self._sql["lease"], values).fetchone()

        row = self._writer.settled(lease, repeat=not taking)
        return self._leased(row, no, branch, executor)

    def take(
        self, no: int, branch: str, executor: str, over: int | None, agent: str, run: str
    ) -> tuple[Lease | Ref, AgentAndRun | None]:
        """See `Far.take`."""
        values = (
            number(no),
            text(branch).encode(),
            text(executor).encode(),
            number(over),
            text(agent).encode(),
            text(run).encode(),
            number(COMMITS),
        )

        def take(db: Connection) -> PGresult:
            self._witness.check(db, [no])
            types = (BIGINT, TEXT, TEXT, BIGINT, TEXT, TEXT, BIGINT)
            return db.call(self._sql["take"], types, values)

        result = self._writer.settled(take, repeat=False)
        row = to_number(result.get_value(0, 0)), result.get_value(0, 1), result.get_value(0, 2)
        answer = self._leased(row, no, branch, executor)
        if not isinstance(answer, Lease):
            return answer, None
        return answer, self._seen(result, 3, run)

    def claim(self, runs: Sequence[str], executor: str) -> set[str]:
        """See `Far.claim`."""
        by_name = {text(run): run for run in runs}
        rows = self._rows("claim", (list(by_name), text(executor), CLAIM_S))
        return {by_name[row[0]] for row in rows}

    def look(self, agent: str, run: str) -> AgentAndRun:
        """See `Far.look`."""
        values = text(agent).encode(), text(run).encode(), number(COMMITS)
        types = TEXT, TEXT, BIGINT
        result = self._reading(lambda db: db.call(self._sql["look"], types, values))
        return self._seen(result, 0, run)

    def _seen(self, result: PGresult, begin: int, run: str) -> AgentAndRun:
        found = seen(result, begin, run)
        if found.agent is not None:
            self._witness.check_agent(found.agent)
            if found.commits and self._all_durable:
                newest = found.commits[0]
                self._witness.read(found.agent.no, newest.seq, newest.header)
        return found

    def _leased(self, row: Any, no: int, branch: str, executor: str | None) -> Lease | Ref:
        """Returns the answer to a request for a lease: the lease, or the branch as it is."""
        if row[2] is not None:
            names = self._rows("find_name", (no,))
            name = from_text(names[0][0]) if names else ""
            raise closed_of(msgspec.json.decode(row[2]), name, self.url)
        if executor is not None and row[0] is not None:
            self._witness.took(no, branch, row[0])
            return Lease(no, branch, executor, row[0])
        found = msgspec.json.decode(row[1])
        if found is None:
            raise NotFound("there is no such branch", target=f"branch {branch!r}")
        return ref_of(found)

    def heartbeat(self, executor: str, ttl_ms: int | None, serves: Serves = ()) -> None:
        self._pool.check()
        if ttl_ms is None:
            self._writer.settled(
                lambda db: db.execute(self._sql["end_executor"], (text(executor),))
            )
            self._line.drop(executor)
            return
        begins = not self._line.holds(executor)
        proof = self._line.hold(executor)
        now = self._own_clock() if self._own_clock else None
        values = text(executor), ttl_ms * 1000, serves_text(serves), proof, now
        self._writer.settled(
            lambda db: self._clock.measure(
                lambda: int((db.execute(self._sql["heartbeat"], values).fetchone() or (0,))[0])
            )
        )
        if begins:
            self._writer.settled(
                lambda db: db.execute(self._sql["forget_executors"], (now, FORGOTTEN_AFTER_US))
            )

    def executors(self) -> list[ExecutorRow]:
        rows = self._rows("list_executors", {"now": self._moment()})
        for row in rows:
            if not row[4]:
                self._ended.discard(row[0])  # it may have been away, and be back
        dead = self._dead([row[0] for row in rows if row[4]])
        return [
            ExecutorRow.of(
                from_text(executor),
                expires,
                serves,
                alive=living and executor not in dead,
            )
            for executor, expires, serves, living, _ in rows
        ]

    def alive(self, executor: str) -> bool:
        rows = self._rows("find_executor", {"now": self._moment(), "id": text(executor)})
        if not rows or not rows[0][3]:
            return False
        if not rows[0][4]:
            self._ended.discard(text(executor))
            return True
        return not self._dead([text(executor)])

    def _dead(self, free: Sequence[str]) -> set[str]:
        """Returns the executors whose lock nobody holds now, nor in a moment: see line.py."""
        suspects = [one for one in free if not self._line.holds(from_text(one))]
        fresh = [one for one in suspects if one not in self._ended]
        if fresh:
            time.sleep(GRACE_S)
        for one in fresh:
            rows = self._rows("find_executor", {"now": self._moment(), "id": one})
            if not rows or rows[0][4]:
                self._ended.add(one)
        return self._ended.intersection(suspects)

    def _moment(self) -> int | None:
        """Returns the time for statements that compare times: a test's clock; None for the
        database's own."""
        return self._own_clock() if self._own_clock else None

    def listen(self, executor: str, callback: Callable[[str], None]) -> Callable[[], None]:
        self._pool.check()
        return self._line.listen(executor, callback)

    def notify(self, run_id: str, *, besides: str = "") -> None:
        self._notifier.notify(run_id)

    # -- housekeeping ----------------------------------------------------------------------

    def to_purge(self, after: int = 0, limit: int = 1000) -> list[AgentInfo]:
        rows = self._reading(lambda db: purging.to_purge(db, self._sql, after, limit))
        return [_info(row) for row in rows]

    def purge(self, no: int, limit: int = 500) -> bool:
        return self._writer.settled(lambda db: purging.purge(db, self._sql, no, limit))

    def trim(
        self, no: int, word: int, remains: Mapping[int, bytes], snapshots: Sequence[int] = ()
    ) -> bool:
        return self._writer.settled(
            lambda db: purging.trim(db, self._sql, no, word, remains, snapshots)
        )

    def maintain(
        self, what: Literal["sizes", "check", "clean", "shrink", "flush"], *, no: int | None = None
    ) -> Sizes:
        match what:
            case "sizes":
                return self._reading(lambda db: housekeeping.sizes(db, self._address.schema, no))
            case "check":
                return self._reading(lambda db: housekeeping.read_all(db, self._address.schema))
            case "clean":
                self._reading(lambda db: housekeeping.clean(db, self._address.schema))
            case "shrink":
                self._reading(lambda db: housekeeping.shrink(db, self._address.schema, self.url))
            case "flush":
                self._writer.flush()
        return Sizes()

    def now(self) -> int:
        return self._own_clock() if self._own_clock else self._clock.now()

    def close(self) -> None:
        self._writer.close()
        self._notifier.close()
        self._line.close()
        self._pool.close()

    def begin_anew(self) -> None:
        """Resets itself in a forked child: connections, locks and threads are the parent's."""
        self._clock.renew()
        self._pool.renew()
        self._witness.renew()
        self._line.renew()
        self._notifier.renew()
        self._writer.renew()


def _info(row: Any) -> AgentInfo:
    no, name, incarnation, deleted, seq, purged = row
    return AgentInfo(from_text(name), no, incarnation, deleted, seq, purged)
