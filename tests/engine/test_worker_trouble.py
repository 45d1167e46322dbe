"""No run ends a worker, none is stranded, and a store may come and go."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.dispatch import backoff, picking, worker
from perdure.model import Message
from perdure.replication import following, promote
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes, Place
from tests.engine.working import (
    BOUND_S,
    approval,
    double,
    doubling,
    failing,
    gathering,
    wait_until,
    working,
)


def test_a_run_that_fails_is_recorded_and_the_worker_goes_on(store: Store) -> None:
    with working(store, failing, doubling) as events:
        handle = store.start(failing, "a")
        with pytest.raises(ValueError, match="no such invoice"):
            handle.result(BOUND_S)
        events.wait_for("failed", handle.id)
        assert store.start(doubling, "b", 1).result(BOUND_S) == 2


def test_a_run_that_needs_a_person_waits_for_one_and_goes_on_when_it_is_settled(
    place: Place, crash: Crashes
) -> None:
    @perdure.tool
    def wire(cents: int) -> str:
        crash.note(cents)
        crash("in the middle")
        return "sent"

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        return wire(500)

    store = place.open()
    crash.arm("in the middle")
    with pytest.raises(CrashError):
        store.run(f, "a")
    handle = store.handle("a/f/main")
    with working(place.open(), f) as events:
        with pytest.raises(perdure.NeedsAttention):
            handle.result(BOUND_S)
        events.wait_for("needs_attention", handle.id)
        time.sleep(0.7)
        assert events.kinds(handle.id) == ["resumed", "needs_attention"], "it is not tried again"
        handle.settle("wire#1", done="receipt 7")
        assert handle.result(BOUND_S) == "receipt 7"
    assert crash.calls == [500]


def test_a_run_of_an_agent_that_is_just_being_deleted_is_not_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parent had asked for it by the name that it has of that agent. No run of that name can
    begin any more: the worker passed it over, once a minute, and the parent waited for ever."""

    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> str:
        try:
            return str(run.start(doubling, "child", 1).result())
        except perdure.RunFailed as error:
            return error.problem

    store, other = place.open(), place.open()
    other.agent("child").save({"n": 1}, "made")
    backend = store._context.backend
    append, left = backend.append, [1]

    def late(batch: Any) -> Any:
        if left and any(message.kind == "start" for item in batch for message in item.riders.sends):
            left.clear()
            other.delete("child")
        return append(batch)

    monkeypatch.setattr(backend, "append", late)
    with working(store, parent, doubling):
        handle = store.start(parent, "parent")
        assert handle.result(BOUND_S) == "was cancelled: its agent was deleted"
    assert left == []


@pytest.mark.parametrize("way_out", [SystemExit, KeyboardInterrupt])
def test_what_would_end_a_process_ends_no_worker_and_in_the_end_a_person_is_asked(
    store: Store, monkeypatch: pytest.MonkeyPatch, way_out: type[BaseException]
) -> None:
    """A function that calls sys.exit() would else be tried again for ever, unseen. One that was
    asynchronous took the worker's event loop with it, and all that ran there."""
    monkeypatch.setattr(backoff, "AGAIN_S", 0.01)

    @perdure.agent(dict)
    def leaving(run: perdure.Run[dict]) -> None:
        raise way_out("bye")

    @perdure.agent(dict)
    async def leaving_async(run: perdure.AsyncRun[dict]) -> None:
        raise way_out("bye")

    with working(store, leaving, leaving_async, doubling, gathering) as events:
        for function in (leaving, leaving_async):
            handle = store.start(function, function.__name__)
            with pytest.raises(perdure.NeedsAttention, match=f"5 times.*{way_out.__name__}"):
                handle.result(BOUND_S)
            events.wait_for("needs_attention", handle.id)
            assert events.kinds(handle.id).count("trouble") == 1, "each trouble is told once"
        assert store.start(doubling, "b", 1).result(BOUND_S) == 2
        more = store.start(gathering, "c", 1)
        more.signal("more", 1)
        assert more.result(BOUND_S) == [0, 1]


