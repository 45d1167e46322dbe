"""A store that follows another is a copy of it; and becomes a store of its own, without losing
what it was told."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

import perdure
from perdure import Conflict, Corrupt, NeedsAttention, NotFound, Store, StoreUnavailable
from perdure.model import Lease
from perdure.replication import (
    ClosedError,
    DivergedError,
    DoneBeforeError,
    IncompleteError,
    Migration,
    following,
    migrate,
    promote,
    restore,
)
from perdure.storage.capabilities import RunQuery, Shipment
from perdure.storage.locate import _named_memories
from perdure.storage.log.reader import LogReader
from perdure.storage.port import Feed, StoredCommit
from perdure.storage.standing import Why, read_why
from perdure.testing import run_until_waiting
from perdure.transfer import shipping
from perdure.transfer.follower import Follower
from perdure.transfer.promotion import promote as promote_backends
from tests.postgres.server import shared
from tests.state.copies import (
    WAIT_MAX_S,
    Life,
    all_done,
    asks,
    backend_of,
    incarnations,
    picture,
    serve,
    short,
    verify_all,
    waiting_for,
    waits,
)

_names = itertools.count()
PAIRS = [
    ("sqlite", "sqlite"),
    ("sqlite", "memory"),
    ("memory", "sqlite"),
    ("sqlite", "postgres"),
    ("postgres", "sqlite"),
    ("postgres", "postgres"),
]


class Pair:
    """Two places for stores; `open` opens one, and closes it at the end."""

    def __init__(self, folder: Path, source: str, target: str) -> None:
        self._folder = folder
        self._opened: list[Store] = []
        self.source = self.another(source)
        self.target = self.another(target)

    def another(self, kind: str) -> str:
        if kind == "postgres":
            return shared().new_url()
        name = f"copies-{next(_names)}"
        return f"memory://{name}" if kind == "memory" else str(self._folder / f"{name}.db")

    def open(self, url: str) -> Store:
        store = perdure.open(url, durability="os")
        self._opened.append(store)
        return store

    def both(self) -> tuple[Store, Store]:
        return self.open(self.source), self.open(self.target)

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()


@pytest.fixture(params=PAIRS, ids="-to-".join)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, *request.param)
    yield made
    made.close()
    for name in [name for name in _named_memories if name.startswith("copies-")]:
        del _named_memories[name]


def follower_of(source: Store, target: Store, **more: Any) -> Follower:
    follower = Follower(backend_of(source), backend_of(target))
    follower.begin(**more)
    return follower


def put(store: Store, name: str, **fields: Any) -> None:
    with store.agent(name).edit("put") as draft:
        draft.update(fields)


def same(source: Store, target: Store) -> bool:
    return picture(backend_of(source)) == picture(backend_of(target))


# -- following -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_follower_is_a_copy_whatever_happens(pair: Pair, seed: int) -> None:
    """Random deeds at the source, random cuts between the looks, and followers that are made anew
    at any time: log, branches, checkpoints, keys, runs and inboxes are those of the source."""
    source, target = pair.both()
    life, luck = Life(source, seed), random.Random(seed)
    follower = follower_of(source, target)
    for _ in range(4):
        life.go_on(15)
        for _ in range(luck.randrange(4)):
            follower.step(limit=luck.choice([1, 3, 10, 1000]))
        if luck.random() < 0.5:
            follower = follower_of(source, target)
        if luck.random() < 0.3:  # it begins from the start again: all comes twice
            follower.why = replace(follower.why, feed="", mail="")
    follower.drain()
    assert follower.lag().commits == 0
    assert same(source, target)
    verify_all(backend_of(target))


def test_its_lag_is_shown(pair: Pair) -> None:
    source, target = pair.both()
    put(source, "a", n=1)
    put(source, "b", n=1)
    follower = follower_of(source, target)
    lag = follower.lag()
    assert lag.commits == 4
    assert lag.seconds > 0
    follower.step(limit=3)
    assert follower.lag().commits == 1
    follower.drain()
    assert follower.lag() == type(lag)(0, 0.0)


def test_a_follower_takes_no_other_writes(pair: Pair) -> None:
    source, target = pair.both()
    put(source, "a", n=1)
    follower_of(source, target).drain()
    agent = target.agent("a")
    for write in (
        lambda: put(target, "a", n=2),
        lambda: put(target, "new", n=1),
        lambda: agent.fork("fork", at=1),
        lambda: agent.checkpoint("point"),
        agent.undo,
        lambda: target.delete("a"),
        lambda: target.run(short, "a", 1),
        lambda: target.start(short, "a", 1),
        lambda: target.run(short, "new", 1),
        lambda: target.import_log(source.export_log(_info(source, "a"))),
    ):
        with pytest.raises((ClosedError, Conflict)) as refused:
            write()
        assert isinstance(refused.value, ClosedError) or "is there already" in str(refused.value)
    assert agent.state == {"n": 1}
    assert same(source, target)


def _info(store: Store, name: str) -> perdure.types.AgentInfo:
    found = store.find(name)
    assert found is not None
    return found


def test_snapshots_come_along(pair: Pair) -> None:
    """Without one, the first reader of a follower would replay a long log from its begin."""
    source, target = pair.both()
    agent = source.agent("a")
    follower = follower_of(source, target)
    for n in range(40):
        with agent.edit("more") as draft:
            draft.setdefault("items", []).extend(["x" * 200 + str(n)] * 30)
        if n % 10 == 9:
            agent.checkpoint(f"point {n}")
            follower.drain()
    rows = backend_of(target).read(1, 1, 99)
    assert sum(row.snapshotted for row in rows) == 4
    verify_all(backend_of(target))
    assert target.agent("a").state == agent.state


def test_a_follower_goes_on_as_another_process(pair: Pair) -> None:
    source, target = pair.both()
    put(source, "a", n=1)
    with following(pair.source, pair.target) as first:
        assert first.drain()[0] == 2
    put(source, "a", n=2)
    with following(pair.source, pair.target) as second:
        assert second.drain()[0] == 1
        assert second.step().commits == 0
    assert same(source, target)


def test_a_source_that_was_loaded_into_another_server_is_followed_on(tmp_path: Path) -> None:
    """That one's transactions count from lower numbers. The cursor of the copy was beyond all of
    them: it stood still for good, said nothing but its lag, and --resync kept the cursor."""
    made = Pair(tmp_path, "postgres", "sqlite")
    try:
        source, target = made.both()
        put(source, "a", n=1)
        follower = follower_of(source, target)
        follower.drain()
        follower.why = replace(follower.why, feed=_counted(follower.why.feed, 10**9))
        put(source, "a", n=2)
        with pytest.raises(NotFound, match="loaded into another server") as said:
            follower.step()
        assert "--resync" in said.value.hint
        put(source, "b", n=3)
        again = follower_of(source, target, resync=True)
        again.drain()
        assert same(source, target)
        at = again.why.feed
        assert follower_of(source, target, resync=True).why.feed == at  # it is known there
    finally:
        made.close()


def _counted(cursor: str, tx: int) -> str:
    store, _, *rest = cursor.split(".")
    return ".".join([store, str(tx), *rest])


def test_a_source_that_was_restored_from_an_older_copy_is_compared(tmp_path: Path) -> None:
    """The cursor was not known there, --resync kept it, and nobody heard of what differs."""
    path, kept = tmp_path / "source.db", tmp_path / "kept.db"
    with perdure.open(path) as source:
        put(source, "a", n=1)
    shutil.copy(path, kept)
    with perdure.open("memory://") as target:
        with perdure.open(path) as source:
            put(source, "a", n=2)
            follower_of(source, target).drain()
        shutil.copy(kept, path)
        with perdure.open(path) as source:
            for resync in (False, True):
                with pytest.raises(DivergedError, match="'a', commit 3"):
                    follower_of(source, target, resync=resync)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_source_that_was_put_back_and_worked_on_is_not_taken_for_equal(
    tmp_path: Path, deleted: bool
) -> None:
    """Its logs were as long as those of its copy, which had other commits at their ends: "up to
    date", with --resync too. `promote` closed the source, and said that nothing was lost."""
    path, kept, copied = tmp_path / "source.db", tmp_path / "kept.db", tmp_path / "copy.db"
    with perdure.open(path) as source:
        put(source, "a", n=1)
        put(source, "b", n=1)
    shutil.copy(path, kept)
    with perdure.open(path) as source:
        source.delete("a") if deleted else put(source, "a", refunded=True)
    with following(path, copied) as follower:
        follower.drain()
    shutil.copy(kept, path)
    with perdure.open(path) as source:
        put(source, "a", declined=True)
        for resync in (False, True):
            with (
                pytest.raises(DivergedError, match="'a', commit 3"),
                following(path, copied, resync=resync),
            ):
                pass
        with pytest.raises(DivergedError, match="'a', commit 3"):
            promote(copied)
        put(source, "a", open="still")


