"""How runs begin: their lease, and a new agent, with the first commit; and what comes between."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.dispatch.drive import Drive
from perdure.errors import Conflict, NotFound, RunFailed, StoreUnavailable
from perdure.store import Store
from perdure.testing import run_with_kills
from tests.engine.conftest import Place
from tests.engine.working import BOUND_S, wait_until

STARTERS = 4
calls: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


@perdure.agent(dict)
def noting(run: perdure.Run[dict[str, Any]], word: str = "") -> str:
    calls.append(word)
    with run.edit("noted") as draft:
        draft["word"] = word
    return f"noted {word}"


class Watch:
    """Counts what one store's backend is asked to write; `between` is called once, right before
    the first of it."""

    def __init__(
        self,
        store: Store,
        monkeypatch: pytest.MonkeyPatch,
        between: Callable[[], object] | None = None,
    ) -> None:
        backend = store._context.backend
        self.counts = {"append": 0, "lease": 0, "take": 0}
        left = [between] if between is not None else []

        def counted(name: str, method: Any) -> Any:
            def call(*args: Any, **more: Any) -> Any:
                if left:
                    left.pop()()
                self.counts[name] += more.get("release") is None
                return method(*args, **more)

            return call

        for name in self.counts:
            if hasattr(backend, name):
                monkeypatch.setattr(backend, name, counted(name, getattr(backend, name)))


def kinds(store: Store, agent: str = "a") -> list[str]:
    return [commit.cause.kind for commit in store.agent(agent).log()]


def free(store: Store, agent: str = "a") -> bool:
    return all(branch.holder is None for branch in store.agent(agent).branches())


def test_a_run_begins_with_one_write(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """To begin one took three transactions: for the agent, for the lease, and for the run."""
    store = place.open()
    watch = Watch(store, monkeypatch)
    assert store.run(noting, "a", "x") == "noted x"
    assert watch.counts == {"append": 3, "lease": 0, "take": 0}
    assert store.options(key="2").run(noting, "a", "y") == "noted y"
    assert watch.counts == {"append": 6, "lease": 0, "take": 0}
    assert kinds(store) == [
        "create",
        "run-started",
        "edit",
        "run-finished",
        "run-started",
        "edit",
        "run-finished",
    ]
    epochs = [commit.epoch for commit in store.agent("a").log()]
    assert epochs == [0, 1, 1, 1, 2, 2, 2]
    assert free(store)
    store.agent("a").verify()


def test_i4_of_many_starters_one_executes(place: Place) -> None:
    """In as many stores, of an agent that is not there, and then of one that is."""
    stores = [place.open() for _ in range(STARTERS)]
    together = threading.Barrier(STARTERS)

    def start(store: Store, key: str) -> str:
        together.wait()
        return store.options(key=key).run(noting, "a", key)

    with ThreadPoolExecutor(STARTERS) as pool:
        for key in ("1", "2", "3"):
            found = [pool.submit(start, store, key) for store in stores]
            assert {future.result() for future in found} == {f"noted {key}"}
    assert calls == ["1", "2", "3"]
    assert kinds(stores[0]).count("run-started") == 3
    assert free(stores[0])


def test_what_was_written_since_one_looked_is_seen(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = place.open(), place.open()
    other.agent("a").save({"n": 1}, "made")

    def edit() -> None:
        other.agent("a").save({"n": 2}, "changed")

    watch = Watch(store, monkeypatch, edit)

    @perdure.agent(dict)
    def reading(run: perdure.Run[dict[str, Any]]) -> int:
        return int(run.state["n"])

    assert store.run(reading, "a") == 2
    assert watch.counts["lease"] + watch.counts["take"] == 1, "the first commit was refused"
    assert free(store)


def test_an_agent_that_is_created_since_one_looked_is_that_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = place.open(), place.open()
    Watch(store, monkeypatch, lambda: other.agent("a").save({"n": 1}, "made"))

    @perdure.agent(dict)
    def reading(run: perdure.Run[dict[str, Any]]) -> int:
        return int(run.state["n"])

    assert store.run(reading, "a") == 1
    assert kinds(store) == ["create", "save", "run-started", "run-finished"]
    assert free(store)


@pytest.mark.parametrize("made", [False, True])
def test_a_run_that_somebody_finished_since_one_looked_is_not_begun(
    place: Place, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    store, other = place.open(), place.open()
    if made:
        other.agent("a").save({}, "made")
    Watch(store, monkeypatch, lambda: other.run(noting, "a", "x"))
    assert store.run(noting, "a", "x") == "noted x"
    assert calls == ["x"] and free(store)


def test_another_run_that_has_the_branch_since_one_looked_is_first(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = place.open(), place.open()

    @perdure.agent(dict)
    def asking(run: perdure.Run[dict[str, Any]]) -> object:
        raise perdure.NeedsAttention("a person is needed")

    def ask() -> None:
        with pytest.raises(perdure.NeedsAttention):
            other.run(asking, "a")

    Watch(store, monkeypatch, ask)
    with pytest.raises(Conflict, match="not finished"):
        store.run(noting, "a", "x")
    assert calls == [] and free(store)


@pytest.mark.parametrize("made", [False, True])
def test_a_run_that_is_cancelled_since_a_worker_looked_does_not_begin(
    place: Place, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    """It began all the same, and called what it called until it looked by itself."""
    store, other = place.open(), place.open()
    if made:
        other.agent("a").save({}, "made")
    handle = other.start(noting, "a", "x")
    Watch(store, monkeypatch, lambda: handle.cancel("changed my mind"))
    with pytest.raises(RunFailed, match="changed my mind"):
        store.run(noting, "a", "x")
    assert calls == [] and handle.status == "cancelled" and free(store)


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("landed", [False, True])
def test_a_beginning_without_an_answer_leaves_no_lease(
    place: Place, monkeypatch: pytest.MonkeyPatch, made: bool, landed: bool
) -> None:
    """The answer was lost, of a commit that took the lease, or did not. Nobody knows of the lease
    then, and no other process could have the branch while this one lives."""
    store = place.open()
    if made:
        store.agent("a").save({}, "made")
    backend = store._context.backend
    append, lost = backend.append, [True]

    def losing(batch: Any) -> Any:
        if not lost:
            return append(batch)
        if landed:
            append(batch)
        lost.clear()
        return [StoreUnavailable("no answer", outcome="unknown")] * len(batch)

    monkeypatch.setattr(backend, "append", losing)
    with pytest.raises(StoreUnavailable):
        store.run(noting, "a", "x")
    assert calls == []
    assert [run.status for run in store.runs()] == ["running"] * landed
    assert free(store)
    assert place.open().run(noting, "a", "x") == "noted x"
    assert store.run(noting, "a", "x") == "noted x"
    assert kinds(store).count("run-started") == 1 and calls == ["x"]


def program(folder: Path) -> str:
    with perdure.open(folder / "s.db") as store:
        store.run(noting, "a", "x")
        return store.options(key="2").run(noting, "a", "y")


AROUND = ["before append 1", "after append 1", "before append 4", "after append 4"]


@pytest.mark.parametrize("where", AROUND)
def test_killed_around_its_beginning_a_run_goes_on(tmp_path: Path, where: str) -> None:
    end = run_with_kills(program, tmp_path, [where])
    assert end.killed_at == [where] and end.result == "noted y"
    with perdure.open(tmp_path / "s.db") as store:
        assert kinds(store).count("run-started") == 2
        assert free(store)
        epochs = [commit.epoch for commit in store.agent("a").log()]
        assert epochs == sorted(epochs)
        store.agent("a").verify()


def test_a_deleted_agent_begins_anew_with_a_run(place: Place) -> None:
    store = place.open()
    assert store.run(noting, "a", "x") == "noted x"
    store.delete("a")
    assert store.run(noting, "a", "y") == "noted y"
    info = store.find("a")
    assert info is not None and (info.incarnation, info.seq) == (2, 4)
    assert calls == ["x", "y"] and free(store)


def test_a_migration_that_is_due_is_written_before_the_run(place: Place) -> None:
    """A commit that takes the lease is one: the migrated state is another, and goes before it."""
    store = place.open()
    store.agent("a").save({"n": 1}, "made")
    newer = perdure.Schema(dict, id="dict", version=(2, 0), migrations={1: lambda old: {"m": 2}})

    @perdure.agent(newer)
    def reading(run: perdure.Run[dict[str, Any]]) -> int:
        return int(run.state["m"])

    assert store.run(reading, "a") == 2
    assert kinds(store)[-3:] == ["migrate", "run-started", "run-finished"]
    assert free(store)


def test_a_child_that_somebody_else_begins_tells_its_parent(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Story: somebody looked, and found no run; then a parent asked for it, as its child; then the
    first one's commit began it, without a parent. It told nobody of its end, and its parent waited
    for ever."""

    @perdure.agent(dict)
    def parent(run: perdure.Run[dict[str, Any]]) -> str:
        return str(run.options(key="k").start(noting, "child", "said").result())

    store, other = place.open(), place.open()
    store.agent("child", initial={}).checkpoint("there")
    with ThreadPoolExecutor(1) as pool:
        waiting: list[Any] = []

        def between() -> None:
            waiting.append(pool.submit(other.run, parent, "parent"))
            wait_until(lambda: any(row.status == "waiting" for row in other.runs("parent")))

        start = store.runner.liveness.start
        left = [between]
        monkeypatch.setattr(
            store.runner.liveness, "start", lambda: (left.pop()() if left else None, start())[1]
        )
        assert store.options(key="k").run(noting, "child", "said") == "noted said"
        assert waiting[0].result(BOUND_S) == "noted said"
    assert [row.parent for row in store.runs("child")] == ["parent/parent/main"]
    assert calls == ["said"]


