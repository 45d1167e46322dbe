"""Workers as processes: they are killed, told to end, paused, and share a store."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perdure
from tests.engine import worker_programs
from tests.engine.pausing import pause
from tests.engine.programs import migration

FOREVER_S = 3600.0
BOUND_S = 300
spawn = multiprocessing.get_context("spawn")


def wait_until(true: Callable[[], object]) -> None:
    until = time.monotonic() + BOUND_S
    while not true():
        assert time.monotonic() < until, "it does not come to that"
        time.sleep(0.01)


class Process:
    """A worker process."""

    def __init__(self, folder: Path, ttl_s: float, limit: int, version: str) -> None:
        args = (str(folder), ttl_s, limit, version)
        self.process = spawn.Process(target=worker_programs.work, args=args)
        self.process.start()
        self.inside = folder / f"inside-{self.process.pid}"
        self._events = folder / f"events-{self.process.pid}"

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def events(self) -> list[str]:
        return self._events.read_text().splitlines() if self._events.exists() else []

    def wait_for(self, event: str) -> None:
        wait_until(lambda: event in self.events())

    def exit_code(self) -> int | None:
        self.process.join(BOUND_S)
        return self.process.exitcode


class Site:
    """A folder with a store, in which worker processes are at work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = perdure.open(folder / "m.db")
        self.workers: list[Process] = []

    def worker(self, ttl_s: float = FOREVER_S, limit: int = 8, version: str = "") -> Process:
        worker = Process(self.folder, ttl_s, limit, version)
        self.workers.append(worker)
        worker.wait_for("ready ")
        return worker

    def migrate(self) -> perdure.RunHandle[list[int]]:
        return self.store.start(migration, "m", str(self.folder), "retry")

    def hold(self) -> None:
        (self.folder / "hold").touch()

    def let_go(self) -> None:
        (self.folder / "hold").unlink()

    def effects(self) -> list[str]:
        """What was done to the world: numbers, and with tools their idempotency keys."""
        return (self.folder / "effects").read_text().splitlines()

    def batches(self) -> list[str]:
        return [line.split()[0] for line in self.effects()]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    for worker in site.workers:
        worker.process.kill()
        worker.process.join()
    site.store.close()


RESULT = [100, 200, 300]


def test_what_a_killed_worker_had_another_takes_over_at_once(site: Site) -> None:
    site.hold()
    handle = site.migrate()
    owner = site.worker()
    wait_until(owner.inside.exists)
    second = site.worker()
    owner.signal(signal.SIGKILL)
    wait_until(second.inside.exists)  # long before the lease expires: the owner's lock is free
    site.let_go()
    assert handle.result(BOUND_S) == RESULT
    assert site.batches() == ["1", "2", "3"]
    site.store.agent("m").verify()


def test_a_worker_that_is_told_to_end_leaves_its_run_to_the_next_one(site: Site) -> None:
    site.hold()
    handle = site.migrate()
    first = site.worker()
    wait_until(first.inside.exists)
    first.signal(signal.SIGTERM)
    first.wait_for("draining ")
    assert handle.status == "running", "it is in the middle of a tool, which comes to its end"
    site.let_go()
    assert first.exit_code() == 0
    assert f"left {handle.id}" in first.events()
    assert handle.status == "running", "it is nobody's failure"
    second = site.worker()
    assert handle.result(BOUND_S) == RESULT
    assert site.batches() == ["1", "2", "3"], "nothing was done twice"
    second.wait_for(f"done {handle.id}")
    second.signal(signal.SIGINT)
    assert second.exit_code() == 0
    assert second.events()[-1] == "stopped "


def test_a_second_signal_ends_it_at_once(site: Site) -> None:
    site.hold()
    handle = site.migrate()
    worker = site.worker()
    wait_until(worker.inside.exists)
    worker.signal(signal.SIGTERM)
    worker.wait_for("draining ")
    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == 128 + signal.SIGTERM
    second = site.worker()
    wait_until(second.inside.exists)
    site.let_go()
    assert handle.result(BOUND_S) == RESULT


def test_i4_a_worker_that_was_paused_past_its_lease_does_nothing_twice(site: Site) -> None:
    site.hold()
    handle = site.migrate()
    zombie = site.worker(ttl_s=1.5)
    wait_until(zombie.inside.exists)
    assert zombie.process.pid is not None
    pause(zombie.process.pid)
    second = site.worker()
    wait_until(second.inside.exists)
    site.let_go()
    assert handle.result(BOUND_S) == RESULT
    last = site.store.agent("m").log(newest_first=True).__next__().seq
    zombie.signal(signal.SIGCONT)
    zombie.wait_for(f"lost {handle.id}")
    # Its own call came to its end: fencing protects the log, a key protects the world.
    assert site.batches() == ["1", "2", "3", "2"] and len(set(site.effects())) == 3
    agent = site.store.agent("m")
    assert agent.log(newest_first=True).__next__().seq == last
    agent.verify()
    # And it works on.
    second.signal(signal.SIGTERM)
    assert second.exit_code() == 0
    later = site.store.start(worker_programs.fetching, "later", 3)
    assert later.result(BOUND_S) == [0, 10, 20]
    zombie.wait_for(f"done {later.id}")


def test_two_workers_run_each_of_twenty_runs_once(site: Site) -> None:
    handles = [
        site.store.start(worker_programs.noting, f"a-{n}", str(site.folder), n) for n in range(20)
    ]
    workers = [site.worker(limit=3), site.worker(limit=3)]
    assert [handle.result(BOUND_S) for handle in handles] == list(range(20))
    more = [
        site.store.options(key="again").start(
            worker_programs.noting, f"a-{n}", str(site.folder), 100 + n
        )
        for n in range(20)
    ]  # while both are awake
    assert [handle.result(BOUND_S) for handle in more] == list(range(100, 120))
    assert sorted(map(int, site.effects())) == [*range(20), *range(100, 120)]
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.exit_code() == 0
    done = [event for worker in workers for event in worker.events() if event.startswith("done")]
    assert len(done) == len(set(done)) == 40
    assert not any("trouble" in event for worker in workers for event in worker.events())


def test_runs_of_two_versions_beside_each_other_and_after_the_new_one_is_taken_back(
    site: Site,
) -> None:
    """Two processes, with versions 1 and 2 of a function: seven of ten runs of version 2 were
    executed by version 1, and those that both had been at needed attention, for good."""
    old, new = (site.worker(version=version) for version in "12")
    handles = {
        (version, number): site.store.start(
            worker_programs.selling(version), f"a{version}-{number}", str(site.folder)
        )
        for number in range(5)
        for version in "12"
    }
    wait_until(lambda: {handle.status for handle in handles.values()} == {"waiting"})
    new.signal(signal.SIGKILL)
    new.process.join()
    for handle in handles.values():
        handle.signal("paid")
    mine = {of: handle for of, handle in handles.items() if of[0] == "1"}
    for handle in mine.values():
        assert handle.result(BOUND_S) == ["1", old.process.pid]
    others = [handle for of, handle in handles.items() if of[0] == "2"]
    assert "version '2' of function 'selling'" in others[0].why().why
    again = site.worker(version="2")
    wait_until(lambda: {handle.status for handle in others} == {"done"})
    assert [handle.result() for handle in others] == [["2", again.process.pid]] * 5
