"""`run.state` in tasks: it goes on with what the function hears of, not with what is in the log."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import apsw
import msgspec
import pydantic
import pytest

import perdure
from perdure.testing import kill_at_every_boundary, replay, run_until_waiting
from tests.engine.conftest import CrashError, Crashes


class Held:
    """The commits of a store, held up until so many are to be in the next one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "a.db"
        self._lost = False

    def until(self, run: perdure.AsyncRun[Any], number: int) -> None:
        """The first time only: on replay nothing is committed."""
        if self._lost:
            return
        self._lost = True
        writer = run._execution.writer
        held = apsw.Connection(str(self._path))
        held.set_busy_timeout(30_000)  # The store may be committing at this moment.
        held.execute("BEGIN IMMEDIATE")

        def release() -> None:
            end = time.monotonic() + 30
            while len(writer._queue) < number and time.monotonic() < end:
                time.sleep(0.001)
            held.close()

        threading.Thread(target=release).start()


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path)


@perdure.step
async def look(what: str, seen: Any = None) -> Any:
    return seen


@perdure.step
def size(item: int) -> int:
    return item


def live(folder: Path, function: Any) -> Any:
    async def main() -> Any:
        async with perdure.open_async(folder / "a.db", durability="os") as store:
            return await asyncio.wait_for(store.run(function, "a"), 60)

    return asyncio.run(main())


def again(folder: Path, function: Any) -> Any:
    with perdure.open(folder / "a.db") as store:
        return replay(store, function).check()


def of_commits(folder: Path, kind: str) -> list[list[str]]:
    """What commits with such a record have, by their places."""
    with perdure.open(folder / "a.db") as store:
        all_of = [[str(one.get("place")) for one in c.records] for c in store.agent("a").log()]
    return [places for places in all_of if any(kind in place for place in places)]


@dataclass
class AsDataclass:
    n: int = 0
    notes: list[str] = field(default_factory=list)
    client: perdure.Ephemeral[Any] = None


class AsModel(pydantic.BaseModel):
    n: int = 0
    notes: list[str] = []
    client: Annotated[Any, perdure.Ephemeral] = None


class AsStruct(msgspec.Struct):
    n: int = 0
    notes: list[str] = msgspec.field(default_factory=list)


def of(state: Any, name: str) -> Any:
    return state.get(name, 0) if isinstance(state, dict) else getattr(state, name)


def seen(run: perdure.AsyncRun[Any]) -> Any:
    return of(run.state, "n"), len(of(run.state, "notes") or ())


def put(draft: Any, name: str, value: Any) -> None:
    if hasattr(draft, "keys"):
        draft[name] = value
    else:
        setattr(draft, name, value)


@pytest.mark.parametrize("kind", [dict, AsDataclass, AsModel, AsStruct])
def test_an_edit_is_seen_by_other_tasks_when_it_is_handed_over(
    tmp_path: Path, held: Held, kind: type
) -> None:
    """A step and another task's edit were committed together. The step's task went on first, and
    passed on a state that had the edit; on replay it had not, and the run stopped for good."""

    @perdure.agent(kind)
    async def act(run: perdure.AsyncRun[Any]) -> Any:
        first = run.state

        async def looks() -> Any:
            await look("shares the commit of the edit")
            now = of(run.state, "n"), run.state is first
            return [now, await look("behind it", of(run.state, "n"))]

        async def counts() -> Any:
            async with run.edit("counts") as draft:
                put(draft, "n", 1)
            return of(run.state, "n"), of(first, "n"), run.state is first

        held.until(run, 2)
        _, *seen = await asyncio.gather(look("is committed first"), looks(), counts())
        return [*seen, of(run.state, "n"), run.state is first]

    expected = [[(0, True), 0], (1, 1, True), 1, True]
    assert live(tmp_path, act) == expected
    assert [sorted(places) for places in of_commits(tmp_path, "edit")] == [
        ["counts#1/edit:counts#1", "looks#1/look#1"]
    ]
    assert again(tmp_path, act) == expected


