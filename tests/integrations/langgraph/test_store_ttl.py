"""Items that expire, by a clock that stands still until the test moves it."""

# mypy: disable-error-code="arg-type, union-attr"

import gc
import threading
import weakref
from datetime import UTC, datetime, timedelta

import pytest

import perdure
from perdure.integrations.langgraph.store.memory_store import PerdureStore
from perdure.replication import following

SPACE = ("cache", "a")


class Clock:
    def __init__(self):
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now

    def advance(self, minutes):
        self.now += timedelta(minutes=minutes)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def base():
    with perdure.open("memory://") as store:
        yield store


def seq(base):
    return base.find("store:cache").seq


def test_an_item_lives_for_its_ttl_from_its_last_read_on(base, clock):
    store = PerdureStore(base, ttl={}, clock=clock)
    store.put(SPACE, "k", {"n": 1}, ttl=10)
    store.put(SPACE, "stays", {"n": 2})
    clock.advance(6)
    assert store.get(SPACE, "k").value == {"n": 1}
    clock.advance(6)
    assert [item.key for item in store.search(SPACE, filter={"n": 1})] == ["k"]
    clock.advance(6)
    assert PerdureStore(base, ttl={}, clock=clock).get(SPACE, "k") is not None
    clock.advance(6)
    assert store.get(SPACE, "k", refresh_ttl=False) is not None
    clock.advance(4)
    assert store.get(SPACE, "k") is None
    assert [item.key for item in store.search(SPACE)] == ["stays"]
    assert store.get(SPACE, "stays") is not None


def test_reads_refresh_only_where_that_was_asked_for(base, clock):
    store = PerdureStore(base, ttl={"refresh_on_read": False, "default_ttl": 10}, clock=clock)
    store.put(SPACE, "k", {})
    store.put(SPACE, "l", {})
    store.put(SPACE, "for ever", {}, ttl=None)
    clock.advance(6)
    before = seq(base)
    assert store.get(SPACE, "k") is not None and len(store.search(SPACE)) == 3
    assert seq(base) == before
    assert store.get(SPACE, "l", refresh_ttl=True) is not None
    assert seq(base) == before + 1
    clock.advance(6)
    assert {item.key for item in store.search(SPACE)} == {"l", "for ever"}
    without = PerdureStore(base, clock=clock)  # no configuration: nothing is refreshed
    assert without.get(SPACE, "l", refresh_ttl=True) is not None
    assert seq(base) == before + 1


def test_what_is_read_is_the_answer_where_nothing_can_be_written(tmp_path, clock):
    """A read extends an item's life by a commit. On a copy, or with the disk full, where there is
    none to be made, the read failed: a graph that only looked up what a user likes came to a
    stop."""
    source, copy = f"sqlite:///{tmp_path / 'a.db'}", f"sqlite:///{tmp_path / 'b.db'}"
    with perdure.open(source) as base:
        PerdureStore(base, clock=clock).put(SPACE, "k", {"n": 1}, ttl=5)
    with following(source, copy) as follower:
        follower.drain()
    clock.advance(3)
    with perdure.open(copy) as base:
        store = PerdureStore(base, ttl={}, clock=clock)
        assert store.get(SPACE, "k").value == {"n": 1}
        assert len(store.search(SPACE)) == 1
        with pytest.raises(perdure.StoreUnavailable):
            store.put(SPACE, "k", {"n": 2})
        clock.advance(3)  # its life was not extended
        assert store.get(SPACE, "k") is None


def test_reading_all_the_time_does_not_fill_the_log(base, clock):
    store = PerdureStore(base, ttl={}, clock=clock)
    store.put(SPACE, "k", {}, ttl=100)
    before = seq(base)
    for _ in range(400):
        clock.advance(0.1)
        assert store.get(SPACE, "k") is not None
    assert seq(base) - before <= 40
    clock.advance(99)
    assert store.get(SPACE, "k") is not None


def test_expired_items_that_are_not_swept_may_be_shown(base, clock):
    store = PerdureStore(base, ttl={"omit_expired": False, "refresh_on_read": False}, clock=clock)
    hides = PerdureStore(base, clock=clock)
    store.put(SPACE, "k", {}, ttl=1)
    clock.advance(2)
    assert store.get(SPACE, "k") is not None and store.list_namespaces() == [SPACE]
    assert hides.get(SPACE, "k") is None and hides.list_namespaces() == []
    assert store.sweep_ttl() == 1
    assert store.get(SPACE, "k") is None and store.list_namespaces() == []


def test_a_sweep_takes_away_what_has_expired_and_nothing_else(base, clock):
    store = PerdureStore(base, ttl={"refresh_on_read": True}, clock=clock)
    for number in range(10):
        store.put(("cache", str(number % 3)), f"k{number}", {}, ttl=number + 1)
        store.put((f"other-{number}",), "k", {}, ttl=1 if number < 2 else None)
    clock.advance(5)
    before = seq(base)
    assert store.sweep_ttl() == 5 + 2
    assert seq(base) == before + 1
    assert store.sweep_ttl() == 0 and seq(base) == before + 1
    assert len(store.search((), limit=100)) == 5 + 8
    base.agent_of(base.find("store:cache")).verify()


