"""Checkpoints from beside a run that executes, of all agents at one moment, and automatic ones."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure import CheckpointPolicy, Conflict, NotFound
from perdure.engine.journal.leaving import Drained
from perdure.testing import kill_at_every_boundary, replay, run_until_waiting
from tests.engine.conftest import Async, CrashError, Crashes, Place
from tests.engine.working import wait_until


class Tool:
    """A tool that stands still until it may go on."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

        @perdure.tool(on_crash="retry")
        def hold() -> int:
            self.begun.set()
            assert self.may_end.wait(60)
            return 1

        self.hold = hold


@pytest.fixture
def tool() -> Tool:
    return Tool()


def copying(tool: Tool) -> Any:
    @perdure.agent(dict)
    def copy(run: perdure.Run[dict]) -> int:
        with run.edit("one") as draft:
            draft["a"] = 1
        tool.hold()
        with run.edit("two") as draft:
            draft["a"] = 2
        return int(run.state["a"])

    return copy


def working_on(tool: Tool) -> Any:
    """It changes nothing more, and never ends by itself."""

    @perdure.agent(dict)
    def copy(run: perdure.Run[dict]) -> None:
        with run.edit("one") as draft:
            draft["a"] = 1
        while True:
            tool.hold()
            run.sleep(0.001)

    return copy


def let_go_when_asked(store: Any, tool: Tool) -> None:
    """The tool ends once the run is asked to."""
    backend = store.runner.context.backend

    def wait() -> None:
        wait_until(lambda: backend.inbox("a/copy/main", kind="cancel"))
        tool.may_end.set()

    threading.Thread(target=wait).start()


class Beside:
    """A run on a thread of its own, which executes until it is let go."""

    def __init__(self, store: Any, function: Any, tool: Tool, agent: str = "a") -> None:
        self.result: list[Any] = []

        def act() -> None:
            try:
                self.result.append(store.run(function, agent))
            except BaseException as error:
                self.result.append(error)

        self.tool, self.thread = tool, threading.Thread(target=act)
        self.thread.start()
        assert tool.begun.wait(60)

    def end(self) -> Any:
        self.tool.may_end.set()
        self.thread.join(60)
        return self.result[0]


def test_a_run_that_executes_is_named_where_it_is(place: Place, tool: Tool) -> None:
    """The checkpoint before a deploy met runs that were in long calls: each was a Conflict, and
    nobody could say what their states had been."""
    store = place.open()
    copy = copying(tool)
    run = Beside(store, copy, tool)
    agent = place.open().agent("a")
    point = agent.checkpoint("before the deploy", config={"model": "m-1"})
    assert (point.run, point.position) == ("a/copy/main", "hold#1")
    assert agent.state == {"a": 1}
    assert run.end() == 2
    assert agent.refresh() == {"a": 2}
    past = agent.at("before the deploy", config={"model": "m-1"}, strict=True)
    assert past.state == {"a": 1}
    with pytest.raises(Conflict, match="is taken"):
        agent.checkpoint("before the deploy")
    replay(store, copy).check()
    agent.verify()
    agent.rollback("before the deploy")
    assert agent.state == {"a": 1}
    agent.undo()
    assert agent.state == {}
    agent.verify()


def test_names_are_taken_beside_a_run_too(place: Place, tool: Tool) -> None:
    store = place.open()
    run = Beside(store, copying(tool), tool)
    agent = store.agent("a")
    for number in range(5):
        agent.checkpoint(f"point {number}")
    for name in ("main", "point 0"):
        with pytest.raises(Conflict, match="is taken"):
            agent.checkpoint(name)
    with pytest.raises(NotFound):
        agent.checkpoint("more", dependencies=["no-such-distribution"])
    assert run.end() == 2
    assert [one.name for one in agent.checkpoints()] == [f"point {n}" for n in range(5)]
    agent.verify()


def test_an_async_handle_names_it_too(runs: Async, tool: Tool) -> None:
    async def main() -> None:
        async with perdure.open_async(runs._place.url, durability="os") as store:
            agent = await store.agent("a")
            assert (await agent.checkpoint("beside")).seq > 2
            named = await store.checkpoint_all("all of them")
            assert list(named.points) == ["a"]

    run = Beside(runs.store, copying(tool), tool)
    try:
        asyncio.run(main())
    finally:
        run.end()
    assert runs.store.agent("a").at("beside").state == {"a": 1}