def test_an_edit_that_a_thread_of_a_map_commits_along_with_its_own(
    tmp_path: Path, held: Held
) -> None:
    """The thread asked the event loop of the function who looks at the state, and it has none: the
    run was left in the middle, with "no running event loop", and its tool calls in doubt."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict[str, Any]]) -> Any:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def sized(item: int) -> Any:
            held.until(run, 2)
            loop.call_soon_threadsafe(begun.set)
            return size(item)

        async def notes() -> int:
            await begun.wait()
            for _ in range(3):
                async with run.edit("notes") as draft:
                    draft["n"] = draft.get("n", 0) + 1
            return int(run.state["n"])

        return await asyncio.gather(run.map(sized, range(4)), notes())

    assert live(tmp_path, act) == again(tmp_path, act) == [[0, 1, 2, 3], 3]


def test_a_thread_of_a_map_shows_tasks_nothing_that_they_have_not_heard_of(tmp_path: Path) -> None:
    """The outcome of a step on a thread showed all of the log at once, so that tasks saw edits of
    which nobody had heard; and not on replay: an unchanged function passed on another value."""
    lives: list[int] = []

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict[str, Any]]) -> Any:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        may, done = threading.Event(), threading.Event()

        def sized(item: int) -> int:
            loop.call_soon_threadsafe(begun.set)
            may.wait(30)
            found = size(item)
            done.set()
            return found

        async def notes() -> None:
            await begun.wait()
            async with run.edit("notes") as draft:
                draft["n"] = 1

        async def looks() -> Any:
            await begun.wait()
            if not lives:
                lives.append(1)
                while not run._execution.writer.busy:
                    await asyncio.sleep(0)
                may.set()
                assert done.wait(30)  # the loop is held up: the thread takes in the edit's commit
            may.set()
            return await look("looked", run.state.get("n"))

        found = await asyncio.gather(run.map(sized, [5]), notes(), looks())
        return [*found, run.state["n"]]

    assert live(tmp_path, act) == again(tmp_path, act) == [[5], None, None, 1]


def by_hand(folder: Path, kind: Any, times: int = 1) -> None:
    with perdure.open(folder / "a.db") as store:
        for number in range(times):
            with store.agent("a", kind).edit("by hand") as draft:
                notes = of(draft, "notes") or []
                put(draft, "notes", [*notes, f"by hand {number}"])


@perdure.tool(on_crash="retry")
async def act_outside(what: str) -> str:
    return what


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("kind", [dict, AsDataclass, AsModel, AsStruct])
def test_what_others_wrote_is_seen_with_the_first_outcome_behind_it(
    tmp_path: Path, held: Held, crash: Crashes, kind: type, times: int
) -> None:
    """Others wrote while the run was unloaded. It went on with an intent, which nothing is handed
    over for, and then a step and an edit in one commit. What a task saw before all of these it saw
    on replay behind the first of them only; and what it held on to must go on in place."""

    @perdure.agent(kind)
    async def act(run: perdure.AsyncRun[Any]) -> Any:
        first = run.state
        await look("begins")
        crash("unloaded")

        async def acts() -> Any:
            return [await act_outside("first"), seen(run)]

        async def looks() -> Any:
            await look("shares the commit of the edit", seen(run))
            return [seen(run), await look("behind it", seen(run))]

        async def counts() -> Any:
            before = seen(run)
            async with run.edit("counts") as draft:
                put(draft, "n", 1 + len(of(draft, "notes")))
                block = seen(run)
            return before, block, seen(run)

        held.until(run, 2)
        told = await asyncio.gather(acts(), looks(), counts())
        return [*told, run.state is first, seen(run)]

    crash.arm("unloaded")
    with pytest.raises(CrashError):
        live(tmp_path, act)
    by_hand(tmp_path, kind, times)
    others, last = (0, times), (1 + times, times)
    told = live(tmp_path, act)
    assert told[1:] == [[others, others], ((0, 0), others, last), True, last]
    assert told[0][0] == "first" and told[0][1] in (others, last)
    assert again(tmp_path, act) == told
    assert of_commits(tmp_path, "edit")[0] == ["looks#1/look#1", "counts#1/edit:counts#1"]


@perdure.agent(dict)
async def two_lanes(run: perdure.AsyncRun[dict[str, Any]]) -> int:
    async def lane(name: str) -> int:
        for number in range(2):
            await run.wait_for(name)
            async with run.edit(name) as draft:
                draft["log"].append(f"{name} {number}")
        return len(run.state["log"])

    return max(await asyncio.gather(lane("one"), lane("two")))


def test_a_list_that_others_put_in_and_changed_has_each_item_once(tmp_path: Path) -> None:
    """A run of two tasks waited; a person put a list into the state, and then an item into the
    list. As the run resumed, the state that its tasks saw and the one that it built on shared this
    list: it had the item twice. So had the next snapshot, and with it every reader; an edit made on
    that did not fit the log, whose states could not be read from there on."""
    with perdure.open(tmp_path / "a.db") as store:
        handle = run_until_waiting(store, two_lanes, "a")
        agent = store.agent("a", dict)
        with agent.edit("by a person") as draft:
            draft["log"] = ["person 0"]
        with agent.edit("by a person") as draft:
            draft["log"].append("person 1")
        for _ in range(2):
            handle.signal("one")
            handle.signal("two")
            run_until_waiting(store, two_lanes, "a")
        assert handle.result() == 6
    with perdure.open(tmp_path / "a.db") as store:
        agent = store.agent("a", dict)
        assert agent.state["log"][:2] == ["person 0", "person 1"]
        assert sorted(agent.state["log"][2:]) == ["one 0", "one 1", "two 0", "two 1"]
        agent.verify()
    again(tmp_path, two_lanes)


def test_what_a_person_settled_as_not_done_shows_nothing(tmp_path: Path, crash: Crashes) -> None:
    """The tool was made again, and another task saw meanwhile what somebody had written before the
    settling; on replay, with the tool's new outcome behind that, it did not: the run stopped."""
    pays = asyncio.Event()

    @perdure.tool(on_crash="ask")
    async def pay_slowly() -> str:
        crash("in the tool")
        pays.set()
        await asyncio.sleep(0)
        await goes_on.wait()
        return "receipt"

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[Any]) -> Any:
        async def watch() -> Any:
            await asyncio.sleep(0.001)
            await pays.wait()
            notes = seen(run)
            told = await look("notes", notes)
            goes_on.set()
            return [notes, told, seen(run)]

        receipt, watched = await asyncio.gather(pay_slowly(), watch())
        crash("at the end")
        return [receipt, watched, seen(run)]

    goes_on = asyncio.Event()
    crash.arm("in the tool", "at the end")
    with pytest.raises(CrashError):
        live(tmp_path, act)
    with pytest.raises(perdure.NeedsAttention):
        live(tmp_path, act)
    by_hand(tmp_path, dict)
    with perdure.open(tmp_path / "a.db") as store:
        store.handle("a/act/main").settle("pay_slowly#1/pay_slowly#1", not_done=True, by="ann")
    pays, goes_on = asyncio.Event(), asyncio.Event()
    with pytest.raises(CrashError):
        live(tmp_path, act)
    told = live(tmp_path, act)
    assert told == again(tmp_path, act) == ["receipt", [(0, 0), (0, 0), (0, 1)], (0, 1)]