def test_a_source_that_was_put_back_has_other_messages(tmp_path: Path) -> None:
    """Its next request got the number of one that the copy had. It was never shipped, and `promote`
    said that nothing was lost."""
    path, kept, copied = tmp_path / "source.db", tmp_path / "kept.db", tmp_path / "copy.db"
    with perdure.open(path) as source:
        put(source, "a", n=1)
    shutil.copy(path, kept)
    with perdure.open(path) as source:
        source.start(short, "old", 1)
    with following(path, copied) as follower:
        follower.drain()
    shutil.copy(kept, path)
    with perdure.open(path) as source:
        source.start(short, "new", 1)
    for resync in (False, True):
        with pytest.raises(DivergedError, match="'old"), following(path, copied, resync=resync):
            pass


def test_a_source_that_was_put_back_gives_a_messages_number_again(tmp_path: Path) -> None:
    """A reader of its messages was behind that number already, and never heard of the new one."""
    path, kept = tmp_path / "source.db", tmp_path / "kept.db"
    with perdure.open(path) as source:
        run = source.start(waits, "a", 1).id
    shutil.copy(path, kept)
    with perdure.open(path) as source:
        source.handle(run).signal("word", "lost", key="lost")
        cursor = backend_of(source).mail().cursor
        assert backend_of(source).mail(cursor).messages == []
        unmarked = cursor.partition(".")[0]  # as earlier versions gave it
        assert backend_of(source).mail(unmarked).messages == []
    shutil.copy(kept, path)
    with perdure.open(path) as source:
        source.handle(run).signal("word", "new", key="new")
        with pytest.raises(NotFound, match="cursor is not a place"):
            backend_of(source).mail(cursor)


def test_a_waiting_message_is_what_its_copy_is(tmp_path: Path) -> None:
    """Compared as values, it was another one: NaN does not equal itself. The copy could neither be
    continued nor promoted."""
    path, copied = tmp_path / "source.db", tmp_path / "copy.db"
    readings = {"celsius": float("nan"), "humidity": Decimal("NaN")}
    with perdure.open(path) as source:
        source.start(waits, "a", 1).signal("reading", readings)
    for resync in (False, True):
        with following(path, copied, resync=resync) as follower:
            follower.drain()
    assert promote(copied).lossless
    with perdure.open(copied) as store:
        assert str(backend_of(store).inbox()[1].value) == str(readings)


def test_an_old_primary_does_not_keep_messages_of_its_own(tmp_path: Path) -> None:
    """They were lost with it, and sent again. Taken back and promoted, it gave both to its runs."""
    path, copied = tmp_path / "source.db", tmp_path / "copy.db"
    with perdure.open(path) as source:
        put(source, "a", n=1)
    with following(path, copied) as follower:
        follower.drain()
    with perdure.open(path) as source:
        source.start(short, "lost", 1)
    promote(copied, source_is_lost=True)
    with pytest.raises(DivergedError, match="'lost"), following(copied, path, resync=True):
        pass
    with perdure.open(path) as source:
        assert backend_of(source).standing() is None


@pytest.mark.parametrize("again", [False, True])
def test_what_waited_for_an_agent_that_was_deleted_since_is_no_message_of_ones_own(
    pair: Pair, again: bool
) -> None:
    """A request waited in the old primary, and in the copy that took its place. There the agent was
    deleted, with the request. The old primary was taken for one that had gone on alone: it was
    refused as a copy of its successor, though all that it had was a beginning of that."""
    source, target = pair.both()
    put(source, "a", n=1)
    source.start(short, "a", 1)
    follower_of(source, target).drain()
    promote_backends(backend_of(target), None)
    target.delete("a")
    if again:
        put(target, "a", n=2)
        target.start(short, "a", 2)
    follower_of(target, source, resync=True).drain()
    assert same(target, source)
    assert [one.agent for one in backend_of(source).inbox()] == ["a"] * again


def test_a_source_that_was_made_anew_from_its_copy_is_followed_on(tmp_path: Path) -> None:
    """Its agents had other numbers. The cursor was taken for one of its own: an agent stood still
    until its log was longer than that of the one that had had the number before."""
    path, copied = tmp_path / "source.db", tmp_path / "copy.db"
    with perdure.open(path) as source:
        put(source, "short", n=1)
        for n in range(9):
            put(source, "long", n=n)
        put(source, "other", n=1)
        source.delete("long", purge=True)
    with following(path, copied) as follower:
        follower.drain()
    path.unlink()
    restore(copied, path, datetime.now(UTC))
    with perdure.open(path) as source, perdure.open(copied) as copy:
        for n in range(3):
            put(source, "short", n=n)
        with pytest.raises(NotFound, match="older copy"):
            follower_of(source, copy).step()
        follower_of(source, copy, resync=True).drain()
        assert same(source, copy)


@pytest.mark.parametrize("agents", [0, 2])
def test_a_store_does_not_follow_itself_under_another_name(agents: int) -> None:
    """A name of its server in another spelling, or a pooler's: it took writes from itself alone,
    and no way out that was named led out."""
    url = shared().new_url()
    with perdure.open(url) as store:
        for number in range(agents):
            put(store, f"a-{number}", n=1)
        other = url.replace("127.0.0.1", "localhost")
        assert other != url
        for _ in range(2):
            with (
                pytest.raises(Conflict, match="is the source itself"),
                following(other, url, resync=True),
            ):
                pass
        backend_of(store).stand(Why("follows", other).standing())  # it was ended in the middle
        with pytest.raises(Conflict, match="is the source itself"), following(other, url):
            pass
        put(store, "a-0", n=2)


