"""Steps that do not wait for the disk: each cheap step of a run paid for a sync of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import GroupPolicy, Store
from perdure.model import Durability
from perdure.storage.appending import Append, Riders, together
from perdure.storage.disk_waits import DiskWaits
from perdure.storage.sqlite import housekeeper, writer
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.wal import sync_wal
from perdure.testing import kill_at_every_boundary
from perdure.testing.faults import FaultyFiles
from tests.engine.conftest import CrashError, Crashes, Place

NEVER = timedelta(days=365)


@perdure.step(durability="group")
def cheap(number: int) -> int:
    return number


@perdure.step
def dear(number: int) -> int:
    return number


class Syncs:
    """A store in a file, and how often SQLite has synced that."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = FaultyFiles()
        self.opened: list[Store] = []

    def open(self, durability: Durability = "sync", group: GroupPolicy | None = None) -> Store:
        group = group or GroupPolicy(1_000_000, NEVER)
        path = str(self.folder / "s.db")
        backend = SqliteBackend(path, durability=durability, group=group, vfs=self.files.name)
        self.opened.append(Store(backend))
        return self.opened[-1]

    @property
    def number(self) -> int:
        return self.files.counts.get("sync", 0)

    def during(self, call: Any, *args: Any) -> int:
        before = self.number
        call(*args)
        return self.number - before


@pytest.fixture
def syncs(tmp_path: Path) -> Iterator[Syncs]:
    found = Syncs(tmp_path)
    yield found
    for store in found.opened:
        store.close()


def counted(store: Store, syncs: Syncs, *calls: Any) -> list[int]:
    """Makes calls in a run, and returns how often each synced. The first that does not wait notes
    durably, once, that the end of the store's WAL may be missing: a call before is for that."""
    found: list[int] = []
    calls = (cheap, pay, *calls)

    @perdure.agent(dict)
    def act(run: perdure.Run[dict[str, Any]]) -> None:
        found.extend(syncs.during(call, number) for number, call in enumerate(calls))

    store.run(act, "a")
    return found[2:]


@perdure.tool
def pay(number: int) -> int:
    return number


def test_a_step_of_a_group_waits_for_no_sync_and_a_tool_does(syncs: Syncs) -> None:
    found = counted(syncs.open(), syncs, cheap, cheap, dear, cheap, pay, cheap)
    assert found == [0, 0, 1, 0, 2, 0]


def test_i5_a_tool_finds_on_disk_what_came_before(syncs: Syncs) -> None:
    """The tool was paid for what a step had found; the step was lost, and found something else."""
    seen: list[int] = []

    @perdure.tool
    def look(number: int) -> int:
        seen.append(syncs.number)
        return number

    @perdure.agent(dict)
    def act(run: perdure.Run[dict[str, Any]]) -> None:
        cheap(0)
        dear(0)
        seen.append(syncs.number)
        look(cheap(1))

    syncs.open().run(act, "a")
    before, at_call = seen
    assert at_call == before + 1


def test_each_nth_waits(syncs: Syncs) -> None:
    store = syncs.open(group=GroupPolicy(every_commits=3, every_seconds=NEVER))
    assert counted(store, syncs, *[cheap] * 7) == [0, 0, 1, 0, 0, 1, 0]


def test_each_nth_of_a_store_waits(syncs: Syncs) -> None:
    store = syncs.open("group", GroupPolicy(2, NEVER))
    assert counted(store, syncs, *[dear] * 5) == [0, 1, 0, 1, 0]


def test_a_step_may_ask_for_more_than_its_store(syncs: Syncs) -> None:
    @perdure.step(durability="sync")
    def careful(number: int) -> int:
        return number

    found = counted(syncs.open("os"), syncs, careful, cheap, dear, careful)
    assert found == [1, 0, 0, 1]


