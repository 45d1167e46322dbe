"""What the world does to runs: code that is not the same twice, signals that come too late,
executors that fight, are paused and woken, clocks that jump, stores that vanish and return."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.engine.dispatch.worker import Worker
from perdure.errors import Conflict, NeedsAttention, NotFound, StoreUnavailable, TimedOut
from perdure.storage.memory.backend import MemoryBackend
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.store import Store
from perdure.testing.faults import FaultyFiles
from perdure.types import WorkerEvent
from tests.engine.conftest import CrashError, Crashes, Place
from tests.engine.pausing import pause

BOUND_S = 300
HOUR_US = 3_600_000_000


def wait_until(condition: Callable[[], Any]) -> Any:
    until = time.monotonic() + BOUND_S
    while not (found := condition()):
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.005)
    return found


class Background:
    """A call on a thread; `result` waits for what it gives."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._found: list[Any] = []
        self._error: BaseException | None = None

        def call() -> None:
            try:
                self._found.append(function())
            except BaseException as error:
                self._error = error

        self.thread = threading.Thread(target=call, daemon=True)
        self.thread.start()

    def result(self) -> Any:
        self.thread.join(BOUND_S)
        assert not self.thread.is_alive(), "stuck"
        if self._error is not None:
            raise self._error
        return self._found[0]


# -- code that is not the same twice -----------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "helps"),
    [("time", "run.now()"), ("chance", "run.random()"), ("id", "run.uuid()")],
)
def test_an_argument_that_is_another_one_on_replay_stops_the_run_and_says_what_helps(
    place: Place, crash: Crashes, what: str, helps: str
) -> None:
    values = {"time": time.time_ns, "chance": random.random, "id": lambda: os.urandom(8).hex()}

    @perdure.tool(on_crash="retry")
    def pay(invoice: str, moment: Any) -> None:
        crash.note(moment)

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        pay("i-1", values[what]())
        crash("here")

    crash.arm("here")
    with pytest.raises(CrashError):
        place.open().run(f, "a")
    store = place.open()
    with pytest.raises(NeedsAttention) as stopped:
        store.run(f, "a")
    said = str(stopped.value)
    assert "pay#1" in said and "moment" in said and "invoice)" not in said and helps in said
    assert store.runs()[0].status == "needs_attention"
    assert len(crash.calls) == 1, "it did not pay again"


def test_a_function_that_takes_another_way_on_replay_does_nothing_more(
    place: Place, crash: Crashes
) -> None:
    @perdure.tool(on_crash="retry")
    def left() -> None:
        crash.note("left")

    @perdure.tool(on_crash="retry")
    def right() -> None:
        crash.note("right")

    ways = iter([left, right, left])

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        next(ways)()
        crash("here")
        return "arrived"

    crash.arm("here")
    with pytest.raises(CrashError):
        place.open().run(f, "a")
    with pytest.raises(NeedsAttention, match=r"now calls .*right#1.*recorded tool .*left#1"):
        place.open().run(f, "a")
    assert crash.calls == ["left"]
    assert place.open().run(f, "a") == "arrived", "it went the old way this time"
    assert crash.calls == ["left"]


# -- messages to runs that are over ------------------------------------------------------------


def test_a_signal_to_a_finished_run_is_refused_and_changes_nothing(store: Store) -> None:
    @perdure.agent(dict)
    def f(run: perdure.Run[dict], fails: bool) -> int:
        if fails:
            raise ValueError("bad")
        return 1

    store.run(f, "done", False)
    with pytest.raises(ValueError, match="bad"):
        store.run(f, "failed", True)
    for agent, status in (("done", "done"), ("failed", "failed")):
        handle = store.handle(f"{agent}/f/main")
        before = list(store.agent(agent).log())
        with pytest.raises(Conflict, match=f"is {status} already"):
            handle.signal("go", 1, key="k")
        with pytest.raises(Conflict):
            handle.answer(True)
        with pytest.raises(Conflict):
            handle.cancel()
        assert handle.status == status and list(store.agent(agent).log()) == before
    assert store._context.backend.inbox() == []
    with pytest.raises(NotFound):
        store.handle("nobody/f/main")


# -- executors that fight ----------------------------------------------------------------------