def test_a_source_that_moved_is_named_at_the_promotion(tmp_path: Path) -> None:
    """`--source` is there for that, and each other URL than the known one was refused."""
    path, moved, copied = tmp_path / "a.db", tmp_path / "moved.db", tmp_path / "copy.db"
    with perdure.open(path) as source:
        put(source, "a", n=1)
    with following(path, copied) as follower:
        follower.drain()
    with perdure.open(path) as source:
        put(source, "a", n=2)
    path.rename(moved)
    with perdure.open(tmp_path / "other.db") as other:
        put(other, "b", n=1)
    with pytest.raises(DivergedError):
        promote(copied, tmp_path / "other.db")
    done = promote(copied, moved)
    assert (done.commits, done.lossless) == (1, True)
    with perdure.open(copied) as copy, perdure.open(moved) as source:
        put(copy, "a", n=3)
        with pytest.raises(ClosedError, match="was moved"):
            put(source, "a", n=3)


def test_two_who_ship_at_once_bring_nothing_twice(pair: Pair) -> None:
    source, target = pair.both()
    Life(source, 1).go_on(20)
    one, other = follower_of(source, target), follower_of(source, target)
    while one.step(limit=2).commits + other.step(limit=3).commits:
        pass
    one.drain()
    other.drain()
    assert same(source, target)


# -- what is refused -----------------------------------------------------------------------------


def test_a_store_with_agents_is_no_target(pair: Pair) -> None:
    source, target = pair.both()
    put(source, "a", n=1)
    put(target, "mine", n=1)
    with pytest.raises(Conflict, match="agents of its own"):
        follower_of(source, target)
    with pytest.raises(DivergedError, match=r"'mine', commit 1"):
        follower_of(source, target, resync=True)
    put(target, "mine", n=2)  # it is as open as it was


def test_a_follower_of_another_store_is_no_target(pair: Pair) -> None:
    source, target = pair.both()
    third = pair.open(pair.another("memory"))
    put(source, "a", n=1)
    follower_of(source, target).drain()
    with pytest.raises(Conflict, match="follows"):
        follower_of(third, target)
    with pytest.raises(DivergedError):
        follower_of(third, target, resync=True)
    assert follower_of(source, target).step().commits == 0


def test_a_store_does_not_follow_itself(pair: Pair) -> None:
    source = pair.open(pair.source)
    with pytest.raises(Conflict, match="itself"):
        follower_of(source, pair.open(pair.source))


def test_a_broken_chain_is_not_shipped(pair: Pair) -> None:
    """I11: what does not verify does not get in, and is named. Others are shipped on, and it is
    itself once it is mended."""
    source, target = pair.both()
    for n in range(3):
        put(source, "a", n=n)
    follower = follower_of(source, target)
    real = backend_of(source)

    class Liar:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def feed(self, cursor: str = "", *, limit: int = 1000, to_the_end: bool = False) -> Feed:
            part = real.feed(cursor, limit=limit)
            entries = [replace(fed, commit=self.changed(fed.commit)) for fed in part.entries]
            return Feed(entries, part.cursor)

        def read(self, *where: Any, **how: Any) -> list[StoredCommit]:
            return [self.changed(row) for row in real.read(*where, **how)]

        def changed(self, row: StoredCommit) -> StoredCommit:
            if row.seq != 3:
                return row
            payload = row.payload[:-1] + bytes([row.payload[-1] ^ 1])
            return replace(row, payload=payload)

    liar: Any = Liar()
    follower.source = follower.shipper.source = liar
    put(source, "b", n=1)
    follower.drain()
    (aside,) = follower.aside
    assert (aside.agent, aside.seq) == ("a", 3)
    assert "Corrupt" in aside.problem and "'a', commit 3" in aside.problem
    assert target.agent("b").state == {"n": 1}
    follower = follower_of(source, target)
    assert follower.aside == (aside,)  # who goes on knows of it
    follower.drain()
    assert not follower.aside
    assert same(source, target)


class Refusing:
    """A store that does not take the commits of one agent from a seq on, say for a key that its
    database cannot index."""

    def __init__(self, backend: Any, agent: str, seq: int) -> None:
        self._backend, self._agent, self._seq = backend, agent, seq

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def ship(self, shipment: Shipment) -> None:
        for item in shipment.appends:
            if item.agent == self._agent and item.seq >= self._seq:
                raise StoreUnavailable("index row size 2720 exceeds maximum 2704")
        self._backend.ship(shipment)


def test_an_agent_that_the_target_refuses_is_set_aside(pair: Pair) -> None:
    """One agent's commit that the target refused ended the copying of all agents, for good."""
    source, target = pair.both()
    for n in range(4):
        put(source, "a", n=n)
        put(source, "b", n=n)
    real: Any = backend_of(target)
    refusing: Any = Refusing(real, "a", 4)
    follower = Follower(backend_of(source), refusing)
    follower.begin()
    follower.drain()
    (aside,) = follower.aside
    assert (aside.agent, aside.seq) == ("a", 4) and "index row size" in aside.problem
    assert target.agent("a").seq == 3  # as far as it can be taken
    assert target.agent("b").state == {"n": 3}
    assert follower.lag().commits == 2
    put(source, "b", n=9)
    follower.drain()
    assert target.agent("b").state == {"n": 9}
    for lost in (None, backend_of(source)):
        with pytest.raises(IncompleteError, match=r"'a': is incomplete, from commit 4 on") as told:
            promote_backends(refusing, lost)
        assert told.value.found == (aside,)
        put(source, "b", n=10)  # the source is as open as it was
    with pytest.raises(ClosedError):
        put(target, "b", n=9)
    follower_of(source, target).drain()  # mended
    assert same(source, target)
    assert not promote(pair.target, pair.source).incomplete


class Ending:
    """A store that the follower's process loses, or that takes nothing any more, once it has an
    agent's commit of some seq."""

    def __init__(self, backend: Any, agent: str, seq: int, error: BaseException) -> None:
        self._backend, self._agent, self._seq, self._error = backend, agent, seq, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def ship(self, shipment: Shipment) -> None:
        info = self._backend.agent(self._agent)
        if info is not None and info.seq >= self._seq:
            raise self._error
        self._backend.ship(shipment)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StoreUnavailable("it is full")])