CAME_TO = ("waiting", "done", "failed")


@pytest.mark.parametrize("ends", ["done", "failed", "cancelled", "rolled back"])
def test_who_asked_too_late_for_a_run_hears_of_its_end(
    place: Place, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Story: the commit that begins a run was on its way, under a lease that was taken before, when
    a parent asked for the run as its child. It began without a parent, as above; now it begins as
    it is asked for."""

    @perdure.agent(dict)
    def child(run: perdure.Run[dict[str, Any]]) -> str:
        if ends == "failed":
            raise ValueError("not today")
        if ends != "done":
            run.wait_for("what never comes")
        return "done"

    @perdure.agent(dict)
    def parent(run: perdure.Run[dict[str, Any]]) -> str:
        try:
            return run.options(key="k").start(child, "child").result()
        except (RunFailed, ValueError) as error:
            return type(error).__name__

    monkeypatch.setattr(Drive, "_begin_at_once", lambda drive: None)
    store, other = place.open(), place.open()
    store.agent("child", initial={}).checkpoint("there")
    backend = store._context.backend
    append, left = backend.append, [1]
    with ThreadPoolExecutor(2) as pool:
        waiting: list[Any] = []

        def late(batch: Any) -> Any:
            if left and any(row.key == "k" for item in batch for row in item.riders.runs):
                left.clear()
                waiting.append(pool.submit(other.run, parent, "parent"))
                wait_until(lambda: any(row.status == "waiting" for row in other.runs("parent")))
            return append(batch)

        monkeypatch.setattr(backend, "append", late)
        started = pool.submit(store.options(key="k").run, child, "child")
        wait_until(lambda: any(row.status in CAME_TO for row in store.runs("child")))
        if ends == "cancelled":
            store.handle("child/child/k").cancel()
        elif ends == "rolled back":
            store.agent("child").rollback("there", cancel_run=True)
        said = {"done": "done", "failed": "ValueError"}.get(ends, "RunFailed")
        assert waiting[0].result(BOUND_S) == said
        assert ends == "done" or started.exception(BOUND_S) is not None
    assert [row.parent for row in store.runs("child")] == ["parent/parent/main"]
    assert store._context.backend.inbox() == []


@pytest.mark.parametrize("ends", ["its run", "its process"])
def test_a_run_queues_behind_one_that_ends_while_it_looks(place: Place, ends: str) -> None:
    """Story: the second of two runs of an agent was refused, as the first was unfinished and nobody
    was running it: what it had been when it was looked at, and who had it a moment later."""
    on, off = threading.Event(), threading.Event()

    @perdure.agent(dict)
    def slow(run: perdure.Run[dict[str, Any]]) -> str:
        on.set()
        off.wait(BOUND_S)
        return "slow"

    one = place.open()
    two = one if ends == "its run" else place.open()

    def first() -> None:
        one.run(slow, "a")
        if one is not two:
            one.close()

    thread = threading.Thread(target=first)
    thread.start()
    assert on.wait(BOUND_S)
    drive: Any = two.runner.drive
    left = [1]

    def looked(*args: Any, **more: Any) -> Any:
        made = drive(*args, **more)
        if left:
            left.clear()
            off.set()
            thread.join()
        return made

    vars(two.runner).update(drive=looked)
    assert two.run(noting, "a", "quick") == "noted quick"
    assert [row.status for row in two.runs()] == ["done", "done"]


@pytest.mark.parametrize("again", [False, True], ids=["gone", "another one is there"])
def test_an_agent_that_is_deleted_while_its_run_begins_is_said_to_be(
    place: Place, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """It was said that its lease changes hands too fast."""
    store, other = place.open(), place.open()
    other.agent("a").save({"n": 1}, "made")
    start = store.runner.liveness.start

    def deleted() -> None:
        monkeypatch.setattr(store.runner.liveness, "start", start)
        other.delete("a")
        if again:
            other.agent("a").save({"n": 2}, "made again")
        start()

    monkeypatch.setattr(store.runner.liveness, "start", deleted)
    with pytest.raises(NotFound, match="was deleted"):
        store.run(noting, "a")
    assert calls == []
    assert store.run(noting, "a", "anew") == "noted anew"
    assert free(store)


def test_a_forked_child_has_none_of_its_parents_leases(tmp_path: Path) -> None:
    """Forked while a thread of its parent took one, it could never run anything; and at the end of
    a function that it was forked in, it gave its parent's lease back."""
    store = perdure.open(tmp_path / "a.db")
    exits: list[int] = []

    @perdure.agent(dict)
    def forking(run: perdure.Run[dict[str, Any]]) -> str:
        with store.runner.liveness._claims_lock:
            child = os.fork()
            if not child:
                signal.alarm(round(BOUND_S))  # the end of one that hangs
                with suppress(BaseException):
                    with suppress(perdure.PerdureError):
                        run.now()
                    store.run(noting, "b", "child")
                    os._exit(7)
                os._exit(1)
        exits.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        with run.edit("still mine") as draft:
            draft["forked"] = True
        return "done"

    assert store.run(forking, "a") == "done"
    assert exits == [7]
    assert store.agent("b").state == {"word": "child"}
    assert free(store) and free(store, "b")
    store.close()