def test_standbys_in_one_process_that_all_want_a_run_execute_it_once(
    place: Place, crash: Crashes
) -> None:
    @perdure.tool
    def act(number: int) -> int:
        crash.note(number)
        return number

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[int]:
        done = []
        for number in range(10):
            done.append(act(number))
            with run.edit("n") as draft:
                draft["n"] = number
        return done

    stores = [place.open() for _ in range(4)]
    calls = [Background(partial(store.run, f, "a")) for store in stores * 2]
    assert [call.result() for call in calls] == [list(range(10))] * 8
    assert crash.calls == list(range(10))
    stores[0].agent("a").verify()


def test_workers_that_fight_for_runs_execute_each_once(place: Place, crash: Crashes) -> None:
    @perdure.tool
    def act(agent: str, number: int) -> None:
        crash.note((agent, number))

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        for number in range(3):
            act(run.agent, number)
            run.sleep(0.001)
        return run.agent

    stores = [place.open() for _ in range(3)]
    workers = [Worker(store, [f], limit=3) for store in stores]
    going = [Background(partial(worker.run, signals=False)) for worker in workers]
    names = [f"a{number}" for number in range(8)]
    handles = [stores[0].start(f, name) for name in names]
    assert [handle.result(BOUND_S) for handle in handles] == names
    for worker in workers:
        worker.stop()
    for one in going:
        one.result()
    assert sorted(crash.calls) == [(name, number) for name in names for number in range(3)]


# -- a worker that is paused and woken -----------------------------------------------------------

WORKER = """
import os, sys, time
from datetime import timedelta
from pathlib import Path
import perdure
from perdure.engine.dispatch.worker import Worker

folder = Path(sys.argv[1])

@perdure.tool(on_crash="retry")
def act(number: int) -> int:
    with open(folder / "effects", "a") as file:
        file.write(f"{number} {perdure.idempotency_key()}\\n")
    (folder / f"inside-{os.getpid()}").touch()
    while number == 2 and (folder / "hold").exists():
        time.sleep(0.01)
    return number

@perdure.agent(dict)
def f(run):
    done = []
    for number in (1, 2, 3):
        done.append(act(number))
        with run.edit("n") as draft:
            draft["n"] = number
    return done

def tell(event):
    print(event.kind, event.run, flush=True)

with perdure.open(folder / "a.db", lease_ttl=timedelta(milliseconds=600)) as store:
    Worker(store, [f], on_event=tell).run()
"""