def test_a_function_that_stops_its_event_loop_stops_no_other_run(store: Store) -> None:
    """The loop's thread ended with it: all asynchronous runs of the worker stayed "executing" for
    ever, new ones never began, and the worker could not be drained."""

    @perdure.agent(dict)
    async def stopping(run: perdure.AsyncRun[dict]) -> int:
        asyncio.get_running_loop().stop()
        return await run.call(double, 2)

    with working(store, stopping, gathering) as events:
        other = store.start(gathering, "b", 1)
        events.wait_for("waiting", other.id)
        assert store.start(stopping, "a").result(BOUND_S) == 4
        other.signal("more", 1)
        assert other.result(BOUND_S) == [0, 1]


def test_a_run_of_a_function_that_nobody_serves_is_seen_and_goes_on_when_somebody_does(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picking, "UNKNOWN_AFTER_S", 0.3)
    store = place.open()
    handle = store.start(approval, "a")
    with working(place.open(), approval) as events:
        events.wait_for("waiting", handle.id)
    with working(place.open(), doubling):
        handle.signal("approve", "me")
        with pytest.raises(perdure.NeedsAttention, match="no worker knows function 'approval'"):
            handle.result(BOUND_S)
        with working(place.open(), approval):
            wait_until(lambda: handle.status == "done")
    assert handle.result() == "approved by me"


def test_what_a_living_worker_serves_is_left_to_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picking, "UNKNOWN_AFTER_S", 0.1)
    store, go = place.open(), threading.Event()

    @perdure.agent(dict)
    def blocking(run: perdure.Run[dict]) -> bool:
        return go.wait(BOUND_S)

    waiting = store.start(approval, "a")
    with working(place.open(), approval, blocking, limit=1) as events:
        events.wait_for("waiting", waiting.id)
        blocked = store.start(blocking, "b")
        events.wait_for("started", blocked.id)
        waiting.signal("approve", "me")  # it is busy, and nobody else knows how
        with working(place.open(), doubling):
            time.sleep(0.7)
            assert waiting.status == "waiting"
            go.set()
            assert waiting.result(BOUND_S) == "approved by me"


class Outage:
    """Takes a store's backend away, and brings it back."""

    NAMES = (
        "append",
        "lease",
        "runs",
        "ready",
        "inbox",
        "heartbeat",
        "executors",
        "next_wake",
        "ref",
        "agent",
        "read",
        "alive",
        "send",
    )

    def __init__(self, store: Store) -> None:
        self._backend: Any = store.runner.context.backend

    def begin(self) -> None:
        def gone(*args: Any, **more: Any) -> Any:
            raise perdure.StoreUnavailable("the disk is away")

        vars(self._backend).update({name: gone for name in self.NAMES if name != "append"})
        vars(self._backend)["append"] = lambda batch: [
            perdure.StoreUnavailable("the disk is away") for _ in batch
        ]

    def end(self) -> None:
        for name in self.NAMES:
            del vars(self._backend)[name]


def test_a_store_that_vanishes_and_returns_costs_nothing_but_time(
    place: Place, crash: Crashes
) -> None:
    store, workers_own = place.open(), place.open()
    outage, go = Outage(workers_own), threading.Event()

    @perdure.tool(on_crash="retry")
    def act(n: int) -> int:
        if n == 1:
            crash.note("inside")
            go.wait(BOUND_S)
        crash.note(perdure.idempotency_key())
        return n

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[int]:
        return [act(n) for n in range(3)]

    with working(workers_own, f) as events:
        handle = store.start(f, "a")
        wait_until(lambda: "inside" in crash.calls)
        outage.begin()
        try:
            go.set()  # its outcome cannot be recorded now
            events.wait_for("unavailable")
            events.wait_for("trouble", handle.id)
        finally:
            outage.end()
        assert handle.result(BOUND_S) == [0, 1, 2]
        events.wait_for("available")
    keys = [call for call in crash.calls if call != "inside"]
    assert len(set(keys)) == 3, "the same call has the same key"