def test_a_sweep_spares_what_was_put_or_read_since_it_looked(base, clock, monkeypatch):
    store, other = PerdureStore(base, ttl={}, clock=clock), PerdureStore(base, clock=clock)
    for key in ("a", "b", "c"):
        store.put(SPACE, key, {"n": 1}, ttl=1)
    clock.advance(2)
    (shard,) = store._looked(None)
    write = shard.write

    def late(changes):
        other.put(SPACE, "a", {"n": 2})
        other.put(SPACE, "b", {"n": 2}, ttl=1)
        return write(changes)

    monkeypatch.setattr(shard, "write", late)
    assert store.sweep_ttl() == 1
    monkeypatch.undo()
    assert sorted(item.key for item in store.search(SPACE)) == ["a", "b"]


def test_a_put_over_what_has_expired_begins_anew(base, clock):
    store = PerdureStore(base, clock=clock)
    store.put(SPACE, "k", {"n": 1}, ttl=1)
    clock.advance(2)
    store.put(SPACE, "k", {"n": 2})
    item = store.get(SPACE, "k")
    assert item.created_at == item.updated_at == clock.now
    clock.advance(1000)
    assert store.get(SPACE, "k").value == {"n": 2}  # the second had no ttl


def test_a_ttl_of_nothing(base, clock):
    store = PerdureStore(base, clock=clock)
    store.put(SPACE, "k", {}, ttl=0)
    assert store.get(SPACE, "k") is None
    assert store.sweep_ttl() == 1


def test_the_sweeper(base, clock):
    store = PerdureStore(base, ttl={"default_ttl": 1, "sweep_interval_minutes": 60}, clock=clock)
    store.put(SPACE, "k", {})
    clock.advance(2)
    swept = threading.Event()
    sweep = store.sweep_ttl

    class Told(PerdureStore):
        def sweep_ttl(self):
            count = super().sweep_ttl()
            if count:
                swept.set()
            return count

    store.__class__ = Told
    future = store.start_ttl_sweeper(sweep_interval_minutes=0.0001)
    assert store.start_ttl_sweeper() is future  # it runs already
    assert swept.wait(60)
    assert sweep() == 0
    assert store.stop_ttl_sweeper(timeout=60)
    assert future.result(timeout=60) is None
    again = store.start_ttl_sweeper(sweep_interval_minutes=60)
    assert again is not future and again.cancel()
    assert store.stop_ttl_sweeper(timeout=60) and store.stop_ttl_sweeper()


def test_the_sweeper_outlives_errors(base, clock, caplog):
    store = PerdureStore(base, ttl={"default_ttl": 1}, clock=clock)
    tried = threading.Semaphore(0)

    class Fails(PerdureStore):
        def sweep_ttl(self):
            tried.release()
            raise OSError("no")

    store.__class__ = Fails
    store.start_ttl_sweeper(sweep_interval_minutes=0.0001)
    for _ in range(3):
        assert tried.acquire(timeout=60)
    assert store.stop_ttl_sweeper(timeout=60)
    assert "the next sweep tries again" in caplog.text


def test_the_sweeper_ends_with_its_store(base):
    store = PerdureStore(base, ttl={"default_ttl": 1})
    future = store.start_ttl_sweeper(sweep_interval_minutes=0.0001)
    gone = weakref.ref(store)
    del store
    gc.collect()
    future.result(timeout=60)
    assert gone() is None


def test_without_a_configuration_there_is_no_sweeper(base):
    store = PerdureStore(base)
    assert store.start_ttl_sweeper().done() and store.stop_ttl_sweeper()
    assert store.supports_ttl


def test_closing_stops_the_sweeper(tmp_path):
    with PerdureStore.from_url(tmp_path / "a.db", ttl={"default_ttl": 1}) as store:
        future = store.start_ttl_sweeper(sweep_interval_minutes=60)
    assert future.done()


class Minutes(int):
    pass


def test_what_is_no_life_is_refused_where_it_is_given(base, clock):
    """Story: a negative `default_ttl` was taken, and each put failed; with a negative interval the
    sweeper swept without a pause; a subclass of int, as of an enum, was refused by the log."""
    with pytest.raises(ValueError, match="0 to 1e9 minutes"):
        PerdureStore(base, ttl={"default_ttl": -1}, clock=clock)
    with pytest.raises(ValueError, match="must not be negative"):
        PerdureStore(base, ttl={"sweep_interval_minutes": -1}, clock=clock)
    store = PerdureStore(base, ttl={}, clock=clock)
    with pytest.raises(ValueError, match="must not be negative"):
        store.start_ttl_sweeper(-1)
    store.put(SPACE, "k", {"n": 1}, ttl=Minutes(10))
    assert store.get(SPACE, "k") is not None