def test_an_agent_is_aside_until_all_of_it_is_there(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """A follower tried an agent again that had been set aside, and was killed, or the disk full,
    between two transactions of that. With the first of them its store said that nobody was aside:
    each call was well from then on, and the rest of the agent never came."""
    source, target = pair.both()
    for n in range(8):
        put(source, "a", n=n)
    real: Any = backend_of(target)
    follower = Follower(backend_of(source), Refusing(real, "a", 3))
    follower.begin()
    follower.drain()
    assert [one.agent for one in follower.aside] == ["a"]
    monkeypatch.setattr(shipping, "SHIPMENT_BYTES", 1)
    follower = Follower(backend_of(source), Ending(real, "a", 5, error))
    follower.begin()
    with pytest.raises(type(error)):
        follower.drain()
    assert target.agent("a").seq == 5
    follower = follower_of(source, target)
    assert [one.agent for one in follower.aside] == ["a"]
    follower.drain()
    assert follower.aside == follower_of(source, target).aside == ()
    assert same(source, target)


def test_a_disk_without_room_sets_no_agent_aside(pair: Pair) -> None:
    """A follower's file might not become larger, and small commits still got in. The agent whose
    large ones did not was set aside, as if they were the reason."""
    source, target = pair.both()
    for n in range(4):
        put(source, "a", n=n)

    class Full(Refusing):
        def ship(self, shipment: Shipment) -> None:
            try:
                super().ship(shipment)
            except StoreUnavailable as error:
                raise StoreUnavailable("the disk is full", no_room=True) from error

    full: Any = Full(backend_of(target), "a", 3)
    follower = Follower(backend_of(source), full)
    follower.begin()
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        follower.drain()
    assert follower.aside == ()
    follower_of(source, target).drain()
    assert same(source, target)


def test_who_says_so_goes_on_without_what_is_missing(pair: Pair) -> None:
    source, target = pair.both()
    for n in range(4):
        put(source, "a", n=n)
        put(source, "b", n=n)
    refusing: Any = Refusing(backend_of(target), "a", 4)
    follower = Follower(backend_of(source), refusing)
    follower.begin()
    follower.drain()
    done = promote_backends(refusing, backend_of(source), take_incomplete=True)
    assert [one.agent for one in done.incomplete] == ["a"]
    put(target, "a", on=True)
    assert target.agent("a").state == {"n": 1, "on": True}
    assert target.agent("b").state == {"n": 3}
    verify_all(backend_of(target))


def test_an_agent_that_cannot_be_moved_stays_where_it_is(pair: Pair) -> None:
    source, target = pair.both()
    for n in range(4):
        put(source, "a", n=n)
        put(source, "b", n=n)
    refusing: Any = Refusing(backend_of(target), "a", 4)
    with pytest.raises(IncompleteError, match="'a'"):
        Migration(backend_of(source), refusing).run()
    put(source, "a", n=5)
    with pytest.raises(ClosedError):
        put(source, "b", n=5)
    put(target, "b", n=6)
    with pytest.raises(ClosedError):
        put(target, "a", n=6)
    moved = migrate(pair.source, pair.target)
    assert [one.agent for one in moved] == ["a"]
    assert target.agent("a").state == {"n": 5}
    put(target, "a", n=7)
    verify_all(backend_of(target))


def test_a_feed_that_cannot_be_read_holds_up_nobody(pair: Pair) -> None:
    """A damaged page made the feed of all agents `Corrupt`. Each log is then read by itself."""
    source, target = pair.both()
    for name in ("a", "b"):
        put(source, name, n=1)
    real: Any = backend_of(source)

    class Damaged:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def feed(self, cursor: str = "", *, limit: int = 1000, to_the_end: bool = False) -> Feed:
            raise Corrupt("a page is damaged", target="the file", hint="")

        def read(self, no: int, *where: Any, **how: Any) -> Any:
            if no == _info(source, "a").no:
                raise Corrupt("a page is damaged", target="agent 'a'", hint="")
            return real.read(no, *where, **how)

    follower = follower_of(source, target)
    damaged: Any = Damaged()
    follower.source = follower.shipper.source = damaged
    follower.step()
    assert [one.agent for one in follower.aside] == ["", "a"]
    assert target.agent("b").state == {"n": 1}
    put(source, "b", n=2)
    follower.step()
    assert target.agent("b").state == {"n": 2}
    follower = follower_of(source, target)
    follower.drain()
    assert not follower.aside and same(source, target)


def test_a_signal_to_a_run_that_was_set_back_while_its_follower_was_away(pair: Pair) -> None:
    """The follower had a signal in its inbox that came while a run was set back, and not yet the
    commits around it. Then they came all at once: the run's end emptied its inbox, and the commit
    that took the signal was refused, for it was gone. So `replicate`, `promote` and `migrate`
    failed at that commit, for all agents, for good."""
    source, target = pair.both()
    follower = follower_of(source, target)
    source.start(waits, "a", 1)
    serve(source, waiting_for(source, "a/waits/main", "word"))
    source.handle("a/waits/main").signal("word", "first", key="1")
    serve(source, waiting_for(source, "a/waits/main", "Go on?"))
    follower.drain()
    real = follower.source

    class Away:
        """Between the look at the feed and the look at the mail, the run lives on."""

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def mail(self, cursor: str = "", **said: Any) -> Any:
            handle = source.handle("a/waits/main")
            if handle.status == "waiting":
                handle.cancel()
                serve(source, lambda: handle.status == "cancelled")
                handle.retry("wait_for:word#1", effects="live")
                handle.signal("word", "second", key="2")
            return real.mail(cursor, **said)

    away: Any = Away()
    follower.source = away
    follower.step()
    follower.source = real
    source.handle("a/waits/main").signal("other", "third", key="3")
    serve(source, waiting_for(source, "a/waits/main", "Go on?"))
    put(source, "b", n=1)
    follower.drain()
    assert not follower.aside and same(source, target)
    promote(pair.target)
    target.handle("a/waits/main").answer(True)
    serve(target, all_done(target, "a", 1))
    verify_all(backend_of(target))


# -- promotion -----------------------------------------------------------------------------------


def test_a_hand_over_loses_nothing(pair: Pair) -> None:
    """Commits and messages that were acknowledged a moment before are at the new primary; the old
    one's writers are fenced, and told where it went."""
    source, target = pair.both()
    source.start(waits, "a", 1)
    serve(source, waiting_for(source, "a/waits/main", "word"))
    with following(pair.source, pair.target) as follower:
        follower.drain()
    put(source, "b", n=1)
    (run,) = source.runs("a")
    source.handle(run.id).signal("word", "late", key="k")
    done = promote(pair.target)
    assert done.lossless and done.commits == 2 and done.messages >= 1
    assert same(source, target)
    for write in (lambda: put(source, "b", n=2), lambda: source.run(short, "c", 1)):
        with pytest.raises(ClosedError) as refused:
            write()
        assert pair.target.rpartition("/")[2] in refused.value.url
    put(target, "b", n=2)
    target.handle(run.id).signal("word", "late", key="k")  # the same one: it is one signal
    serve(target, waiting_for(target, run.id, "Go on?"))
    target.handle(run.id).answer(True)
    serve(target, all_done(target, "a", 1))
    assert target.handle(run.id).result() == ["late", True]
    verify_all(backend_of(target))


def test_a_lost_source_is_said_to_be_lost(pair: Pair) -> None:
    source, target = pair.both()
    put(source, "a", n=1)
    follower_of(source, target).drain()
    backend = backend_of(target)
    backend.stand(Why("follows", "sqlite:////no/where.db", at=1_000_000).standing())
    with pytest.raises(perdure.StoreUnavailable, match="--source-is-lost") as refused:
        promote(pair.target)
    assert "1970-01-01T00:00:01" in str(refused.value)
    assert not promote(pair.target, source_is_lost=True).lossless
    put(target, "a", n=2)
    with pytest.raises(Conflict, match="store of its own"):
        promote(pair.target)


def test_i4_tokens_of_a_promoted_store_are_greater(pair: Pair) -> None:
    source, target = pair.both()
    source.run(short, "a", 1)
    follower_of(source, target).drain()
    there = backend_of(source)
    lease = there.lease(_info(source, "a").no, "main", "late")
    assert isinstance(lease, Lease)
    promote(pair.target, source_is_lost=True)
    mine = backend_of(target).lease(_info(target, "a").no, "main", "new")
    assert isinstance(mine, Lease)
    assert mine.epoch > lease.epoch


def test_an_old_primary_that_comes_back_is_shown_as_diverged(pair: Pair) -> None:
    source, target = pair.both()
    for n in range(3):
        put(source, "a", n=n)
        put(source, "b", n=n)
    follower_of(source, target).drain()
    put(source, "b", n="not shipped")
    promote(pair.target, source_is_lost=True)
    put(target, "a", n="new")
    put(source, "a", n="old")
    put(source, "a", n="older")
    with pytest.raises(DivergedError, match=r"'a', commit 5.*'b' from commit 5") as refused:
        follower_of(source, target)
    assert [(one.agent, one.seq, one.behind, one.commits) for one in refused.value.found] == [
        ("a", 5, False, 2),
        ("b", 5, True, 1),
    ]
    with pytest.raises(DivergedError, match=r"'a', commit 5"):
        follower_of(target, source, resync=True)
    put(target, "a", n="on")
    put(source, "a", n="on")


def test_an_old_primary_becomes_a_follower(pair: Pair) -> None:
    source, target = pair.both()
    Life(source, 5).go_on(20)
    follower_of(source, target).drain()
    promote(pair.target)
    Life(target, 6).go_on(20)
    with pytest.raises(Conflict):
        follower_of(target, source)
    follower = follower_of(target, source, resync=True)
    follower.drain()
    assert same(source, target)
    promote(pair.source)
    put(source, "a", n=1)
    verify_all(backend_of(source))


def test_a_promotion_may_be_repeated(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended after the source was closed: neither took writes, and nobody could help it."""
    source, target = pair.both()
    put(source, "a", n=1)
    follower_of(source, target).drain()
    backend = type(backend_of(target))
    real = backend.stand

    def fails(self: Any, standing: Any, no: int = 0, **more: Any) -> None:
        if not standing.closed:
            raise perdure.StoreUnavailable("the network is down")
        real(self, standing, no, **more)

    monkeypatch.setattr(backend, "stand", fails)
    with pytest.raises(perdure.StoreUnavailable):
        promote(pair.target)
    for store in (source, target):
        with pytest.raises(ClosedError):
            put(store, "a", n=2)
    monkeypatch.undo()
    assert promote(pair.target).lossless
    put(target, "a", n=2)


def test_an_interrupted_promotion_goes_on_behind_another_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy was named by the path behind a folder's link, after the source had been closed to it
    under the other one: both stores stayed closed, and only giving up commits led on."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "srv").symlink_to(tmp_path / "disk")
    source, copied = tmp_path / "source.db", tmp_path / "srv" / "copy.db"
    with perdure.open(source) as store:
        put(store, "a", n=1)
    with following(source, copied) as follower:
        follower.drain()
    with monkeypatch.context() as patch:
        patch.setattr(Follower, "complete", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            promote(copied)
    assert promote(tmp_path / "disk" / "copy.db").lossless


def test_only_a_follower_is_promoted(pair: Pair) -> None:
    pair.both()
    with pytest.raises(Conflict, match="follows nobody"):
        promote(pair.target)


def test_the_inbox_of_a_promoted_store_wakes_its_runs(pair: Pair) -> None:
    """A run had looked at message 57; at the new place numbers began at 1, and no signal ever
    woke it."""
    source, target = pair.both()
    source.start(waits, "a", 1)
    serve(source, waiting_for(source, "a/waits/main", "word"))
    (run,) = source.runs("a")
    handle = source.handle(run.id)
    for n in range(5):
        handle.signal("other", n)
    serve(source, lambda: backend_of(source).runs(RunQuery(run_id=run.id))[0].seen > 0)
    follower_of(source, target).drain()
    promote(pair.target, source_is_lost=True)
    target.handle(run.id).signal("word", "hear")
    serve(target, waiting_for(target, run.id, "Go on?"))


class BusySource:
    """A store in which something happens right behind a look at its feed.

    Args:
        and_then: what happens.
        goes_on: False: its feed shows nothing of that, e.g. because of a foreign transaction.
    """

    def __init__(self, store: Store, and_then: Callable[[], None], *, goes_on: bool) -> None:
        self._real = backend_of(store)
        self._and_then: Callable[[], None] | None = and_then
        self._goes_on = goes_on

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def feed(self, cursor: str = "", *, limit: int = 1000, to_the_end: bool = False) -> Feed:
        if self._and_then is None:
            return self._real.feed(cursor, limit=limit) if self._goes_on else Feed([], cursor)
        found = self._real.feed(cursor, limit=limit)
        self._and_then()
        self._and_then = None
        return found


def lose_busy(
    pair: Pair, follower: Follower, and_then: Callable[[], None], *, goes_on: bool
) -> None:
    """The copy looks once more at its source, which is lost then."""
    source: Any = BusySource(pair.both()[0], and_then, goes_on=goes_on)
    follower.source = source
    follower.step()
    promote(pair.target, source_is_lost=True)


def test_what_a_lost_source_took_out_since_the_last_look_can_be_sent_again(pair: Pair) -> None:
    """Between the look at the feed and the look at the mail, a run was requested and began, and
    another one took a signal. Then the source was lost: its copy knew both messages as taken out,
    and took them from nobody any more. The run that was requested again never began."""
    source, target = pair.both()
    source.start(waits, "old", 3)
    serve(source, waiting_for(source, "old/waits/main", "word"))
    assert source.handle("old/waits/main").signal("word", "came", key="1")
    serve(source, lambda: not backend_of(source).inbox())
    follower = follower_of(source, target)
    follower.drain()

    def meanwhile() -> None:
        source.start(waits, "new", 1)
        source.handle("old/waits/main").signal("word", "lost", key="2")
        serve(source, waiting_for(source, "new/waits/main", "word"))
        serve(source, lambda: not backend_of(source).inbox())

    lose_busy(pair, follower, meanwhile, goes_on=False)
    handle = target.handle("old/waits/main")
    assert not handle.signal("word", "came", key="1")
    assert handle.signal("word", "sent again", key="2")
    target.start(waits, "new", 1)
    serve(target, waiting_for(target, "new/waits/main", "word"))
    serve(target, lambda: not backend_of(target).inbox())


def begun_meanwhile(pair: Pair, *, goes_on: bool) -> str:
    """A child begins between the looks at the feed and at the mail, and the source is lost then.
    Returns the parent."""
    source = pair.open(pair.source)
    parent = source.start(asks, "parent", "child", 1)
    serve(source, lambda: parent.status == "waiting", [asks])

    def meanwhile() -> None:
        serve(source, lambda: not backend_of(source).inbox(), [waits])

    lose_busy(pair, follower_of(*pair.both()), meanwhile, goes_on=goes_on)
    return parent.id


def test_a_request_that_a_lost_source_took_out_comes_with_the_run_that_began(pair: Pair) -> None:
    """Between the looks at the feed and at the mail, a child began: its copy knew the request as
    taken out, without the child. The source was lost then, and the parent waited for ever: it had
    asked, in a commit that is there, and does not ask again."""
    parent = begun_meanwhile(pair, goes_on=True)
    target = pair.open(pair.target)
    (child,) = target.runs("child")
    target.handle(child.id).cancel()
    serve(target, lambda: target.handle(parent).status == "failed")


def test_a_run_whose_child_is_lost_with_the_source_is_told_to_a_person(pair: Pair) -> None:
    """The feed was held back: a copy had the parent's log, and knew the request of the child as
    taken out; the source was lost before the child's begin came. The parent waited for ever."""
    parent = begun_meanwhile(pair, goes_on=False)
    info = pair.open(pair.target).handle(parent).info
    assert (info.status, "did not come" in str(info.problem)) == ("needs_attention", True)


def test_an_imported_run_hears_what_is_sent_to_it(pair: Pair) -> None:
    """It had looked at message 3 at its old place. In the store that it was imported into the first
    signal was number 1: not later than what it had seen, so it was never woken."""
    source, target = pair.both()
    source.start(waits, "a", 1)
    serve(source, waiting_for(source, "a/waits/main", "word"))
    for n in range(3):
        source.handle("a/waits/main").signal("other", n)
    serve(source, lambda: backend_of(source).runs(RunQuery(run_id="a/waits/main"))[0].seen > 2)
    target.import_log(source.export_log(_info(source, "a")))
    target.handle("a/waits/main").signal("word", "hear")
    serve(target, waiting_for(target, "a/waits/main", "Go on?"))


# -- migration -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_a_store_moves_while_its_agents_run(pair: Pair, seed: int) -> None:
    source = pair.open(pair.source)
    life = Life(source, seed, names=6)
    life.go_on(40)
    late: list[str] = []

    def meanwhile(_: Any) -> None:
        for name in life.names:
            try:
                put(source, name, late=len(late))
                late.append(name)
            except ClosedError:
                continue

    moved = migrate(pair.source, pair.target, on_moved=meanwhile)
    assert late and moved
    target = pair.open(pair.target)
    assert same(source, target)
    verify_all(backend_of(target))
    for name in life.names:
        with pytest.raises(ClosedError, match="was moved to"):
            put(source, name, n=1)
    for info in target.agents():
        put(target, info.name, n=1)
    serve(target)
    with pytest.raises(Conflict, match="already"):
        migrate(pair.source, pair.target)


def test_what_is_sent_to_the_old_place_arrives(pair: Pair) -> None:
    source, target = pair.both()
    source.start(waits, "a", 1)
    serve(source, waiting_for(source, "a/waits/main", "word"))
    (run,) = source.runs("a")
    put(source, "b", n=1)
    migration = Migration(backend_of(source), backend_of(target))
    migration.begin()
    migration.drain()
    migration.move(_info(source, "a"))
    source.handle(run.id).signal("word", "sent to the old place", key="k")
    source.start(short, "a", 5)
    put(source, "b", n=2)  # not moved yet
    with pytest.raises(ClosedError):
        put(target, "b", n=2)
    with pytest.raises(ClosedError):
        put(source, "a", n=2)
    migration.drain()
    target.handle(run.id).signal("word", "again", key="k2")
    serve(target, waiting_for(target, run.id, "Go on?"))
    target.handle(run.id).answer(True)
    serve(target, all_done(target, "a", 2))
    assert target.handle(run.id).result() == ["sent to the old place", True]
    source.start(short, "to-be", 1)
    again = Migration(backend_of(source), backend_of(target))  # as after a crash
    again.run()
    serve(target, all_done(target, "to-be", 1))
    assert target.agent("b").state == {"n": 2}
    assert all(backend_of(target).standing(no) is None for no in range(5))


def test_who_waits_for_a_run_at_its_old_place_is_told_where_it_went(pair: Pair) -> None:
    """A program had waited through the move of its run. It went on waiting, for good; and `why`
    told that it waits for a signal, which had come long ago."""
    source, target = pair.both()
    source.start(waits, "a", 1)
    serve(source, waiting_for(source, "a/waits/main", "word"))
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(source.handle("a/waits/main").result)
        migrate(pair.source, pair.target)
        with pytest.raises(ClosedError, match="was moved to") as told:
            waiter.result(WAIT_MAX_S)
    assert told.value.url == backend_of(target).url
    said = source.handle("a/waits/main").why()  # it was: waits for signal 'word'
    assert said.situation == "stopped" and f"was moved to {told.value.url}" in said.why
    assert said.ways and "open it there" in said.ways[0].words
    assert target.handle("a/waits/main").why().situation == "waiting"

    async def look() -> None:
        async with perdure.open_async(pair.source) as store:
            handle = await store.handle("a/waits/main")
            with pytest.raises(ClosedError, match="was moved to"):
                await handle.result(WAIT_MAX_S)

    asyncio.run(look())


def test_a_run_that_needed_a_person_as_it_was_moved_is_told_of_where_it_is(pair: Pair) -> None:
    """It was settled there, and came to its end. At its old place a program was told for ever that
    it needs a person, and how to settle it."""
    source, target = pair.both()
    crashes = True

    @perdure.tool
    def wire() -> str:
        if crashes:
            raise SystemExit
        return "receipt"

    @perdure.agent(dict)
    def transfers(run: perdure.Run[dict[str, Any]]) -> str:
        return wire()

    with pytest.raises(SystemExit):
        source.run(transfers, "a")
    with pytest.raises(NeedsAttention):
        source.run(transfers, "a")
    crashes = False
    migrate(pair.source, pair.target)
    target.handle("a/transfers/main").settle("wire#1", done="receipt", by="a person")
    assert target.run(transfers, "a") == "receipt"
    with pytest.raises(ClosedError, match="was moved to"):
        source.handle("a/transfers/main").result(WAIT_MAX_S)

    async def look() -> None:
        async with perdure.open_async(pair.source) as store:
            with pytest.raises(ClosedError, match="was moved to"):
                await (await store.handle("a/transfers/main")).result(WAIT_MAX_S)

    asyncio.run(look())


def test_a_move_ends_beside_a_program_that_creates_agents(pair: Pair) -> None:
    """It made one for each request, faster than they were moved: the move went on for as long as
    the program did, with the agents in two stores."""
    source, target = pair.both()
    names = [f"agent-{n:03}" for n in range(3)]
    for name in names:
        put(source, name, n=1)

    def create(moved: Any) -> None:
        assert len(names) < 100, "it goes on for good"
        for _ in range(2):
            put(source, f"agent-{len(names):03}", n=1)
            names.append(f"agent-{len(names):03}")

    moved = migrate(pair.source, pair.target, on_moved=create)
    assert 3 <= len(moved) < len(names)
    assert [info.name for info in target.agents()] == names
    for name in names:
        with pytest.raises(ClosedError, match="was moved to"):
            put(source, name, n=2)
        put(target, name, n=2)
    verify_all(backend_of(target))


def test_a_signal_wakes_a_run_that_another_process_has_moved(pair: Pair) -> None:
    """Two processes moved the same agents. One brought a signal to an agent that the other had
    moved, with its number at the old place: lower than what the run had seen at the new one, so the
    run was never woken."""
    source, target = pair.both()
    source.start(waits, "a", 2)
    run = "a/waits/main"
    serve(source, waiting_for(source, run, "word"))
    first, second = (Migration(backend_of(source), backend_of(target)) for _ in range(2))
    first.begin()
    second.begin()
    first.drain()
    first.move(_info(source, "a"))
    target.handle(run).signal("word", "at the new place", key="1")
    serve(target, lambda: backend_of(target).runs(RunQuery(run_id=run))[0].seen > 0)
    source.handle(run).signal("word", "at the old place", key="2")
    second.drain()
    serve(target, waiting_for(target, run, "Go on?"))
    second.run()


def begun_after_the_last_look(pair: Pair, child: str, parent: str, words: int) -> Any:
    """A migration that has seen nothing of a run and its child, which just began; and the child."""
    source, target = pair.both()
    put(source, child, n=1)
    migration = Migration(backend_of(source), backend_of(target))
    migration.begin()
    migration.drain()
    run_until_waiting(source, asks, parent, child, words)
    (asked,) = backend_of(source).inbox(kind="start")
    return migration, source, target, asked.run


def test_i8_a_child_that_arrived_tells_a_parent_of_which_nothing_is_there_yet(pair: Pair) -> None:
    """It ended, and its parent was said to be gone. That came later, and waited for good."""
    migration, source, target, child = begun_after_the_last_look(pair, "child", "parent", 0)
    migration.move(_info(source, "child"))
    with pytest.raises(ClosedError, match="being moved here"):
        target.options(key=child.rpartition("/")[2]).run(short, "child", 1)
    migration.run()
    serve(target, all_done(target, "parent", 1))


def test_i8_a_parent_that_arrived_ends_a_child_of_which_nothing_is_there_yet(pair: Pair) -> None:
    """It was cancelled, and its child, which was to end with it, arrived later and went on."""
    migration, source, target, child = begun_after_the_last_look(pair, "child", "parent", 1)
    serve(source, waiting_for(source, child, "word"))
    migration.move(_info(source, "parent"))
    target.handle("parent/asks/main").cancel()
    with pytest.raises(ClosedError, match="being moved here"):
        run_until_waiting(target, asks, "parent", "child", 1)
    migration.run()
    serve(target, lambda: target.handle(child).status == "cancelled")
    assert target.handle("parent/asks/main").status == "cancelled"


def test_a_store_that_was_promoted_moves_on(pair: Pair) -> None:
    """A promoted store numbers its messages far above those that came. The store that it moved to
    began at that very number, too: a message that was sent to one and one that was sent to the
    other had the same, and the agent of one of them could not be moved, ever."""
    before = pair.another("memory")
    put(pair.open(before), "b", n=1)
    with following(before, pair.source) as follower:
        follower.drain()
    promote(pair.source)
    source, target = pair.both()
    put(source, "a", n=1)
    migration = Migration(backend_of(source), backend_of(target))
    migration.begin()
    migration.drain()
    migration.move(_info(source, "a"))
    for n in range(3):
        target.options(key=f"there {n}").start(short, "a", n)
        source.options(key=f"here {n}").start(short, "b", n)
    migration.run()
    serve(target, lambda: all_done(target, "a", 3)() and all_done(target, "b", 3)())
    verify_all(backend_of(target))


def test_a_log_before_a_purged_one_comes_along(pair: Pair) -> None:
    """An agent was deleted, made anew and purged, and made anew. What is left of the purged log was
    shipped before the log in front of it, which was refused then: first with an error for the whole
    agent, and when that was tried again, the old log was left out, without a word."""
    source, target = pair.both()
    put(source, "b", n=1)
    for purge in (False, True, False, True):
        put(source, "a", n=1)
        source.delete("a", purge=purge)
    source.purge()
    put(source, "a", n=5)
    follower = follower_of(source, target)
    follower.drain()
    assert follower.aside == ()
    assert same(source, target)
    assert len(list(incarnations(backend_of(target)))) == 6
    verify_all(backend_of(target))
    migrated = pair.another("memory")
    migrate(pair.source, migrated)
    assert same(source, pair.open(migrated))


def test_an_agent_between_the_stores_comes_first(pair: Pair) -> None:
    """Who moved it was killed when it was closed at the source and not open at the target."""
    source, target = pair.both()
    for name in ("a", "b", "c"):
        put(source, name, n=1)
    ended = Migration(backend_of(source), backend_of(target))
    ended.begin()
    backend_of(source).stand(Why("moved", target.url).standing(), _info(source, "c").no)
    moved = Migration(backend_of(source), backend_of(target)).run()
    assert [one.agent for one in moved] == ["c", "a", "b"]
    assert same(source, target)


def test_an_executor_of_the_old_place_is_fenced(pair: Pair) -> None:
    """I4: its tool was under way when its agent moved. It cannot say so any more; at the new place
    the call is in doubt, and its policy decides."""
    source, target = pair.both()
    calls: list[str] = []

    @perdure.tool(on_crash="retry")
    def slow() -> str:
        calls.append("called")
        if len(calls) == 1:
            migrate(pair.source, pair.target)
        return "made"

    @perdure.agent(dict)
    def mover(run: perdure.Run[dict[str, Any]]) -> str:
        return slow()

    with pytest.raises(ClosedError, match="was moved to"):
        source.run(mover, "a")
    assert target.run(mover, "a") == "made"
    assert calls == ["called", "called"]
    verify_all(backend_of(target))


def test_a_follower_is_not_moved(pair: Pair) -> None:
    source, target = pair.both()
    put(source, "a", n=1)
    follower_of(source, target).drain()
    with pytest.raises(Conflict, match="follows"):
        migrate(pair.target, pair.another("memory"))


# -- a moment ------------------------------------------------------------------------------------


def test_a_moment_is_restored(pair: Pair) -> None:
    source = pair.open(pair.source)
    life = Life(source, 3)
    life.go_on(30)
    then = {info.name: info.seq for info in source.agents()}
    commits = [source.agent_of(info).log() for info in source.agents()]
    at = max(commit.at for log in commits for commit in log)
    source.delete(next(iter(then)))
    for name in then:
        put(source, name, later=True)
    follower_of(source, pair.open(pair.another("memory")))
    done = restore(pair.source, pair.target, at)
    target = pair.open(pair.target)
    assert {info.name: info.seq for info in target.agents()} == then
    assert done.commits == sum(then.values())
    verify_all(backend_of(target))
    for name in then:
        put(target, name, on=True)
    with pytest.raises(Conflict, match="agents of its own"):
        restore(pair.source, pair.target, at - timedelta(microseconds=1))


def test_a_restore_that_was_killed_as_it_ended_says_that_it_was_done(pair: Pair) -> None:
    """Called again with the same moment, as the docs say, it was refused: the store had "agents of
    its own", and the hint was to take another one."""
    source, target = pair.both()
    put(source, "a", n=1)
    at = datetime.now(UTC)
    assert restore(pair.source, pair.target, at).commits == 2
    put(target, "a", n=2)
    for _ in range(2):
        with pytest.raises(DoneBeforeError, match=r"was restored from .* before"):
            restore(pair.source, pair.target, at)
    third = pair.another("memory")
    follower_of(target, pair.open(third))  # it is a store like any other
    with pytest.raises(Conflict, match="agents of its own"):
        migrate(pair.source, pair.target)


def test_a_moment_has_a_zone(pair: Pair) -> None:
    pair.both()
    with pytest.raises(ValueError, match="zone"):
        restore(pair.source, pair.target, datetime(2026, 1, 1))
    restore(pair.source, pair.target, datetime.now(UTC) - timedelta(days=1))


def test_a_restore_that_was_ended_goes_on(pair: Pair) -> None:
    source, target = pair.both()
    Life(source, 4).go_on(30)
    at = datetime.now(UTC)
    until = int(at.timestamp() * 1e6)
    begun = Follower(backend_of(source), backend_of(target), kind="restoring", until=until)
    begun.begin()
    begun.step(limit=5)
    with pytest.raises(ClosedError, match="restored"):
        put(target, "a", n=1)
    third = pair.another("memory")
    with pytest.raises(Conflict, match="is not all there"), following(pair.target, third):
        pass
    with pytest.raises(Conflict, match="is not all there"):
        restore(pair.target, third, at)
    with pytest.raises(Conflict, match="is being restored"):
        restore(pair.source, pair.target, at - timedelta(hours=1))
    why = read_why(backend_of(target).standing())
    assert why is not None
    at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=until)
    done = restore(pair.source, pair.target, at)
    assert done.commits == len(backend_of(target).feed().entries)  # not those of its end alone
    put(target, "a", n=1)
    verify_all(backend_of(target))


# -- workers -------------------------------------------------------------------------------------


class Working:
    """A worker on a thread, until the block ends."""

    def __init__(self, store: Store) -> None:
        self._worker = perdure.Worker(store, [short, waits, slowly])
        self._thread = threading.Thread(target=self._worker.run, kwargs={"signals": False})

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._worker.stop()
        self._thread.join()


done_steps: list[tuple[str, int]] = []


@perdure.tool(on_crash="retry")
def one_step(agent: str, n: int) -> int:
    done_steps.append((agent, n))
    return n


@perdure.agent(dict)
def slowly(run: perdure.Run[dict[str, Any]], agent: str) -> int:
    return sum(one_step(agent, n) for n in range(20))


def until(reached: Callable[[], bool]) -> None:
    patience = time.monotonic() + WAIT_MAX_S
    while not reached():
        assert time.monotonic() < patience
        time.sleep(0.005)


def test_a_worker_of_a_follower_begins_when_it_is_promoted(pair: Pair) -> None:
    source, target = pair.both()
    source.start(short, "a", 1)
    source.start(slowly, "b", "b")
    follower_of(source, target).drain()
    with Working(target):
        until(lambda: bool(backend_of(target).executors()))
        assert backend_of(target).agent("a") is None
        promote(pair.target)
        until(lambda: [run.status for run in target.runs()] == ["done", "done"])
    verify_all(backend_of(target))


def test_i8_runs_go_on_where_their_agents_move(pair: Pair) -> None:
    """Workers on both ends, and a move in the middle: each run ends, at the target; a call that
    was under way is in doubt, and made again; no other is."""
    source, target = pair.both()
    names = [f"mover-{next(_names)}" for _ in range(4)]
    for name in names:
        source.start(slowly, name, name)
    with Working(source), Working(target):
        until(lambda: any(agent in names for agent, _ in list(done_steps)))
        migrate(pair.source, pair.target)
        until(lambda: [run.status for run in target.runs()] == ["done"] * 4)
    for name in names:
        made = [n for agent, n in done_steps if agent == name]
        assert sorted(set(made)) == list(range(20))
        assert len(made) <= 21
        (run,) = target.runs(name)
        assert run.result == 190
    verify_all(backend_of(target))


@pytest.mark.parametrize("ends", [True, False])
def test_a_restore_has_what_an_open_transaction_holds_back(ends: bool) -> None:
    """Some program had a transaction open at the same server: the feed waits for its end. The
    restored store lacked all since its begin, and opened without a word."""
    url, target = shared().new_url(), shared().new_url()
    with perdure.open(url) as store, psycopg.connect(shared().own_url) as other:
        put(store, "a", n=1)
        put(store, "ended", n=1)
        other.execute("SELECT txid_current()")
        put(store, "a", n=2)
        put(store, "b", n=1)
        store.start(short, "c", 1)
        put(store, "ended", n=2)
        at = datetime.now(UTC)
        if ends:
            store.delete("ended")
        restore(url, target, at)
    with perdure.open(target) as restored:
        found = {info.name: info.seq for info in restored.agents()}
        assert found == {"a": 3, "b": 2, "ended": 3}
        assert [message.agent for message in backend_of(restored).inbox()] == ["c"]


@pytest.mark.parametrize("how", ["promote", "migrate", "restore"])
def test_a_signal_that_was_taken_is_known_though_an_open_transaction_holds_it_back(
    tmp_path: Path, how: str
) -> None:
    """A run took a signal while some program had a transaction open at the same server, and its
    store was handed over. The new one did not know the signal: its sender repeated it, as it may,
    and the run took it a second time."""
    url, target = shared().new_url(), str(tmp_path / "target.db")
    with perdure.open(url) as store, psycopg.connect(shared().own_url) as other:
        store.start(waits, "a", 2)
        serve(store, waiting_for(store, "a/waits/main", "word"))
        other.execute("SELECT txid_current()")
        handle = store.handle("a/waits/main")
        assert handle.signal("word", "pay", key="order-1")
        serve(store, lambda: not backend_of(store).inbox())
        handle.signal("other", "unread", key="order-1")
        at = datetime.now(UTC)
        if how == "restore":
            restore(url, target, at)
        elif how == "migrate":
            assert [moved.agent for moved in migrate(url, target)] == ["a"]
        else:
            with perdure.open(target) as opened:
                follower_of(store, opened).drain()
            promote(target)
    with perdure.open(target) as opened:
        handle = opened.handle("a/waits/main")
        assert not handle.signal("word", "pay", key="order-1")
        assert [one.value for one in backend_of(opened).inbox()] == ["unread"]
        handle.signal("word", "more", key="order-2")
        serve(opened, waiting_for(opened, "a/waits/main", "Go on?"))
        handle.answer(True)
        serve(opened, lambda: handle.status == "done")
        assert handle.result() == ["pay", "more", True]


@pytest.mark.parametrize("leaves_out", [True, False])
def test_an_agent_that_is_purged_while_a_restore_reads_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, leaves_out: bool
) -> None:
    """The agent was missing in the restored store, and nobody said so; or, where its log had been
    trimmed, the restore ended with "is gone"."""
    source, target = pair.both()
    put(source, "a", n=1)
    put(source, "b", n=1)
    at = datetime.now(UTC)
    source.delete("a", purge=True)
    read, purged = LogReader.trim, list[bool]()

    def trim(reader: LogReader, *how: Any) -> Any:
        if not purged:
            purged.append(True)
            source.purge()
        return read(reader, *how)

    monkeypatch.setattr(LogReader, "trim", trim)
    if not leaves_out:
        with pytest.raises(Conflict, match="was purged, while it was restored"):
            restore(pair.source, pair.target, at)
        return
    restored = restore(pair.source, pair.target, at, take_incomplete=True)
    assert purged and [one.agent for one in restored.incomplete] == ["a"]
    assert [info.name for info in target.agents()] == ["b"]
