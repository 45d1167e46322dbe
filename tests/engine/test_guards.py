"""Guards: a run that resumes is compared with its last checkpoint and its last execution."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import replication
from perdure.errors import NeedsAttention, RunFailed, StoreUnavailable
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.engine.conftest import Async, Place
from tests.engine.saga_world import begin_world, happened, pay
from tests.engine.test_restored_mail import now
from tests.engine.waits import at_every_boundary, go, records, verify_all


@pytest.fixture(autouse=True)
def rows_follow_from_the_log(place: Place) -> Iterator[None]:
    yield
    verify_all(place)


class Program:
    """One whose model a deploy changes."""

    def __init__(self, on_change: Any = None, **more: Any) -> None:
        self.config: dict[str, Any] = {"model": "m-1", "heat": 1}
        guards = perdure.Guards(config=lambda: self.config, on_change=on_change, **more)

        @perdure.agent(dict, name="act", guards=guards)
        def act(run: perdure.Run[dict], turns: int = 1) -> Any:
            heard = run.wait_for("go")
            return run.again(turns - 1) if turns > 1 else heard

        self.act = act

    def change(self) -> None:
        self.config = {"model": "m-2", "heat": 1}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "surroundings" in one.getMessage()]


def test_a_change_is_told_once_and_the_run_goes_on(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """A deploy changed the model under runs that had waited for weeks; nobody saw which of them had
    gone on with the other one."""
    program = Program()
    handle = store.start(program.act, "a", 3)
    go(store, program.act, "a", 3)
    program.change()
    for _ in range(3):
        handle.signal("go", "x")
        go(store, program.act, "a", 3)
    (told,) = warnings(caplog)
    assert "a/act/main goes on" in told and "configuration 'model'" in told
    assert handle.result() == "x"
    compared = records(store, "a", "run-guards")
    assert [len(one.get("changed", ())) for one in compared].count(1) == 1


def test_a_change_stops_a_run_until_a_person_accepts_it(store: Store) -> None:
    program = Program("stop")
    handle = store.start(program.act, "a")
    go(store, program.act)
    program.change()
    for _ in range(2):
        with pytest.raises(NeedsAttention, match="perdure resume a/act/main"):
            go(store, program.act)
    guards = handle.report().guards
    assert guards is not None and guards.on_change == "stop"
    assert [one.what for one in guards.changed] == ["configuration 'model'"]
    assert "configuration 'model'" in handle.why().why
    assert ("resume", "a/act/main") in [way.command for way in handle.why().ways]
    handle.resume()
    go(store, program.act)
    assert handle.status == "waiting"
    handle.signal("go", "x")
    assert go(store, program.act) == "x"


def test_what_was_put_back_is_no_change(store: Store) -> None:
    program = Program("stop")
    before = program.config
    go(store, program.act)
    program.change()
    with pytest.raises(NeedsAttention):
        go(store, program.act)
    program.config = before
    assert go(store, program.act) is None
    assert store.handle("a/act/main").status == "waiting"


def test_what_was_put_back_and_resumed_goes_on(store: Store) -> None:
    """The old settings were put back, and `perdure resume` told the worker to try again. That had
    accepted the new ones, and it stopped for the old ones: it had to be told twice."""
    program = Program("stop")
    before, handle = program.config, store.start(program.act, "a")
    go(store, program.act)
    program.change()
    with pytest.raises(NeedsAttention):
        go(store, program.act)
    program.config = before
    handle.resume()
    go(store, program.act)
    assert handle.status == "waiting"
    program.change()  # nobody accepts it for good: it was put back
    with pytest.raises(NeedsAttention):
        go(store, program.act)


def test_another_change_than_the_accepted_one_stops_again(store: Store) -> None:
    program = Program("stop")
    go(store, program.act)
    program.change()
    with pytest.raises(NeedsAttention):
        go(store, program.act)
    store.handle("a/act/main").resume()
    program.config = {"model": "m-3", "heat": 1}
    with pytest.raises(NeedsAttention, match="configuration 'model'"):
        go(store, program.act)


def test_ignored_changes_are_recorded(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    program = Program("ignore")
    handle = store.start(program.act, "a")
    go(store, program.act)
    program.change()
    handle.signal("go")
    go(store, program.act)
    assert warnings(caplog) == []
    assert len(records(store, "a", "run-guards")[-1]["changed"]) == 1


def test_environment_and_versions_are_compared_and_values_are_not_recorded(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program(environment=["REGION_X", "SECRET_X"], dependencies=["msgspec", "none-such"])
    monkeypatch.setenv("SECRET_X", "hunter2 hunter2")
    go(store, program.act)
    monkeypatch.setenv("REGION_X", "eu")
    monkeypatch.setattr("perdure.state.surroundings.loaded_version", lambda name: f"9-{name}")
    go(store, program.act)
    (told,) = warnings(caplog)
    for word in ("REGION_X: recorded not set", "none-such: recorded not installed", "9-msgspec"):
        assert word in told
    assert "SECRET_X" not in told and "hunter2" not in str(records(store, "a"))


def test_a_checkpoints_versions_are_compared_without_guards(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @perdure.agent(dict)
    def naming(run: perdure.Run[dict]) -> Any:
        run.checkpoint("before", dependencies=["msgspec"])
        return run.wait_for("go")

    go(store, naming)
    monkeypatch.setattr("perdure.state.surroundings.loaded_version", lambda name: "99")
    for _ in range(2):
        go(store, naming)
    assert len(warnings(caplog)) == 1 and "version of msgspec" in warnings(caplog)[0]


def test_nothing_is_recorded_where_nothing_is_guarded(store: Store) -> None:
    @perdure.agent(dict)
    def plain(run: perdure.Run[dict]) -> Any:
        return run.wait_for("go")

    go(store, plain)
    assert records(store, "a", "run-guards") == []
    assert store.handle("a/plain/main").report().guards is None


def test_the_stores_guards_are_for_all_runs_there(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    @perdure.agent(dict)
    def plain(run: perdure.Run[dict]) -> Any:
        return run.wait_for("go")

    kept = place.open(guards=perdure.Guards(config={"model": "m-1"}))
    go(kept, plain)
    store = place.open(guards=perdure.Guards(config={"model": "m-2"}, on_change="stop"))
    with pytest.raises(NeedsAttention):
        go(store, plain)


def test_a_configuration_that_cannot_be_read_needs_a_person(store: Store) -> None:
    def broken() -> dict[str, Any]:
        raise LookupError("no file")

    @perdure.agent(dict, guards=perdure.Guards(config=broken))
    def act(run: perdure.Run[dict]) -> None: ...

    with pytest.raises(NeedsAttention, match="LookupError: no file"):
        go(store, act)
    assert store.handle("a/act/main").status == "needs_attention"


@pytest.mark.parametrize(
    "config",
    [
        {1: "a", 2: "b"},
        {"n" * 5000: 1},
        {f"name {number}": number for number in range(5000)},
    ],
)
def test_a_configuration_without_usable_names_is_compared_as_a_whole(
    store: Store, config: dict[Any, Any]
) -> None:
    """Numbers as names ended the run's attempts with TypeError, for good."""
    given = dict(config)

    @perdure.agent(dict, guards=perdure.Guards(config=lambda: given, on_change="stop"))
    def act(run: perdure.Run[dict]) -> Any:
        return run.wait_for("go")

    for _ in range(2):
        go(store, act)
    given.popitem()
    with pytest.raises(NeedsAttention, match="configuration: recorded sha256:"):
        go(store, act)