def test_all_agents_are_named_as_they_were_at_one_moment(place: Place, tool: Tool) -> None:
    store = place.open()
    for number in range(3):
        with store.agent(f"quiet-{number}").edit("it") as draft:
            draft["n"] = number
    with store.agent("taken").edit("it") as draft:
        draft["n"] = 9
    store.agent("taken").checkpoint("before the deploy")
    with store.agent("deleted").edit("it"):
        pass
    store.delete("deleted")
    run = Beside(store, copying(tool), tool)
    named = store.checkpoint_all("before the deploy", config={"release": 7})
    assert sorted(named.points) == ["a", "quiet-0", "quiet-1", "quiet-2"]
    assert [*named.failed] == ["taken"]
    assert "is taken" in named.failed["taken"]
    assert run.end() == 2
    for name, point in named.points.items():
        agent = store.agent(name)
        assert agent.commit(point.seq).cause.kind == "checkpoint"
        seen = agent.at("before the deploy", config={"release": 7}, strict=True).state
        assert seen == ({"a": 1} if name == "a" else {"n": int(name[-1])})
        agent.verify()
    only = store.checkpoint_all("some", prefix="quiet-")
    assert len(only.points) == 3 and not only.failed
    assert only.at >= named.at


def test_what_is_on_its_way_at_that_moment_is_named_or_of_a_later_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit had its time, and was not in the log yet, when an orchestrator named all agents. Who
    went back to the moment that it was told got another state than who went back to the name."""
    store, other = place.open(), place.open()
    backend, told = store.runner.context.backend, list[str]()
    append = backend.append
    other.agent("a").update(lambda draft: draft.update(n=1))

    def late(batch: Any) -> Any:
        if not told:
            told.append("now")
            monkeypatch.setattr(other.runner.context.backend, "now", lambda: 0)  # as it was before
            other.agent("a").update(lambda draft: draft.update(n=2))
        return append(batch)

    monkeypatch.setattr(backend, "append", late)
    named = store.checkpoint_all("all")
    agent = store.agent("a")
    assert told and agent.at("all").state == agent.at(named.at).state


def test_retention_keeps_what_is_named_beside(place: Place, tool: Tool) -> None:
    store = place.open()
    run = Beside(store, copying(tool), tool)
    agent = store.agent("a")
    agent.checkpoint("beside")
    run.end()
    agent.refresh()
    for number in range(5):
        with agent.edit("more") as draft:
            draft["a"] = number
    agent.trim(before=agent.seq)
    assert agent.at("beside").state == {"a": 1}
    agent.verify()


# -- before tools ----------------------------------------------------------------------------------


def paying(crash: Crashes, **options: Any) -> Any:
    @perdure.tool(on_crash="retry", **options)
    def refund(cents: int) -> int:
        crash.note(cents)
        crash(f"in {cents}")
        return cents

    return refund


@pytest.mark.parametrize(("given", "name"), [(True, "before refund"), ("as it was", "as it was")])
def test_the_state_before_a_tool_is_named(
    store: Any, crash: Crashes, given: Any, name: str
) -> None:
    refund = paying(crash, checkpoint=given)

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        for cents in (5, 7):
            with run.edit("noted") as draft:
                draft["cents"] = cents
            refund(cents)
        return run.state["cents"]

    crash.arm("in 7")
    with pytest.raises(CrashError):
        store.run(act, "a")
    assert store.run(act, "a") == 7
    assert crash.calls == [5, 7, 7]
    agent = store.agent("a")
    points = {one.name: one for one in agent.checkpoints()}
    assert [*points] == [name, f"{name}#2"]
    assert agent.at(name).state == {"cents": 5}
    assert agent.at(f"{name}#2").state == {"cents": 7}
    assert points[name].position == "refund#1"
    assert agent.commit(points[name].seq).cause.kind == "intent"
    replay(store, act).check()
    agent.verify()


def test_a_tool_is_given_it_while_its_runs_are_under_way(store: Any, crash: Crashes) -> None:
    """A deploy that only asks for more names must not stop runs that were past their place."""
    now = [paying(crash)]

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> int:
        now[0](5)
        crash("between")
        return int(now[0](7))

    crash.arm("between")
    with pytest.raises(CrashError):
        store.run(act, "a")
    now[0] = paying(crash, checkpoint=True)
    assert store.run(act, "a") == 7
    assert [one.name for one in store.agent("a").checkpoints()] == ["before refund"]


def test_tools_of_several_tasks_are_named_each(runs: Async, crash: Crashes) -> None:
    @perdure.tool(on_crash="retry", checkpoint=True)
    async def refund(cents: int) -> int:
        await asyncio.sleep(0)
        return cents

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        async def write(number: int) -> None:
            async with run.edit("noted") as draft:
                draft[f"k{number}"] = number
                await asyncio.sleep(0.005)

        paid = await asyncio.gather(*map(refund, range(4)), *map(write, range(4)))
        crash("after")
        return paid[:4]

    crash.arm("after")
    runs.crash(act)
    assert runs.run(act) == [0, 1, 2, 3]
    agent = runs.store.agent("a")
    assert len(agent.checkpoints()) == 4
    for point in agent.checkpoints():
        assert agent.at(point.name, strict=True).mismatches == []
    agent.verify()


def test_a_retried_tool_is_named_once(store: Any, crash: Crashes) -> None:
    failures = iter([True, True, False])

    @perdure.tool(on_crash="retry", checkpoint=True, retry=perdure.Retry(attempts=3, first=0.001))
    def refund(cents: int) -> int:
        if next(failures):
            raise OSError("later")
        return cents

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> int:
        return int(refund(5))

    assert store.run(act, "a") == 5
    assert [one.name for one in store.agent("a").checkpoints()] == ["before refund"]


@pytest.mark.parametrize("given", [5, "", "12", "@mine", "x" * 500, None])
def test_what_names_no_checkpoint_is_refused_where_it_is_declared(given: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        perdure.tool(checkpoint=given)(len)


def test_killed_at_every_boundary() -> None:
    @perdure.tool(on_crash="retry", checkpoint=True)
    def refund(cents: int) -> int:
        return cents

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        for cents in (5, 7):
            with run.edit("noted") as draft:
                draft["cents"] = cents
            refund(cents)
        run.rollback("before refund")
        return dict(run.state)

    endings = kill_at_every_boundary(act)
    assert endings[0].result == {"cents": 5}


# -- by a policy -----------------------------------------------------------------------------------


def test_every_tenth_commit_is_named_even_if_it_is_noticed_late(place: Place, tool: Tool) -> None:
    store = place.open(checkpoints=CheckpointPolicy(every_commits=10))

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        for number in range(40):
            with run.edit("more") as draft:
                draft["n"] = number
        tool.hold()

    run = Beside(store, act, tool)
    agent = store.agent("a")
    wait_until(lambda: len(agent.checkpoints()) >= 4)
    run.end()
    points = agent.checkpoints()
    seqs = [commit.seq for commit in agent.log()]
    named = sorted(seqs.index(agent.commit(one.seq).cause.refers[0]) for one in points)
    assert named == [11, 21, 31, 41]  # behind the creation, and the begin
    for point in points:
        seq = agent.commit(point.seq).cause.refers[0]
        assert point.name == f"auto {seq}"
        assert agent.at(point.name, strict=True).state == agent.at(seq).state
    agent.verify()


def test_after_a_time_it_is_named_without_a_commit_in_between(place: Place, tool: Tool) -> None:
    store = place.open(checkpoints=CheckpointPolicy(every_seconds=0.05))
    run = Beside(store, copying(tool), tool)
    agent = store.agent("a")
    wait_until(lambda: "auto 4#3" in [one.name for one in agent.checkpoints()])
    named = [one.name for one in agent.checkpoints()]
    assert {"auto 4", "auto 4#2", "auto 4#3"} <= {*named}
    assert agent.at("auto 4#3", strict=True).state == {"a": 1}
    run.end()
    agent.verify()


def test_a_run_that_leaves_as_its_process_ends_is_named(place: Place, tool: Tool) -> None:
    store = place.open(checkpoints=CheckpointPolicy(at_exit=True))

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        with run.edit("one") as draft:
            draft["a"] = 1
        tool.hold()
        with run.edit("two") as draft:
            draft["a"] = 2

    run = Beside(store, act, tool)
    store.runner.stop_all(Drained("this process ends"))
    assert isinstance(run.end(), Drained)
    agent = store.agent("a")
    [point] = agent.checkpoints()
    assert agent.at(point.name, strict=True).state == {"a": 1}
    assert store.run(act, "a") is None
    assert len(agent.checkpoints()) == 1


def test_an_async_run_is_named_by_the_policy(place: Place) -> None:
    kept = place.open()

    async def main() -> None:
        policy = CheckpointPolicy(every_commits=5)
        async with perdure.open_async(place.url, checkpoints=policy) as store:

            @perdure.agent(dict)
            async def act(run: perdure.AsyncRun[dict]) -> None:
                for number in range(20):
                    async with run.edit("more") as draft:
                        draft["n"] = number

            await store.run(act, "a")

    asyncio.run(main())
    agent = kept.agent("a")
    assert len(agent.checkpoints()) == 4
    agent.verify()


def test_a_run_that_waits_is_let_go(place: Place) -> None:
    """Whoever watched it would name it for ever."""
    store = place.open(checkpoints=CheckpointPolicy(every_seconds=0.02))

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        run.wait_for("go")

    run_until_waiting(store, act, "a")
    assert not [one for one in threading.enumerate() if one.name.startswith("perdure-points")]


@pytest.mark.parametrize(
    "given",
    [
        {"every_commits": 0},
        {"every_commits": 1.5},
        {"every_commits": True},
        {"every_seconds": 0},
        {"every_seconds": "1"},
        {"every_seconds": float("nan")},
        {"at_exit": 1},
    ],
)
def test_a_policy_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        CheckpointPolicy(**given)


def test_a_policy_must_be_one(tmp_path: Any) -> None:
    with pytest.raises(TypeError, match="CheckpointPolicy"):
        perdure.open("memory://", checkpoints=5)  # type: ignore[arg-type]
    assert CheckpointPolicy(every_seconds=timedelta(minutes=1)).every_seconds == 60.0


# -- halted first ----------------------------------------------------------------------------------


def test_a_rollback_halts_a_run_that_executes(place: Place, tool: Tool) -> None:
    """It was refused, as the branch was leased, though it had been asked to end the run."""
    store = place.open()
    agent = place.open().agent("a")
    with agent.edit("before") as draft:
        draft["a"] = 0
    agent.checkpoint("before")
    run = Beside(store, working_on(tool), tool)
    let_go_when_asked(store, tool)
    move = agent.rollback("before", cancel_run=True)
    assert move.tool_calls[-1]["place"] == "hold#1"
    assert agent.state == {"a": 0}
    assert isinstance(run.end(), perdure.RunFailed)
    assert store.handle("a/copy/main").status == "cancelled"
    agent.verify()


@pytest.mark.parametrize("way", ["undo", "rollback", "adopt"])
def test_an_async_handle_halts_it_too(runs: Async, tool: Tool, way: str) -> None:
    agent = runs.store.agent("a")
    with agent.edit("before") as draft:
        draft["a"] = 0
    agent.fork("side")
    run = Beside(runs.store, working_on(tool), tool)
    let_go_when_asked(runs.store, tool)

    async def main() -> Any:
        async with perdure.open_async(runs._place.url, durability="os") as store:
            handle = await store.agent("a")
            args: dict[str, list[Any]] = {"undo": [], "rollback": [2], "adopt": ["side"]}
            await getattr(handle, way)(*args[way], cancel_run=True)
            return dict(handle.state)

    assert asyncio.run(main()) == {"a": 0}
    run.end()


def test_one_that_does_not_come_to_a_boundary_is_said(place: Place, tool: Tool) -> None:
    store = place.open()
    run = Beside(store, working_on(tool), tool)
    agent = store.agent("a")
    with pytest.raises(perdure.TimedOut, match=r"a/copy/main.*hold#1"):
        agent.rollback(1, cancel_run=True, timeout=0.05)
    assert isinstance(run.end(), perdure.RunFailed)  # that stays asked for
    agent.rollback(1, cancel_run=True)
    assert agent.state == {}