def test_one_that_waits_makes_all_of_its_transaction_wait() -> None:
    """Commits of concurrent calls are shared, and so are transactions of several runs."""
    lazy, plain = Riders(lazy=True), Riders()

    def needed(durability: Durability, *several: Riders) -> bool:
        batch = [Append("a", 1, 1, 2, b"", b"", "main", 1, riders=one) for one in several]
        assert DiskWaits(durability, GroupPolicy()).needed([*batch[:1], *batch]) == (
            DiskWaits(durability, GroupPolicy()).needed(batch)
        )
        one = DiskWaits(durability, GroupPolicy()).needed(batch)
        batch = [Append("a", 1, 1, 2, b"", b"", "main", 1, riders=together(several))]
        assert DiskWaits(durability, GroupPolicy()).needed(batch) == one
        return one

    sync = Riders(sync=True)
    assert not needed("sync", lazy, lazy)
    assert needed("sync", lazy, plain) and needed("sync", plain)
    for weaker in ("group", "os"):
        assert not needed(weaker, lazy, plain)
        assert needed(weaker, lazy, plain, sync)


def test_after_a_while_it_is_synced_without_a_commit(
    syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = threading.Event()

    def sync(path: str) -> None:
        sync_wal(path)
        synced.set()

    monkeypatch.setattr(housekeeper, "sync_wal", sync)
    store = syncs.open(group=GroupPolicy(1_000_000, 0.001))

    @perdure.agent(dict)
    def act(run: perdure.Run[dict[str, Any]]) -> bool:
        dear(0)
        synced.clear()
        cheap(1)
        return synced.wait(30)

    assert store.run(act, "a")


def test_a_store_that_may_wait_for_a_year_closes_at_once_and_syncs(
    syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing waited for the thread that slept until the next sync was due."""
    synced: list[str] = []

    def sync(path: str) -> None:
        sync_wal(path)
        synced.append(path)

    monkeypatch.setattr(writer, "sync_wal", sync)
    store = syncs.open("group")
    with store.agent("a").edit("one") as draft:
        draft["n"] = 1
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()
    assert synced


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_is_lost_is_computed_again(place: Place, crash: Crashes, asynchronous: bool) -> None:
    """A crash of the process takes nothing: only of the machine."""

    @perdure.step(durability="group", retry=2)
    def think(number: int) -> int:
        crash.note(number)
        if crash.calls == [0]:
            raise ValueError("once")
        return number

    @perdure.agent(dict, name="act")
    def act(run: perdure.Run[dict[str, Any]]) -> int:
        found = think(0) + think(1)
        crash("here")
        return found

    @perdure.agent(dict, name="act")
    async def aact(run: perdure.AsyncRun[dict[str, Any]]) -> int:
        found = await run.call(think, 0) + await run.call(think, 1)
        crash("here")
        return found

    kept_open = place.open(durability="sync")

    async def main() -> Any:
        async with perdure.open_async(place.url) as store:
            return await store.run(aact, "a")

    crash.arm("here")
    with pytest.raises(CrashError):
        asyncio.run(main()) if asynchronous else kept_open.run(act, "a")
    assert (asyncio.run(main()) if asynchronous else kept_open.run(act, "a")) == 1
    assert crash.calls == [0, 0, 1]


def test_killed_at_every_boundary_it_ends_the_same() -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict[str, Any]]) -> list[int]:
        return [cheap(1), cheap(2), dear(3), cheap(4)]

    assert all(ending.result == [1, 2, 3, 4] for ending in kill_at_every_boundary(act))


@pytest.mark.parametrize("wrong", ["os", "none", "", True, 1, object()])
def test_a_durability_that_a_step_cannot_have(wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="durability="):
        perdure.step(durability=wrong)
    with pytest.raises(TypeError):
        perdure.tool(durability="group")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"every_commits": 0}, ValueError),
        ({"every_commits": -1}, ValueError),
        ({"every_commits": True}, TypeError),
        ({"every_commits": 1.5}, TypeError),
        ({"every_commits": None}, TypeError),
        ({"every_seconds": 0}, ValueError),
        ({"every_seconds": -1}, ValueError),
        ({"every_seconds": float("nan")}, ValueError),
        ({"every_seconds": "1"}, TypeError),
        ({"every_seconds": None}, TypeError),
        ({"every_seconds": timedelta(days=400_000)}, ValueError),
    ],
)
def test_a_policy_that_cannot_be_kept(wrong: dict[str, Any], error: Any) -> None:
    with pytest.raises(error, match="GroupPolicy"):
        GroupPolicy(**wrong)


def test_what_is_no_policy() -> None:
    for wrong in (64, "group", perdure.SnapshotPolicy(), GroupPolicy):
        with pytest.raises(TypeError, match="group= must be a perdure"):
            perdure.open("memory://", group=wrong)  # type: ignore[arg-type]