def test_a_configuration_that_is_away_is_tried_again(store: Store) -> None:
    """It is kept in a store, too, and that was away: each run that a worker looked at then would
    have needed a person."""

    def away() -> dict[str, Any]:
        raise StoreUnavailable("is away", outcome="not_done")

    @perdure.agent(dict, guards=perdure.Guards(config=away))
    def act(run: perdure.Run[dict]) -> None: ...

    with pytest.raises(StoreUnavailable):
        go(store, act)
    assert store.handle("a/act/main").status == "running"


# -- turns, retries, forks, children ---------------------------------------------------------------


def test_a_checkpoint_of_an_earlier_turn_still_counts(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent made its checkpoint in the first of many turns. Who resumes it reads one turn, and
    saw no checkpoint any more."""

    @perdure.agent(dict)
    def turning(run: perdure.Run[dict], turn: int = 1) -> Any:
        if turn == 1:
            run.checkpoint("before", dependencies=["msgspec"])
        return run.again(turn + 1) if turn < 3 else run.wait_for("go")

    go(store, turning)
    monkeypatch.setattr("perdure.state.surroundings.loaded_version", lambda name: "99")
    go(store, turning)
    assert len(warnings(caplog)) == 1 and "version of msgspec" in warnings(caplog)[0]


def test_a_checkpoint_of_fewer_settings_is_no_change(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint named the model only, the guards all settings: two hashes that never agree."""
    whole = perdure.Guards(config={"model": "m-1", "heat": 1}, on_change="stop")

    @perdure.agent(dict, guards=whole)
    def naming(run: perdure.Run[dict]) -> Any:
        run.checkpoint("before", config={"model": "m-1"})
        return run.wait_for("go")

    for _ in range(3):
        go(store, naming)
    assert store.handle("a/naming/main").status == "waiting"


def test_a_program_without_guards_does_not_forget_what_others_recorded(place: Place) -> None:
    """One worker of three had an old program, without guards. It made the next turn, and the
    worker after it saw nothing to compare with."""
    program = Program("stop")
    store = place.open()
    go(store, program.act, "a", 3)

    @perdure.agent(dict, name="act")
    def old(run: perdure.Run[dict], turns: int = 1) -> Any:
        heard = run.wait_for("go")
        return run.again(turns - 1) if turns > 1 else heard

    store.handle("a/act/main").signal("go")
    go(store, old, "a", 3)
    program.change()
    with pytest.raises(NeedsAttention, match="configuration 'model'"):
        go(store, program.act, "a", 3)


@perdure.step
def double(number: int) -> int:
    return 2 * number


def test_a_run_that_is_set_back_or_forked_is_compared_with_what_it_goes_on_from(
    store: Store,
) -> None:
    program = Program("stop")

    @perdure.agent(dict, guards=perdure.Guards(config=lambda: program.config, on_change="stop"))
    def steps(run: perdure.Run[dict]) -> Any:
        return double(1) + double(2)

    assert go(store, steps) == 6
    program.change()
    handle = store.handle("a/steps/main")
    fork = handle.fork("double#2", branch="what-if")
    with pytest.raises(NeedsAttention, match="configuration 'model'"):
        go(store, steps, key="main@what-if")
    fork.resume()
    assert go(store, steps, key="main@what-if") == 6
    handle.retry("double#2")
    with pytest.raises(NeedsAttention, match="configuration 'model'"):
        go(store, steps)
    handle.resume()
    assert go(store, steps) == 6


def test_a_child_is_compared_by_its_own_record(store: Store) -> None:
    program = Program("stop")

    @perdure.agent(dict)
    def parent(run: perdure.Run[dict]) -> Any:
        return run.options(key="k").start(program.act, "kid").result()

    go(store, parent)
    go(store, program.act, "kid", key="k")
    program.change()
    store.handle("kid/act/k").signal("go", 7)
    go(store, parent)  # has no guards
    with pytest.raises(NeedsAttention):
        go(store, program.act, "kid", key="k")
    assert store.handle("a/parent/main").status == "waiting"
    store.handle("kid/act/k").resume()
    assert go(store, program.act, "kid", key="k") == 7
    assert go(store, parent) == 7


def test_who_cancels_a_run_does_not_accept_what_it_is_undone_in(
    store: Store, tmp_path: Path
) -> None:
    """A run had stopped, as it would have paid at another bank. It was cancelled, and undone
    there."""
    begin_world(tmp_path)
    program = Program("stop")
    guards = perdure.Guards(config=lambda: program.config, on_change="stop")

    @perdure.agent(dict, compensate=True, guards=guards)
    def travel(run: perdure.Run[dict]) -> None:
        pay(500)
        run.wait_for("never")

    go(store, travel)
    program.change()
    with pytest.raises(NeedsAttention):
        go(store, travel)
    handle = store.handle("a/travel/main")
    handle.cancel("called off")
    with pytest.raises(NeedsAttention):
        go(store, travel)
    assert happened() == ["pay 500"] and handle.status == "needs_attention"
    handle.resume()
    with pytest.raises(RunFailed, match="called off"):
        go(store, travel)
    assert happened() == ["pay 500", "refund"]


# -- keys, crashes, async, other stores ------------------------------------------------------------


def test_digests_are_compared_under_the_key_that_they_were_made_with(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = "o" * 32, "n" * 32
    program = Program(environment=["REGION_X"])
    monkeypatch.setenv("REGION_X", "eu")
    for keys in (old, [new, old]):
        go(place.open(digest_key=keys), program.act)
    assert warnings(caplog) == []
    go(place.open(digest_key=new), program.act)
    assert "REGION_X: recorded a digest by key" in warnings(caplog)[0]


def test_a_changed_run_needs_a_person_at_whatever_commit_the_process_dies(place: Place) -> None:
    programs: dict[str, Program] = {}

    def work(store: Store, agent: str) -> Any:
        program = programs.setdefault(agent, Program("stop"))
        if program.config["model"] == "m-1":
            go(store, program.act, agent)
            store.handle(f"{agent}/act/main").signal("go", "x", key="once")
            program.change()
        if not records(store, agent, "run-pending"):
            with pytest.raises(NeedsAttention, match="configuration 'model'"):
                go(store, program.act, agent)
            store.handle(f"{agent}/act/main").resume()
        return go(store, program.act, agent)

    kept = place.open()
    places = []
    for where, _store, agent, result in at_every_boundary(place, work):
        places.append(where)
        assert result == "x", where
        compared = records(kept, agent, "run-guards")
        assert len(compared) == 2, where  # as it began, and as it was accepted
    assert len(places) >= 12


def test_an_async_run_is_compared_too(runs: Async) -> None:
    config = {"model": "m-1"}
    where: list[bool] = []

    def settings() -> dict[str, Any]:
        where.append(threading.current_thread() is threading.main_thread())
        return config

    @perdure.agent(dict, guards=perdure.Guards(config=settings, on_change="stop"))
    async def act(run: perdure.AsyncRun[dict], turns: int = 2) -> Any:
        heard = await run.wait_for("go")
        return run.again(turns - 1) if turns > 1 else heard

    run_until_waiting(runs.store, act, "a")
    config["model"] = "m-2"
    handle = runs.store.handle("a/act/main")
    handle.signal("go", 1)
    with pytest.raises(NeedsAttention, match="perdure resume a/act/main"):
        runs.run(act)
    handle.resume()
    handle.signal("go", 2, key="second")
    assert runs.run(act) == 2
    assert True not in where, "its configuration is read beside the loop"


def test_a_worker_leaves_a_stopped_run_until_it_is_resumed(store: Store) -> None:
    program = Program("stop")
    handle = store.start(program.act, "a")
    go(store, program.act)
    program.change()
    handle.signal("go", "x")
    events: list[str] = []
    stopped = threading.Event()

    def heard(event: Any) -> None:
        events.append(event.kind)
        if event.kind == "needs_attention":
            stopped.set()

    worker = perdure.Worker(store, [program.act], on_event=heard)
    thread = threading.Thread(target=lambda: worker.run(signals=False))
    thread.start()
    try:
        assert stopped.wait(60)
        handle.resume()
        assert handle.result(timeout=60) == "x"
    finally:
        worker.stop()
        thread.join(60)
    assert events.count("needs_attention") == 1


def test_a_restored_store_compares_as_its_source_would(place: Place, tmp_path: Path) -> None:
    program = Program("stop")
    store = place.open()
    go(store, program.act)
    program.change()
    with pytest.raises(NeedsAttention):
        go(store, program.act)
    target = f"sqlite:///{tmp_path / 'restored.db'}"
    replication.restore(place.url, target, now(store))
    with perdure.open(target, create=False) as restored:
        handle = restored.handle("a/act/main")
        known = handle.report()
        assert known.info.status == "needs_attention" and known.guards is not None
        assert [one.what for one in known.guards.changed] == ["configuration 'model'"]
        handle.resume()
        go(restored, program.act)
        assert handle.info.status == "waiting"


# -- rubbish ---------------------------------------------------------------------------------------


async def later() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"config": 7},
        {"config": later},
        {"environment": [f"V{number}" for number in range(1001)]},
        {"config": {"a": object()}},
        {"dependencies": "msgspec"},
        {"dependencies": [7]},
        {"environment": ["A=B"]},
        {"environment": [""]},
        {"on_change": "shout"},
        {"on_change": 7},
    ],
)
def test_guards_are_checked_where_they_are_made(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError, perdure.Unstorable)):
        perdure.Guards(**wrong)
    with pytest.raises(TypeError, match="guards="):
        perdure.open("memory://", guards=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="guards="):
        perdure.agent(dict, guards=wrong)  # type: ignore[call-overload]
