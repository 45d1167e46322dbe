"""What holds for runs of plain functions holds for those of async ones: intents, crash policies,
resuming at the exact step, standing by, fencing; also after a kill at any boundary."""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import perdure
from perdure.errors import Fenced
from perdure.model import Lease
from perdure.storage.capabilities import RunQuery
from perdure.testing import Ending, kill_program_at_every_boundary
from tests.engine.conftest import CrashError, Crashes, Place

_names = itertools.count()


def run_async(url: Any, function: Any, *args: Any, **more: Any) -> Any:
    """Run it in a store and a loop of its own."""

    async def main() -> Any:
        async with perdure.open_async(url, durability="os", **more) as store:
            return await asyncio.wait_for(store.run(function, "a", *args), 60)

    return asyncio.run(main())


@pytest.fixture
def url(place: Place) -> str:
    place.open()  # a store in memory lives as long as it is open
    return place.url


def handle(place: Place, name: str = "act") -> Any:
    return place.opened[0].handle(f"a/{name}/main")


# -- one after the other -------------------------------------------------------------------------


def test_it_resumes_at_the_exact_step(url: str, crash: Crashes) -> None:
    @perdure.step
    async def work(number: int) -> int:
        crash.note(number)
        crash(f"in {number}")
        return number * 10

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> list[int]:
        done = []
        for number in range(3):
            done.append(await work(number))
            async with run.edit(f"after {number}") as draft:
                draft["done"] = list(done)
            crash(f"after {number}")
        return done

    crash.arm("after 0", "in 1", "after 2")
    for _ in range(3):
        with pytest.raises(CrashError):
            run_async(url, act)
    assert run_async(url, act) == [0, 10, 20]
    assert run_async(url, act) == [0, 10, 20]
    assert crash.calls == [0, 1, 1, 2]


def test_a_tools_intent_is_there_while_it_is_called_and_its_outcome_after(
    url: str, place: Place
) -> None:
    seen: list[list[str]] = []

    def look() -> None:
        seen.append([effect.state for effect in handle(place).effects()])

    @perdure.tool(on_crash="ask")
    async def pay() -> str:
        look()
        return perdure.idempotency_key()

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        key = await pay()
        look()
        return key

    key = run_async(url, act)
    assert seen == [["in doubt"], ["done"]]
    assert key == handle(place).effects()[0].key


@pytest.mark.parametrize(
    ("policy", "calls", "result"),
    [("retry", 2, "paid"), ("probe", 1, "found"), ("fail", 1, "in doubt"), ("ask", 1, None)],
)
def test_a_call_in_doubt_has_its_policy(
    url: str, place: Place, crash: Crashes, policy: Any, calls: int, result: str | None
) -> None:
    keys: list[str] = []

    async def find() -> str:
        await asyncio.sleep(0)
        return "found"

    @perdure.tool(on_crash=policy, probe=find if policy == "probe" else None)
    async def pay() -> str:
        keys.append(perdure.idempotency_key())
        crash("paying")
        return "paid"

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        try:
            return await pay()
        except perdure.InDoubt:
            return "in doubt"

    crash.arm("paying")
    with pytest.raises(CrashError):
        run_async(url, act)
    if result is None:
        with pytest.raises(perdure.NeedsAttention, match="nobody knows"):
            run_async(url, act)
        handle(place).settle("pay#1", done="said so")
        result = "said so"
    assert run_async(url, act) == result
    assert len(keys) == calls and len(set(keys)) == 1


def test_errors_are_results_too(url: str, crash: Crashes) -> None:
    @perdure.step
    async def failing() -> None:
        crash.note("called")
        raise KeyError("gone")

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        try:
            await failing()
        except KeyError as error:
            crash("after")
            return str(error)
        return "no error"

    crash.arm("after")
    with pytest.raises(CrashError):
        run_async(url, act)
    assert run_async(url, act) == "'gone'"
    assert crash.calls == ["called"]


def test_attempts_are_counted_over_a_crash(url: str, crash: Crashes) -> None:
    @perdure.tool(on_crash="retry", retry=perdure.Retry(4, first=0.01))
    async def flaky() -> int:
        crash.note(perdure.idempotency_key())
        crash("in flight")
        if len(crash.calls) < 4:
            raise OSError("try again")
        return len(crash.calls)

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> int:
        return await flaky()

    crash.arm("in flight")
    with pytest.raises(CrashError):
        run_async(url, act)
    assert run_async(url, act) == 4
    assert len(set(crash.calls)) == 1


def test_a_crash_comes_out_as_itself_from_a_group_too(url: str, crash: Crashes) -> None:
    """`SystemExit` and the like ended the run as if somebody had caught them."""

    @perdure.step
    async def dying(number: int) -> int:
        await asyncio.sleep(0)
        crash("now")
        return number

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> int:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(dying(number)) for number in range(3)]
        return sum(task.result() for task in tasks)

    crash.arm("now")
    with pytest.raises(CrashError):
        run_async(url, act)
    assert run_async(url, act) == 3


