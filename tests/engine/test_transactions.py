"""Tools that hold a transaction open: their effect and the word of it are one commit, elsewhere."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import perdure
from perdure.errors import NeedsAttention, OutsideRun, PerdureError, TimedOut, Unstorable
from perdure.testing import RunEnding, boundary, kill_at_every_boundary
from tests.engine.conftest import Place
from tests.postgres.server import shared

SHOP: list[Path] = []
"""The shop's database, while a test runs."""


def connect() -> sqlite3.Connection:
    return Booked(SHOP[-1], factory=Booked)


class Booked(sqlite3.Connection):
    """A connection whose commit has boundaries."""

    def commit(self) -> None:
        ours = self.in_transaction
        if ours:
            boundary("before commit")
        super().commit()
        if ours:
            boundary("after commit")


def new_shop(folder: Path) -> None:
    SHOP[:] = [folder / "shop.sqlite"]
    with sqlite3.connect(SHOP[-1]) as made:
        made.execute("CREATE TABLE bookings (guest TEXT)")


def bookings() -> list[str]:
    with sqlite3.connect(SHOP[-1]) as looking:
        return [guest for (guest,) in looking.execute("SELECT guest FROM bookings")]


def booked_once(end: RunEnding) -> None:
    assert bookings() == ["Ada", "Ben"], end.killed_at


@perdure.tool(transaction=perdure.sql_transaction(connect))
def book(guest: str) -> dict[str, Any]:
    row = perdure.transaction().connection.execute("INSERT INTO bookings VALUES (?)", (guest,))
    return {"number": row.lastrowid, "guest": guest}


@perdure.agent(dict)
def travel(run: perdure.Run[dict]) -> list[Any]:
    return [book("Ada"), book("Ben")]


def test_i5_it_takes_effect_once_wherever_the_process_dies() -> None:
    """A booking was committed, its process died before the run heard of it, and it was made again:
    the database could not tell whose row it was."""
    endings = kill_at_every_boundary(
        travel,
        before=new_shop,
        check=booked_once,
    )
    killed = {end.killed_at for end in endings}
    assert {f"at {when} commit {n}" for when in ("before", "after") for n in (1, 2)} < killed
    assert all(
        end.result == [{"number": 1, "guest": "Ada"}, {"number": 2, "guest": "Ben"}]
        for end in endings
    )


@pytest.mark.slow
def test_i5_also_where_it_is_really_killed() -> None:
    kill_at_every_boundary(
        travel,
        before=new_shop,
        check=booked_once,
        by="sigkill",
    )


