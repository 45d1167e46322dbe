"""The options of an edit inside a run: its group, its tags, its idempotency key; and trace ids."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import NeedsAttention
from perdure.testing import kill_at_every_boundary, replay, run_until_waiting
from tests.engine.conftest import Async, CrashError, Crashes


@perdure.agent(dict)
def count(run: perdure.Run[dict], command: str) -> int:
    with run.edit("counted", key=f"command {command}", tags=["webhook"]) as draft:
        draft["n"] = draft.get("n", 0) + 1
    return int(run.state.get("n", 0))


def test_a_group_is_undone_together_and_labels_are_in_the_log(store: Any) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        for number in range(3):
            with run.edit("turn", group="turn 1", tags=["chat", "turn"]) as draft:
                draft[f"k{number}"] = number
        run.undo()
        return dict(run.state)

    assert store.run(act, "a") == {}
    edit = store.agent("a").commit(3)
    assert (edit.cause.group, edit.cause.tags) == ("turn 1", ("chat", "turn"))
    assert (edit.cause.run, edit.cause.step) == ("a/act/main", "edit:turn#1")


def test_two_runs_do_what_one_webhook_asks_for_once(store: Any, crash: Crashes) -> None:
    """A webhook came twice, as webhooks do, under two ids of the gateway: two runs, and both
    counted it."""
    assert store.options(key="1").run(count, "a", "w-1") == 1
    assert store.options(key="2").run(count, "a", "w-1") == 1
    assert store.options(key="3").run(count, "a", "w-2") == 2
    agent = store.agent("a")
    assert agent.state == {"n": 2}
    edits = [commit for commit in agent.log() if commit.cause.kind == "edit"]
    keys = [commit.cause.key for commit in edits]
    assert keys == ["command w-1", None, "command w-2"]
    assert [bool(commit.delta) for commit in edits] == [True, False, True]
    agent.verify()
    for key in ("1", "2", "3"):
        replay(store, count, f"a/count/{key}").check()


def test_an_agents_own_edit_and_that_of_a_run_share_their_keys(store: Any) -> None:
    with store.agent("a").edit("counted", key="command w-1") as draft:
        draft["n"] = 10
    assert store.run(count, "a", "w-1") == 10
    store.options(key="2").run(count, "a", "w-2")
    with store.agent("a").edit("counted", key="command w-2") as draft:
        draft["n"] = 99
    assert store.agent("a").state == {"n": 11}


def test_a_key_of_something_else_needs_attention(store: Any) -> None:
    with store.agent("a").edit("another thing", key="command w-1") as draft:
        draft["n"] = 10
    with pytest.raises(NeedsAttention, match="was used for something else"):
        store.run(count, "a", "w-1")
    assert store.handle("a/count/main").status == "needs_attention"


def test_it_is_used_once_by_a_run_that_died_behind_it(runs: Async, crash: Crashes) -> None:
    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        for _ in range(2):
            async with run.edit("counted", key="k") as draft:
                draft["n"] = draft.get("n", 0) + 1
        crash("after")
        return dict(run.state)

    crash.arm("after")
    runs.crash(act)
    assert runs.run(act) == {"n": 1}


def test_a_run_that_is_set_back_makes_it_again(store: Any) -> None:
    """Its edit was left with the history that it left; the key was used, so that the edit was
    passed over, and the state lacked it for good. So with a what-if, whichever is there first."""

    @perdure.step
    def work(what: str) -> str:
        return what

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        work("before")
        with run.edit("counted", key="k") as draft:
            draft["n"] = draft.get("n", 0) + 1
        work("behind")
        with run.edit("counted again", key="k2") as draft:
            draft["m"] = draft.get("m", 0) + 1
        return dict(run.state)

    whole = {"n": 1, "m": 1}
    assert store.run(act, "a") == whole
    handle = store.handle("a/act/main")
    for step in ("work#1", "work#2", "work#1"):
        handle.retry(step)
        assert store.run(act, "a") == whole
    forked = handle.fork("work#2", branch="what-if")
    assert store.options(key=forked.info.key).run(act, "a") == whole
    deeper = forked.fork("work#1", branch="what-if-2")
    assert store.options(key=deeper.info.key).run(act, "a") == whole
    assert store.agent("a").state == whole
    store.agent("a").verify()


def test_a_fork_that_uses_a_key_first_is_not_in_the_way(store: Any, crash: Crashes) -> None:
    @perdure.step
    def work(what: str) -> str:
        crash(what)
        return what

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        work("begin")
        work("middle")
        with run.edit("counted", key="k") as draft:
            draft["n"] = draft.get("n", 0) + 1
        return dict(run.state)

    crash.arm("middle")
    with pytest.raises(CrashError):
        store.run(act, "a")
    forked = store.handle("a/act/main").fork("work#1", branch="what-if")
    assert store.options(key=forked.info.key).run(act, "a") == {"n": 1}
    assert store.run(act, "a") == {"n": 1}
    assert store.agent("a").branch("what-if").state == {"n": 1}


def test_a_block_that_raises_uses_no_key(store: Any) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        for fails in (True, False):
            try:
                with run.edit("counted", key="k") as draft:
                    draft["n"] = draft.get("n", 0) + 1
                    if fails:
                        raise ValueError("not yet")
            except ValueError:
                pass
        try:
            with run.edit("counted", key="k") as draft:
                draft["n"] = 99
                raise ValueError("too late")
        except ValueError:
            pass
        return dict(run.state)

    assert store.run(act, "a") == {"n": 1}
    replay(store, act).check()


@pytest.mark.parametrize(
    "options", [{"key": ""}, {"key": 5}, {"group": 5}, {"tags": "one"}, {"tags": [5]}]
)
def test_what_no_log_can_keep_is_refused_at_the_call(store: Any, options: Any) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        with pytest.raises((TypeError, ValueError)):
            run.edit("why", **options)

    store.run(act, "a")


def test_killed_at_every_boundary() -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        for number in range(4):
            with run.edit("counted", key=f"k{number % 3}", group="g") as draft:
                draft[f"k{number % 3}"] = number
        run.undo()
        run.redo()
        return dict(run.state)

    endings = kill_at_every_boundary(act)
    assert endings[0].result == {"k0": 0, "k1": 1, "k2": 2}


# -- trace ids -------------------------------------------------------------------------------------


@perdure.step
def work(what: str) -> str:
    return what


@perdure.agent(dict)
def child(run: perdure.Run[dict]) -> str | None:
    with run.edit("the child's own"):
        pass
    return run.trace


@perdure.agent(dict)
def traced(run: perdure.Run[dict], turn: int = 0) -> Any:
    work("one")
    with run.edit("by the run"):
        pass
    with run.edit("by itself", trace="t-own"):
        pass
    run.checkpoint("point")
    run.wait_for("go")
    if turn == 0:
        return run.again(1)
    return run.trace, run.start(child, "b").id


def traces(store: Any, agent: str = "a") -> list[tuple[str, str | None]]:
    return [(commit.cause.kind, commit.cause.trace) for commit in store.agent(agent).log()]


@pytest.mark.parametrize("how", ["run", "start"])
def test_each_commit_of_a_run_has_its_trace_id(place: Any, how: str) -> None:
    """Of a request that spanned services, two commits could be found in the log, by their edits'
    own words; steps, tools, and what another process did after a crash could not."""
    store = place.open()
    options = store.options(trace="t-1")
    if how == "start":
        options.start(traced, "a")
        options = store.options()
    handle = run_until_waiting(options, traced, "a")
    handle.signal("go")
    run_until_waiting(store, traced, "a")
    other = place.open()
    other.handle("a/traced/main").signal("go")
    told, started = other.run(traced, "a")
    assert told == "t-1"
    ours = [one for one in traces(store) if one[0] != "create"]
    assert {trace for _, trace in ours} == {"t-1", "t-own"}
    assert [kind for kind, trace in ours if trace == "t-own"] == ["edit", "edit"]
    assert {"run-started", "run-resumed", "run-turn", "run-waiting", "run-finished"} <= {
        kind for kind, _ in ours
    }
    assert other.run(child, "b") is None or started != "b/child/main"
    key = other.handle(started).info.key
    assert other.options(key=key).run(child, "b") == "t-1"


def test_it_comes_along_with_a_fork_and_after_a_crash(store: Any, crash: Crashes) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        work("one")
        crash("between")
        work("two")
        return run.trace

    crash.arm("between")
    with pytest.raises(CrashError):
        store.options(trace="t-1").run(act, "a")
    assert store.run(act, "a") == "t-1"
    assert all(trace == "t-1" for kind, trace in traces(store) if kind in ("step", "run-finished"))
    forked = store.handle("a/act/main").fork("work#2", branch="what-if")
    assert store.options(key=forked.info.key, trace="another").run(act, "a") == "t-1"


@pytest.mark.parametrize("trace", [5, "x" * 100_000, "\ud800"])
def test_a_trace_id_that_no_log_can_keep_is_refused_at_the_call(store: Any, trace: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        store.options(trace=trace)