def test_a_crash_in_plain_code_does_not_record_that_others_were_cancelled(
    url: str, place: Place, crash: Crashes
) -> None:
    """The process died in one task; the calls of its siblings were recorded as cancelled, and when
    the run went on, nobody cancelled them again: it waited, and then stopped."""

    @perdure.step
    async def slow() -> str:
        await asyncio.sleep(60 if crash.armed else 0)
        return "slow"

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        async def dying() -> None:
            await asyncio.sleep(0.05)
            crash("in plain code")

        tasks = [asyncio.create_task(slow()), asyncio.create_task(dying())]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return str(tasks[0].result())

    crash.arm("in plain code")
    with pytest.raises(CrashError):
        run_async(url, act)
    assert run_async(url, act) == "slow"


def test_an_owner_that_lost_its_lease_is_fenced(url: str, place: Place) -> None:
    """It was held up longer than its lease: what it does then is refused, and not in the log."""
    backend = place.opened[0]._context.backend

    @perdure.step
    async def slow() -> int:
        (found,) = backend.runs(RunQuery(agent="a"))
        ref = backend.ref(found.agent_no, found.branch)
        assert ref is not None
        taken = backend.lease(found.agent_no, found.branch, "a thief", over=ref.epoch)
        assert isinstance(taken, Lease)
        return 1

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> int:
        return await slow()

    async def main() -> None:
        async with perdure.open_async(url, durability="os") as store:
            await asyncio.wait_for(store.run(act, "a"), 1)

    with pytest.raises((Fenced, TimeoutError)):  # it stands by for the thief
        asyncio.run(main())
    assert not any(
        record["t"] == "step"
        for commit in place.opened[0].agent("a", dict).log()
        for record in commit.records
    )


# -- several processes -----------------------------------------------------------------------------


@perdure.step
async def hold(folder: str) -> str:
    while (Path(folder) / "hold").exists():
        (Path(folder) / "inside").touch()
        await asyncio.sleep(0.01)
    return "through"


@perdure.tool(on_crash="retry")
async def note(folder: str, line: str) -> None:
    with (Path(folder) / "notes").open("a") as notes:
        notes.write(f"{line}\n")


@perdure.agent(dict)
async def holding(run: perdure.AsyncRun[dict], folder: str) -> str:
    await note(folder, "one")
    await asyncio.gather(hold(folder), note(folder, "two"))
    await note(folder, "three")
    return "done"


def _execute(folder: str) -> None:
    run_async(Path(folder) / "runs.db", holding, folder, lease_ttl=timedelta(seconds=2))


def test_a_standby_takes_over_at_the_same_place_when_the_owner_is_killed(tmp_path: Path) -> None:
    folder = str(tmp_path)
    (tmp_path / "hold").touch()
    owner = multiprocessing.get_context("spawn").Process(target=_execute, args=(folder,))
    owner.start()

    async def main() -> Any:
        url = tmp_path / "runs.db"
        async with perdure.open_async(url, durability="os") as store:
            standing_by = asyncio.create_task(store.run(holding, "a", folder))
            await asyncio.sleep(0.2)
            assert not standing_by.done()
            owner.kill()
            (tmp_path / "hold").unlink()
            return await asyncio.wait_for(standing_by, 60)

    try:
        for _ in range(3000):
            if (tmp_path / "inside").exists() and "two" in (tmp_path / "notes").read_text():
                break
            owner.join(0.02)
        assert asyncio.run(main()) == "done"
    finally:
        owner.kill()
        owner.join()
    notes = (tmp_path / "notes").read_text().split()
    assert notes[0] == "one" and notes[-1] == "three"
    assert notes.count("one") == notes.count("three") == 1
    assert notes.count("two") in (1, 2)


def _migrate(folder: Path) -> Any:
    return run_async(folder / "runs.db", moving, str(folder))


@perdure.tool(on_crash="probe", probe=lambda folder, name: _moved(folder, name))
async def move(folder: str, name: str) -> str:
    await asyncio.sleep(0)
    with (Path(folder) / "moved").open("a") as moved:
        moved.write(f"{name}\n")
    return name


def _moved(folder: str, name: str) -> Any:
    moved = Path(folder) / "moved"
    there = moved.exists() and name in moved.read_text().split()
    return name if there else perdure.NOT_DONE


@perdure.step
async def plan(folder: str) -> list[str]:
    return ["x", "y"]


@perdure.agent(dict)
async def moving(run: perdure.AsyncRun[dict], folder: str) -> list[str]:
    names = await plan(folder)
    moved = await asyncio.gather(*(move(folder, name) for name in names))
    async with run.edit("moved") as draft:
        draft["moved"] = list(moved)
    return list(moved)