class WorkerProcess:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._out = folder / f"out-{time.monotonic_ns()}"
        with self._out.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", WORKER, str(folder)], stdout=out, stderr=out
            )

    @property
    def inside(self) -> bool:
        return (self._folder / f"inside-{self.process.pid}").exists()

    def said(self) -> str:
        return self._out.read_text()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[[], WorkerProcess]]:
    made: list[WorkerProcess] = []

    def make() -> WorkerProcess:
        made.append(WorkerProcess(tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.process.kill()
        one.process.wait()


def test_a_worker_that_was_paused_past_its_lease_is_fenced_and_goes_on_with_other_runs(
    tmp_path: Path, worker: Callable[[], WorkerProcess]
) -> None:
    (tmp_path / "hold").touch()
    with perdure.open(tmp_path / "a.db") as store:

        @perdure.agent(dict, name="f")
        def f(run: perdure.Run[dict]) -> list[int]:
            raise AssertionError("workers run it")

        handle = store.start(f, "a")
        zombie = worker()
        wait_until(lambda: zombie.inside)
        wait_until(lambda: "2 " in (tmp_path / "effects").read_text())
        pause(zombie.process.pid)
        successor = worker()
        wait_until(lambda: successor.inside)
        (tmp_path / "hold").unlink()
        assert handle.result(BOUND_S) == [1, 2, 3]
        last = list(store.agent("a").log())[-1].seq
        zombie.process.send_signal(signal.SIGCONT)
        wait_until(lambda: "lost a/f/main" in zombie.said())
        assert list(store.agent("a").log())[-1].seq == last, "it wrote nothing"
        successor.process.send_signal(signal.SIGTERM)
        assert successor.process.wait(BOUND_S) == 0
        assert store.start(f, "b").result(BOUND_S) == [1, 2, 3]
        assert "done b/f/main" in wait_until(lambda: "done b" in zombie.said() and zombie.said()), (
            "the one that was paused goes on working"
        )
        store.agent("a").verify()
    effects = [line.split() for line in (tmp_path / "effects").read_text().splitlines()]
    # The successor called again what was under way, with the same key: its policy is "retry".
    assert [number for number, _ in effects][:4] == ["1", "2", "2", "3"]
    assert len({key for _, key in effects[:4]}) == 3


# -- a clock that jumps --------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.ahead_us = 0

    def __call__(self) -> int:
        return time.time_ns() // 1000 + self.ahead_us


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def jumping(clock: Clock) -> Iterator[Callable[[], Store]]:
    """Opens one store again and again, whose clock the test sets."""
    backend = MemoryBackend(clock=clock)
    opened: list[Store] = []

    def open_it() -> Store:
        opened.append(Store(backend))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()


def test_a_clock_that_jumps_ahead_makes_a_living_owner_look_dead_and_it_is_fenced(
    jumping: Callable[[], Store], clock: Clock, crash: Crashes
) -> None:
    hold, entered = threading.Event(), threading.Event()

    @perdure.tool(on_crash="fail")
    def act() -> str:
        crash.note("act")
        entered.set()
        hold.wait(BOUND_S)
        return "done"

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        try:
            return act()
        except perdure.InDoubt:
            return "in doubt"

    owner = Background(lambda: jumping().run(f, "a"))
    assert entered.wait(BOUND_S)
    clock.ahead_us += 24 * HOUR_US
    assert Background(lambda: jumping().run(f, "a")).result() == "in doubt"
    hold.set()
    assert owner.result() == "in doubt", "what its successor recorded counts"
    assert crash.calls == ["act"]
    jumping().agent("a").verify()


@pytest.mark.parametrize("jump_us", [-24 * HOUR_US, 24 * HOUR_US])
def test_a_run_goes_on_through_a_clock_that_jumps(
    jumping: Callable[[], Store], clock: Clock, crash: Crashes, jump_us: int
) -> None:
    store = jumping()

    @perdure.tool
    def act(number: int) -> None:
        crash.note(number)

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[float]:
        moments = []
        for number in range(4):
            act(number)
            moments.append(run.now().timestamp())
            if number == 1:
                clock.ahead_us += jump_us
            run.sleep(0.02)
        return moments

    assert len(Background(lambda: store.run(f, "a")).result()) == 4
    assert crash.calls == [0, 1, 2, 3]
    log = list(store.agent("a").log())
    assert all(a.at < b.at for a, b in itertools.pairwise(log)), "the log's time goes on"
    store.agent("a").verify()


def test_what_waits_for_a_time_is_due_at_once_when_the_clock_jumps_past_it_and_later_if_back(
    jumping: Callable[[], Store], clock: Clock
) -> None:
    """Times are by the store's clock: set back by an hour, an hour more is slept."""
    store = jumping()

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        run.sleep(3600)
        return "woken"

    first = Background(lambda: store.run(f, "a"))
    wait_until(lambda: store.runs(status=["waiting"]))
    clock.ahead_us -= HOUR_US
    time.sleep(0.2)
    clock.ahead_us += HOUR_US
    assert store.runs()[0].status == "waiting"
    clock.ahead_us += HOUR_US
    assert first.result() == "woken"


# -- a store that vanishes -----------------------------------------------------------------------


def ten_acts(crash: Crashes) -> Any:
    """Tools and edits, of which none may happen twice."""

    @perdure.tool(on_crash="probe", probe=lambda n: n if n in crash.calls else perdure.NOT_DONE)
    def act(n: int) -> int:
        crash.note(n)
        return n

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[int]:
        done = []
        for number in range(10):
            done.append(act(number))
            with run.edit("n") as draft:
                draft["n"] = draft.get("n", 0) + 1
        return done

    return f


@pytest.mark.parametrize("lost_answer", [False, True])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_run_goes_on_when_its_store_is_back(
    tmp_path: Path, crash: Crashes, operation: str, lost_answer: bool
) -> None:
    """Whichever operation of its files fails first, and whether it was done all the same."""
    files = FaultyFiles()
    files.after = lost_answer
    f = ten_acts(crash)
    left, gone = 0, False

    def fault(kind: str, name: str, end: int) -> None:
        nonlocal left, gone
        if kind == operation:
            left -= 1
            gone = gone or left == 0
        if gone and kind in ("write", "sync"):
            raise apsw.IOError("the disk is away")

    files.fault = fault
    for number, after in enumerate([3, 5, 8, 11, 14, 22, 31]):
        crash.calls.clear()
        store = Store(SqliteBackend(str(tmp_path / f"{number}.db"), vfs=files.name))
        store.agent("b").update(lambda draft: None)
        left = after
        with pytest.raises(StoreUnavailable):
            store.run(f, "a")
        with pytest.raises(StoreUnavailable):
            store.run(f, "a")
        gone = False
        assert Background(partial(store.run, f, "a")).result() == list(range(10))
        assert crash.calls == list(range(10)), f"after {after}"
        assert store.agent("a").state == {"n": 10}
        store.agent("a").verify()
        store.close()


def test_a_worker_outlives_a_store_that_is_away_for_a_while(tmp_path: Path, crash: Crashes) -> None:
    files = FaultyFiles()
    f = ten_acts(crash)
    store = Store(SqliteBackend(str(tmp_path / "s.db"), vfs=files.name))
    away = threading.Event()

    def fault(kind: str, name: str, end: int) -> None:
        if away.is_set():
            raise apsw.IOError("the disk is away")

    files.fault = fault
    events: list[WorkerEvent] = []
    worker = Worker(store, [f], on_event=events.append)
    going = Background(lambda: worker.run(signals=False))
    handle = store.start(f, "a")
    wait_until(lambda: len(crash.calls) >= 3)
    away.set()
    wait_until(lambda: "trouble" in {event.kind for event in events} or len(crash.calls) == 10)
    away.clear()
    assert handle.result(BOUND_S) == list(range(10))
    assert crash.calls == list(range(10))
    worker.stop()
    going.result()
    store.agent("a").verify()
    store.close()


def test_a_store_that_another_program_holds_for_a_moment_is_waited_for(
    tmp_path: Path, crash: Crashes
) -> None:
    """A backup tool took the write lock for some seconds."""
    f = ten_acts(crash)
    path = tmp_path / "s.db"
    with perdure.open(path) as store:
        store.agent("b").update(lambda draft: None)
        code = (
            "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
            "c.execute('BEGIN IMMEDIATE'); print('held', flush=True); time.sleep(1.5); "
            "c.execute('ROLLBACK')"
        )
        other = subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        try:
            assert Background(lambda: store.run(f, "a")).result() == list(range(10))
        finally:
            other.kill()
            other.wait()
            other.stdout.close()
    assert crash.calls == list(range(10))


def test_a_deadline_is_kept_though_the_store_was_away(
    jumping: Callable[[], Store], clock: Clock
) -> None:
    store = jumping()

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        run.wait_for("never")

    options = store.options(deadline=timedelta(minutes=5))
    first = Background(lambda: options.run(f, "a"))
    wait_until(lambda: store.runs(status=["waiting"]))
    clock.ahead_us += HOUR_US
    with pytest.raises(TimedOut, match="deadline"):
        first.result()
    assert store.runs()[0].status == "failed"


@pytest.mark.parametrize("step", [0, 2])
def test_a_store_whose_folder_is_away_for_a_while_goes_on_once_it_is_opened_again(
    tmp_path: Path, crash: Crashes, step: int
) -> None:
    """An external disk was unplugged in the middle of a run, and plugged in again."""
    home, away = tmp_path / "disk", tmp_path / "away"
    home.mkdir()

    @perdure.tool(on_crash="probe", probe=lambda n: n if n in crash.calls else perdure.NOT_DONE)
    def act(n: int) -> int:
        if n == step and home.exists() and not crash.armed:
            crash.arm("gone")
            home.rename(away)
        crash.note(n)
        return n

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[int]:
        return [act(n) for n in range(4)]

    store = perdure.open(home / "s.db", lease_ttl=timedelta(seconds=1))  # it cannot say goodbye
    with pytest.raises(perdure.PerdureError):
        store.run(f, "a")
    away.rename(home)
    store.close()
    with perdure.open(home / "s.db") as store:
        assert Background(partial(store.run, f, "a")).result() == [0, 1, 2, 3]
        store.agent("a").verify()
    assert crash.calls == [0, 1, 2, 3]