class Ledger:
    """Another system with transactions, whose calls are coroutines; it fails on demand."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}
        self.fails: list[str] = []
        self.said: list[str] = []

    def open(self) -> LedgerTransaction:
        return LedgerTransaction(self)

    def step(self, name: str) -> None:
        self.said.append(name)
        if name in self.fails:
            self.fails.remove(name)
            raise ConnectionError(f"the line went down at {name}")


def test_transactions_that_block_come_one_after_the_other_in_a_loop(tmp_path: Path) -> None:
    """The second began while the first one's body waited, and waited itself for what that had
    claimed, in the loop that both needed: nothing moved until the database gave up."""
    new_shop(tmp_path)
    opener = perdure.sql_transaction(lambda: sqlite3.connect(SHOP[-1], timeout=30))

    @perdure.tool(transaction=opener)
    async def book(guest: str) -> str:
        perdure.transaction().connection.execute("INSERT INTO bookings VALUES (?)", (guest,))
        await asyncio.sleep(0.01)
        if guest == "Eve":
            raise ValueError("no room")
        return guest

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[Any]:
        guests = ["Ada", "Eve", "Ben"]
        found = await asyncio.gather(*map(book, guests), return_exceptions=True)
        return [str(one) for one in found]

    async def main() -> list[str]:
        async with perdure.open_async("memory://") as store:
            return await asyncio.wait_for(store.run(act, "a"), 20)

    assert asyncio.run(main()) == ["Ada", "no room", "Ben"]
    assert sorted(bookings()) == ["Ada", "Ben"]


class LedgerTransaction:
    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.key = ledger, ""

    async def begin(self, key: str) -> bytes | None:
        self.ledger.step("begin")
        self.key = key
        return self.ledger.rows.get(key)

    async def commit(self, outcome: bytes) -> None:
        self.ledger.step("commit")
        self.ledger.rows[self.key] = outcome
        self.ledger.step("answer")

    async def rollback(self) -> None:
        self.ledger.step("rollback")


def test_what_is_no_transaction_is_refused() -> None:
    @perdure.tool(transaction=str)
    def pay() -> None: ...

    with pytest.raises(TypeError, match=r"transaction=str returned a str, which has no begin\(\)"):
        pay()


def paying(ledger: Ledger) -> Any:
    @perdure.tool(transaction=ledger.open, name="pay")
    async def pay(cents: int) -> int:
        assert isinstance(perdure.transaction(), LedgerTransaction)
        ledger.step("body")
        return cents

    @perdure.agent(dict, name="shop")
    async def shop(run: perdure.AsyncRun[dict]) -> int:
        return await pay(5)

    return shop


@pytest.mark.parametrize(
    ("fails", "said", "paid"),
    [
        ([], "begin body commit answer", 5),
        (["begin"], "begin rollback", ConnectionError),
        (["body"], "begin body rollback", ConnectionError),
        (["commit"], "begin body commit rollback begin rollback", ConnectionError),
        (["answer"], "begin body commit answer rollback begin rollback", 5),
        (["answer", "rollback"], "begin body commit answer rollback begin rollback", 5),
    ],
)
def test_i5_the_answer_of_a_commit_may_be_lost(
    runs: Any, fails: list[str], said: str, paid: Any
) -> None:
    """The line went down while the database committed. The error counted as `not done`, and the
    customer was charged again."""
    ledger = Ledger()
    ledger.fails = list(fails)
    if paid is ConnectionError:
        with pytest.raises(ConnectionError):
            runs.run(paying(ledger))
        assert ledger.rows == {}
    else:
        assert runs.run(paying(ledger)) == paid
        assert len(ledger.rows) == 1
    assert " ".join(ledger.said) == said


def test_i8_where_it_cannot_be_looked_up_the_run_says_so_and_goes_on_later(runs: Any) -> None:
    ledger = Ledger()
    shop = paying(ledger)
    ledger.fails = ["answer"]
    looked = ledger.open

    def down() -> LedgerTransaction:
        if "answer" in ledger.said:
            raise ConnectionError("still down")
        return looked()

    ledger.open = down  # type: ignore[method-assign]
    shop = paying(ledger)
    with pytest.raises(NeedsAttention, match="may be committed"):
        runs.run(shop)
    assert [effect.state for effect in runs.store.handle("a/shop/main").effects()] == ["in doubt"]
    ledger.said.clear()
    assert runs.run(shop) == 5
    assert ledger.said == ["begin", "rollback"], "it was found, and not made again"


def test_a_result_that_cannot_be_stored_takes_nothing_into_effect(
    place: Place, tmp_path: Path
) -> None:
    """The row was there, and the run failed as its result had no plain form."""
    new_shop(tmp_path)

    @perdure.tool(transaction=perdure.sql_transaction(connect))
    def careless(guest: str) -> object:
        perdure.transaction().connection.execute("INSERT INTO bookings VALUES (?)", (guest,))
        return object()

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> object:
        return careless("Ada")

    with pytest.raises(Unstorable):
        place.open().run(act, "a")
    assert bookings() == []


def test_an_attempt_that_was_given_up_is_rolled_back(place: Place, tmp_path: Path) -> None:
    """It took too long, and was made again. Then the first one committed, too."""
    new_shop(tmp_path)
    late = threading.Event()
    ended = threading.Event()

    def body(guest: str) -> str:
        late.wait(60)
        try:
            perdure.heartbeat()
        except TimedOut:
            ended.set()
        perdure.transaction().connection.execute("INSERT INTO bookings VALUES (?)", (guest,))
        return guest

    opener = perdure.sql_transaction(lambda: sqlite3.connect(SHOP[-1], timeout=0.1))
    slow = perdure.tool(transaction=opener, timeout=0.01, name="slow")(body)

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        return slow("Ada")

    # Its probe cannot claim the key, which the first attempt has.
    with pytest.raises(NeedsAttention, match="its probe failed"):
        place.open().run(act, "a")
    late.set()
    assert ended.wait(60)
    for thread in threading.enumerate():
        if thread.name == "perdure-call":
            thread.join(60)
    assert bookings() == []


def test_outside_of_runs_it_is_a_transaction_too(tmp_path: Path) -> None:
    new_shop(tmp_path)
    assert book("Ada") == {"number": 1, "guest": "Ada"}
    assert book("Ada") == {"number": 2, "guest": "Ada"}
    with pytest.raises(OutsideRun, match="only inside a tool that has one"):
        perdure.transaction()


def test_a_connection_without_transactions_is_refused(place: Place, tmp_path: Path) -> None:
    """Each statement was a commit: after a crash the key was there, and no effect."""
    new_shop(tmp_path)
    opener = perdure.sql_transaction(lambda: sqlite3.connect(SHOP[-1], isolation_level=None))

    @perdure.tool(transaction=opener)
    def careless(guest: str) -> str:
        raise AssertionError("not called")

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        return careless("Ada")

    with pytest.raises(PerdureError, match="commits each statement by itself"):
        place.open().run(act, "a")
    with sqlite3.connect(SHOP[-1]) as looking:
        assert looking.execute("SELECT * FROM perdure_outcomes").fetchall() == []


def test_i5_a_body_that_commits_is_noticed(place: Place, tmp_path: Path) -> None:
    new_shop(tmp_path)

    @perdure.tool(transaction=perdure.sql_transaction(connect))
    def hasty(guest: str) -> str:
        sqlite3.Connection.commit(perdure.transaction().connection)
        raise SystemExit("the process ends")

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        return hasty("Ada")

    with pytest.raises(SystemExit):
        place.open().run(act, "a")
    with pytest.raises(NeedsAttention, match="committed before its outcome was stored"):
        place.open().run(act, "a")


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda: perdure.tool(transaction=7), "transaction="),  # type: ignore[call-overload]
        (lambda: perdure.tool(transaction=connect, on_crash="retry"), "leave out"),
        (lambda: perdure.tool(transaction=connect, probe=print), "leave out"),
        (lambda: perdure.sql_transaction(7), "connect="),  # type: ignore[arg-type]
        (lambda: perdure.sql_transaction(connect, table="x; DROP"), "plain name"),
        (lambda: perdure.sql_transaction(connect, paramstyle="none"), "paramstyle="),
    ],
)
def test_wrong_words_are_refused_at_once(wrong: Callable[[], Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        wrong()


def test_i5_two_processes_that_both_make_it_take_effect_once() -> None:
    """An executor was paused in its tool, another one took the run over, and found nothing: the
    first had not committed yet. In PostgreSQL the second waits for the first one's end."""
    url = shared().new_url().partition("?")[0]
    opener = perdure.sql_transaction(lambda: psycopg.connect(url))
    first, key = opener(), uuid4().hex
    assert first.begin(key) is None
    found: list[Any] = []

    def second() -> None:
        other = opener()
        found.append(other.begin(key))
        other.rollback()

    thread = threading.Thread(target=second)
    thread.start()
    thread.join(0.05)
    assert found == [], "it waits"
    first.commit(b"outcome")
    thread.join(60)
    assert found == [b"outcome"]