@perdure.step
def count() -> int:
    return 1


@perdure.tool(on_crash="retry")
async def pay(number: int) -> int:
    return number


async def numbered(run: perdure.AsyncRun[Any]) -> int:
    async with run.edit("numbered") as draft:
        number = int(draft.get("n", 0)) + 1
        draft["n"] = number
        assert run.state.get("n", 0) == number - 1
    return number


@perdure.agent(dict)
async def beside_a_direct_call(run: perdure.AsyncRun[Any]) -> int:
    async def count_it() -> int:
        return count()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        numbers = await asyncio.gather(numbered(run), count_it())
    return int(await pay(numbers[0]))


@perdure.agent(dict)
async def beside_progress(run: perdure.AsyncRun[Any]) -> int:
    async def report() -> None:
        await asyncio.sleep(0)
        run.progress("half of it", 0.5)

    numbers = await asyncio.gather(numbered(run), report())
    return int(await pay(numbers[0]))


@pytest.mark.parametrize("function", [beside_a_direct_call, beside_progress])
def test_the_block_of_an_edit_stands_on_what_it_stood_on(function: Any) -> None:
    """Something recorded behind it, or committed anew, came before its block was gone through: that
    stood on the edit's own result then, and the run went on, silently, with another number."""
    kill_at_every_boundary(function)


def test_an_edit_that_raised_is_cancelled_behind_that() -> None:
    """Its task was cancelled while it was recorded that its block had raised. A replay had the
    block's error come out, and the cancellation at some later time: the run failed."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[Any]) -> str:
        async def change() -> str:
            try:
                async with run.edit("change") as draft:
                    draft["n"] = 1
                    raise ValueError("no, not so")
            except ValueError:
                return "refused"
            except asyncio.CancelledError:
                return "too late"

        looking = asyncio.create_task(look("x"))
        changing = asyncio.create_task(change())
        await asyncio.wait([looking, changing], return_when=asyncio.FIRST_COMPLETED)
        changing.cancel()
        return str(await look(await changing, "end"))

    kill_at_every_boundary(act)