def test_an_idle_worker_hardly_looks(store: Store) -> None:
    backend: Any = store.runner.context.backend
    looks: list[float] = []
    ready = backend.ready

    def noted(*args: Any) -> Any:
        looks.append(time.monotonic())
        return ready(*args)

    with working(store, doubling) as events:
        events.wait_for("ready")
        vars(backend)["ready"] = noted
        time.sleep(1.3)
        del vars(backend)["ready"]
    assert 1 <= len(looks) <= 6


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_drained_it_leaves_runs_at_their_next_step_for_whoever_is_next(
    place: Place, kind: str, crash: Crashes
) -> None:
    go = threading.Event()

    @perdure.step
    def look(n: int) -> bool:
        crash.note(n)
        return go.wait(0.05)

    @perdure.agent(dict)
    def long(run: perdure.Run[dict]) -> int:
        return next(n for n in range(10_000) if look(n))

    @perdure.agent(dict)
    async def long_async(run: perdure.AsyncRun[dict]) -> int:
        n = 0
        while not await run.call(look, n):
            n += 1
        return n

    function: Any = long if kind == "sync" else long_async
    with working(place.open(), function) as events:
        handle = place.open().start(function, "a")
        wait_until(lambda: len(crash.calls) > 2)
    assert events.kinds(handle.id) == ["started", "left"]
    assert handle.status == "running"
    before = len(crash.calls)
    with working(place.open(), function) as events:
        events.wait_for("resumed", handle.id)
        go.set()
        assert handle.result(BOUND_S) >= before
    assert crash.calls == sorted(set(crash.calls)), "no step was done twice"


def test_one_worker_may_run_again_after_it_was_stopped(store: Store) -> None:
    one = perdure.Worker(store, [doubling])
    for n in range(2):
        thread = threading.Thread(target=one.run)
        thread.start()
        assert store.start(doubling, f"a-{n}", n).result(BOUND_S) == 2 * n
        one.stop()
        thread.join(BOUND_S)
        assert not thread.is_alive()
    names = [row.serves for row in store.runner.context.backend.executors()]
    assert names == [()], "it does not say any more that it serves"


def test_what_cannot_be_is_refused(store: Store) -> None:
    with pytest.raises(TypeError, match="not an agent function"):
        perdure.Worker(store, [double])
    with pytest.raises(ValueError, match="functions"):
        perdure.Worker(store, [])
    with pytest.raises(ValueError, match="queues"):
        perdure.Worker(store, [doubling], "default")
    with pytest.raises(ValueError, match="limit"):
        perdure.Worker(store, [doubling], limit=0)


def test_two_workers_on_one_open_store_do_not_fight(store: Store, crash: Crashes) -> None:
    """They are one executor: a lease of the one looked to the other like one that had leaked."""

    @perdure.agent(dict)
    def f(run: perdure.Run[dict], n: int) -> int:
        crash.note(n)
        return double(n)

    with working(store, f) as first, working(store, f) as second:
        handles = [store.start(f, f"a-{n}", n) for n in range(20)]
        assert [handle.result(BOUND_S) for handle in handles] == [2 * n for n in range(20)]
    assert sorted(crash.calls) == list(range(20))
    assert not [event for event in [*first, *second] if event.kind == "trouble"]