def test_killed_at_any_boundary_it_ends_the_same(tmp_path: Path) -> None:
    def check(end: Ending) -> None:
        assert end.error is None, (end.killed_at, end.error)
        assert end.result == ["x", "y"], end.killed_at
        assert sorted((end.folder / "moved").read_text().split()) == ["x", "y"], end.killed_at

    boundaries = kill_program_at_every_boundary(_migrate, check, tmp_path)
    assert boundaries >= 16  # those of its step and its two tools are among them


# -- any program -----------------------------------------------------------------------------------

LEAVES = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 3)),
    st.tuples(st.just("sync"), st.integers(0, 3)),
    st.tuples(st.just("tool"), st.integers(0, 3)),
    st.tuples(st.just("edit"), st.integers(0, 3)),
    st.tuples(st.just("value"), st.integers(0, 3)),
    st.tuples(st.just("pause"), st.integers(0, 3)),
)
PROGRAMS = st.recursive(
    LEAVES,
    lambda inner: st.tuples(
        st.sampled_from(["all", "then", "first", "group"]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=10,
)


class World:
    """What a program did outside, and where it dies."""

    def __init__(self, dies_at: list[int]) -> None:
        self.effects: dict[str, set[str]] = {}
        self.called = 0
        self._dies_at = dies_at

    def passes(self) -> None:
        """A place to die at."""
        self.called += 1
        if self.called in self._dies_at:
            raise CrashError(self.called)


def _functions(world: World) -> Any:
    @perdure.step
    async def step(where: str, number: int) -> str:
        world.passes()
        await asyncio.sleep(0.001 * number)
        return f"step {where}"

    @perdure.step
    def sync(where: str, number: int) -> str:
        world.passes()
        return f"sync {where}"

    @perdure.tool(on_crash="retry")
    async def tool(where: str, number: int) -> str:
        world.passes()
        await asyncio.sleep(0.001 * (3 - number))
        world.effects.setdefault(where, set()).add(perdure.idempotency_key())
        world.passes()
        return f"tool {where}"

    return step, sync, tool


def _program(world: World, program: Any) -> Any:
    step, sync, tool = _functions(world)

    async def go(run: Any, part: Any, where: str) -> Any:
        kind, rest = part
        if kind == "step":
            return await step(where, rest)
        if kind == "sync":
            return await run.call(sync, where, rest)
        if kind == "tool":
            return await tool(where, rest)
        if kind == "value":
            return str(run.uuid()) and "value"
        if kind == "pause":
            await asyncio.sleep(0.001 * rest)
            return "pause"
        if kind == "edit":
            async with run.edit(where) as draft:
                draft[where] = rest
                draft["count"] = draft.get("count", 0) + 1
                world.passes()
            return "edit"
        if kind == "then":
            return [await go(run, one, f"{where}.{n}") for n, one in enumerate(rest)]
        if kind == "group":
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(go(run, one, f"{where}.{n}")) for n, one in enumerate(rest)
                ]
            return [task.result() for task in tasks]
        tasks = [asyncio.create_task(go(run, one, f"{where}.{n}")) for n, one in enumerate(rest)]
        try:
            if kind == "all":
                return await asyncio.gather(*tasks)
            firsts = []
            for next_one in asyncio.as_completed(tasks):
                firsts.append(await next_one)
                await step(f"{where} after {len(firsts)}", 0)
            return sorted(map(str, firsts))
        finally:
            for task in tasks:
                task.cancel()

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> str:
        return repr(await go(run, program, "p"))

    return act


def _play(program: Any, dies_at: list[int]) -> Any:
    world = World(dies_at)
    url = f"memory://any-program-{next(_names)}"
    act, result = _program(world, program), None
    with perdure.open(url) as kept:
        for _ in range(len(dies_at) + 1):
            try:
                result = run_async(url, act)
                break
            except BaseException as error:
                crash = error if isinstance(error, CrashError) else None
                if isinstance(error, BaseExceptionGroup):
                    crash = error.subgroup(CrashError)  # type: ignore[assignment]
                if crash is None:
                    raise
        agent = kept.agent("a", dict)
        agent.verify()
        effects = sorted((e.preview, e.state) for e in kept.handle("a/act/main").effects())
        assert all(len(keys) == 1 for keys in world.effects.values())
        return result, dict(sorted(agent.state.items())), effects, sorted(world.effects)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(PROGRAMS, st.lists(st.integers(1, 15), max_size=4, unique=True))
def test_any_program_that_dies_anywhere_ends_as_if_it_had_not(
    program: Any, dies_at: list[int]
) -> None:
    assert _play(program, dies_at) == _play(program, [])