def test_the_end_of_a_run_that_nobody_serves_is_heard(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parent was cancelled, say, which ends it, too, by a message."""
    monkeypatch.setattr(picking, "UNKNOWN_AFTER_S", 0.1)
    store = place.open()
    handle = store.start(approval, "a")
    with working(place.open(), approval) as events:
        events.wait_for("waiting", handle.id)
    store.runner.context.backend.send(Message(handle.id, "a", "cancel", "", "", "with its parent"))
    with working(place.open(), doubling) as events:
        events.wait_for("cancelled", handle.id)
    assert handle.info.problem == "with its parent"


def test_a_state_that_does_not_fit_its_schema_is_seen(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended before anything of it could be recorded: it looked as if it had come to waiting
    again, and was picked up again at once, for ever, with no reason to be seen."""
    monkeypatch.setattr(backoff, "AGAIN_S", 0.01)
    store = place.open()
    handle = store.start(approval, "a")
    with working(place.open(), approval) as events:
        events.wait_for("waiting", handle.id)

    @perdure.agent(perdure.Schema(list[int], id="other", version=(2, 0)), name="approval")
    def changed(run: perdure.Run[list[int]]) -> str:
        return "never"

    handle.signal("approve", "me")
    with working(place.open(), changed), pytest.raises(perdure.NeedsAttention, match="5 times"):
        handle.result(BOUND_S)


def test_a_worker_ends_when_its_store_is_closed(place: Place) -> None:
    store = place.open()
    with working(store, doubling) as events:
        events.wait_for("ready")
        store.close()
        events.wait_for("stopped")


def test_a_store_that_closes_while_a_worker_looks_is_no_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that the store was unavailable, and to open it again, of one that was closed."""
    looking = perdure.Worker._look
    store = perdure.open(tmp_path / "store.db")

    def look(self: perdure.Worker) -> float:
        store.close()
        return looking(self)

    monkeypatch.setattr(perdure.Worker, "_look", look)
    events: list[perdure.types.WorkerEvent] = []
    perdure.Worker(store, [doubling], on_event=events.append).run(signals=False)
    assert [event.kind for event in events] == ["ready", "stopped"]


def test_a_worker_on_a_follower_waits_until_it_is_promoted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It tried each run that was due twice a second, for ever, with a traceback each time."""
    source, copy = str(tmp_path / "source.db"), str(tmp_path / "copy.db")

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        return str(run.wait_for("go"))

    with perdure.open(source) as store:
        handles = [store.start(f, name) for name in ("a", "b")]
        with working(store, f) as events:
            for handle in handles:
                events.wait_for("waiting", handle.id)
        for handle in handles:
            handle.signal("go", "went")
    with perdure.open(source) as store, following(source, copy) as follower:
        follower.drain()
    with perdure.open(copy) as store, working(store, f) as events:
        events.wait_for("unavailable")
        time.sleep(1.5)
        assert "trouble" not in {event.kind for event in events}
        assert events.kinds().count("unavailable") == 1
        promote(copy)
        for run in ("a/f/main", "b/f/main"):
            assert store.handle(run).result(BOUND_S) == "went"
        events.wait_for("available")
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("is_async", [False, True])
def test_an_exception_where_a_run_is_about_to_begin_ends_the_worker(
    place: Place, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """A time limit came between the note that a worker is at a run and the start of its thread: the
    worker waited for ever for word of a run that nobody executed."""

    def interrupted(*given: Any) -> None:
        if is_async:
            given[-1].close()
        raise KeyboardInterrupt

    async def later(run: perdure.AsyncRun[dict]) -> int:
        return 1

    def at_once(run: perdure.Run[dict]) -> int:
        return 1

    function: Any = perdure.agent(dict)(later if is_async else at_once)
    store = place.open()
    handle = store.start(function, "r")
    ended = threading.Thread(target=_work_until_interrupted, args=(store, function), daemon=True)
    with monkeypatch.context() as patch:
        patch.setattr("perdure.engine.dispatch.loop_thread.OwnLoop.start", interrupted)
        patch.setattr(worker, "begin", interrupted)
        ended.start()
        ended.join(BOUND_S)
    assert not ended.is_alive()
    with working(store, function):
        assert handle.result(BOUND_S) == 1


def _work_until_interrupted(store: Store, function: Any) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        perdure.Worker(store, [function]).run()


@dataclass
class Named:
    name: str


def test_a_run_that_can_never_begin_is_refused_where_it_is_asked_for(place: Place) -> None:
    """Its state has a field without a default, and nobody had made the agent: a worker tried for
    ever to begin it, and `why` said that no worker serves it."""

    @perdure.agent(Named)
    def greet(run: perdure.Run[Named]) -> str:
        return f"Hello, {run.state.name}"

    store = place.open()
    with pytest.raises(perdure.SchemaError, match="cannot be made without values"):
        store.start(greet, "a")
    assert store.runs() == []
    store.agent("a", Named, initial=Named("Ada")).checkpoint("begin")
    handle = store.start(greet, "a")
    with working(store, greet):
        assert handle.result(BOUND_S) == "Hello, Ada"
    store.delete("a")
    with pytest.raises(perdure.SchemaError, match="cannot be made without values"):
        store.start(greet, "a")
