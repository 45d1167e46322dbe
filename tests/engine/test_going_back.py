"""Checkpoint, undo, redo and rollback inside a run: made once, found again by each replay."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure import Conflict, NotFound, SchemaError
from perdure.testing import RunEnding, kill_at_every_boundary, play, replay, run_until_waiting
from tests.engine.conftest import Async, CrashError, Crashes, Place

MOVES = ("checkpoint", "undo", "redo", "rollback")


def kinds(store: Any, agent: str = "a") -> list[str]:
    return [commit.cause.kind for commit in store.agent(agent).log()]


def moves(store: Any) -> list[str]:
    return [kind for kind in kinds(store) if kind in MOVES]


# -- the story -------------------------------------------------------------------------------------


@dataclass
class Ticket:
    cents: int = 0
    drafts: list[str] = field(default_factory=list)
    plan: dict[str, int] = field(default_factory=dict)


def test_an_agent_tries_another_way_from_where_it_was(place: Place, crash: Crashes) -> None:
    """It drafts, finds the draft wrong, goes back to the state before it, and drafts again. Its
    process died behind that: the next one made the same moves once more, on top of the first ones,
    where there was no call for them but to do it by hand."""

    @perdure.tool
    def look_up(what: str) -> int:
        crash.note(what)
        return len(what)

    @perdure.agent(Ticket)
    def act(run: perdure.Run[Ticket]) -> Any:
        state = run.state
        before = run.checkpoint("before the draft", config={"model": "m-1"})

        def draft_it(attempt: str) -> int:
            with run.edit(f"{attempt} draft") as draft:
                draft.cents += 5
                draft.drafts.append(attempt)
                draft.plan = {attempt: 1, "and": 2}
            return int(look_up(attempt))

        draft_it("curt")
        gone = run.rollback("before the draft")
        assert [call["preview"] for call in gone.tool_calls] == ["what='curt'"]
        assert gone.commit.cause.refers == (before.seq,)
        seen = draft_it("kind")
        assert run.state is state  # a reference that was kept shows what comes later
        crash("after")
        return seen, run.state.drafts, gone.commit.seq, before.name

    crash.arm("after", "after")
    for _ in range(2):
        with pytest.raises(CrashError):
            place.open().run(act, "a")
        if place.url.startswith("memory"):
            continue
        place.close()
    store = place.open()
    seq = next(c.seq for c in store.agent("a", Ticket).log() if c.cause.kind == "rollback")
    assert store.run(act, "a") == (4, ["kind"], seq, "before the draft")
    assert crash.calls == ["curt", "kind"]
    assert moves(store) == ["checkpoint", "rollback"]
    agent = store.agent("a", Ticket)
    assert agent.state == Ticket(5, ["kind"], {"kind": 1, "and": 2})
    assert agent.at("before the draft", config={"model": "m-1"}, strict=True).state == Ticket()
    assert agent.verify().commits == agent.seq


def test_undo_and_redo_are_made_once(store: Any, crash: Crashes) -> None:
    shown: list[Any] = []

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        mine = []
        for number in range(3):
            with run.edit(f"edit {number}") as draft:
                draft[f"k{number}"] = [number]
        for move in (run.undo, run.undo, run.redo, run.undo):
            made = move()
            mine.append((made.commit.seq, dict(run.state)))
        shown.append(mine)
        crash("after")
        return mine[-1][1]

    crash.arm("after")
    with pytest.raises(CrashError):
        store.run(act, "a")
    assert store.run(act, "a") == {"k0": [0]}
    assert shown[0] == shown[1]
    assert moves(store) == ["undo", "undo", "redo", "undo"]
    assert [len(state) for _, state in shown[0]] == [2, 1, 2, 1]


def test_an_async_function_makes_the_same_moves(runs: Async, crash: Crashes) -> None:
    shown: list[Any] = []

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        mine: list[Any] = []
        point = await run.checkpoint("begun")
        for number in range(3):
            async with run.edit(f"edit {number}") as draft:
                draft[f"k{number}"] = [number]
        mine.append(((await run.undo()).commit.seq, dict(run.state)))
        mine.append(((await run.redo()).commit.seq, dict(run.state)))
        mine.append(((await run.rollback(point)).commit.seq, dict(run.state)))
        with pytest.raises(NotFound, match="nothing to undo"):
            await run.undo()
        shown.append(mine)
        crash("after")
        return dict(run.state)

    crash.arm("after")
    runs.crash(act)
    assert runs.run(act) == {}
    assert shown[0] == shown[1]
    assert moves(runs.store) == ["checkpoint", "undo", "redo", "rollback"]


def test_an_await_that_was_forgotten_is_told(runs: Async) -> None:
    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> None:
        with pytest.raises(TypeError, match="must be awaited"):
            assert run.undo()
        with pytest.raises(TypeError, match="names no commit"):
            run.rollback(object())  # type: ignore[arg-type]

    with pytest.warns(RuntimeWarning, match="never awaited"):
        runs.run(act)


# -- as outside --------------------------------------------------------------------------------


MOVES_BY_WORD = ("undo", "undo", "redo", "back", "name")


def doings() -> st.SearchStrategy[list[tuple[str, int]]]:
    edits = ["set", "append", "drop", "pop"]
    words = st.sampled_from([*edits, *(f"{word} in group" for word in edits), *MOVES_BY_WORD])
    return st.lists(st.tuples(words, st.integers(0, 6)), min_size=1, max_size=14)


def does(handle: Any, word: str, number: int, names: list[str], edits: list[int]) -> None:
    """Does one thing, by an agent's handle or in a run: what they have in common."""
    if word == "undo" or word == "redo":
        getattr(handle, word)()
    elif word == "name":
        names.append(handle.checkpoint(f"point {len(names)}").name)
    elif word == "back":
        if names:
            handle.rollback(names[number % len(names)])
    else:
        word, _, group = word.partition(" in ")
        with handle.edit(word, group=group or None) as draft:
            if word == "append":
                draft.setdefault("list", []).append(number)
            elif word == "pop":
                if draft.get("list"):
                    draft["list"].pop()
            elif word == "drop":
                draft.pop(f"k{number}", None)
            else:
                draft[f"k{number}"] = len(edits)
        edits.append(number)


def tells(handle: Any, given: list[tuple[str, int]]) -> list[Any]:
    told: list[Any] = []
    names, edits = list[str](), list[int]()
    for word, number in given:
        try:
            does(handle, word, number, names, edits)
        except (Conflict, NotFound) as refused:
            told.append(refused.problem.partition(" commit")[0].partition(": ")[0])
        told.append(copy.deepcopy(list(handle.state.items())))
    return told


@given(doings())
@settings(max_examples=60)
def test_it_is_what_it_is_outside(given: list[tuple[str, int]]) -> None:
    died: list[bool] = []

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        told = tells(run, given)
        if not died:
            died.append(True)
            raise CrashError
        return told

    with perdure.open("memory://") as store:
        with store.agent("b").edit("as a run's first commit: created"):
            pass
        outside = tells(store.agent("b"), given)
        with pytest.raises(CrashError):
            store.run(act, "a")
        inside = store.run(act, "a")
        assert inside == outside
        agent = store.agent("a")
        assert list(agent.state.items()) == inside[-1]
        agent.verify()


@pytest.mark.parametrize("undone", [False, True])
def test_a_group_ends_where_a_rollback_left_it(store: Any, undone: bool) -> None:
    """A loop went back and tried again, with the group that it had used before. The next undo took
    the half of the group that the state did not hold any more: it was refused, undid a part, or
    could not be recorded, which left the run for good."""

    def steps(handle: Any) -> None:
        with handle.edit("one") as draft:
            draft["list"] = [0]
        point = handle.checkpoint("point")
        with handle.edit("two", group="booking") as draft:
            draft["list"].pop()
        handle.rollback(point.name)
        if undone:
            handle.undo()
        with handle.edit("three", group="booking") as draft:
            draft["list"] = [13]
        handle.undo()

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        steps(run)
        return dict(run.state)

    steps(store.agent("b"))
    assert store.run(act, "a") == store.agent("b").state == ({} if undone else {"list": [0]})
    store.agent("a").verify()


def test_a_checkpoint_of_another_agent_is_none_of_this_one(store: Any) -> None:
    """A module kept the checkpoint of the first agent for all: the others went back to whatever
    commit of theirs had its number."""
    kept: list[Any] = []

    @perdure.agent(dict)
    def act(run: perdure.Run[dict], edits: int) -> Any:
        for number in range(edits):
            with run.edit("more") as draft:
                draft["n"] = number
        kept.append(run.checkpoint("before"))
        run.rollback(kept[0])
        return run.state["n"]

    assert store.run(act, "a", 2) == 1
    with pytest.raises(NotFound, match="it is of another agent"):
        store.run(act, "b", 6)
    assert store.agent("b").state == {"n": 5}


def test_outside_an_undo_goes_on_behind_a_rollback_of_a_run(store: Any) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        with run.edit("one") as draft:
            draft["a"] = 1
        point = run.checkpoint("point")
        with run.edit("two") as draft:
            draft["a"] = 2
        run.rollback(point)

    store.run(act, "a")
    agent = store.agent("a")
    assert agent.state == {"a": 1}
    agent.undo()
    assert agent.state == {}
    with pytest.raises(NotFound):
        agent.undo()
    agent.redo()
    assert agent.state == {"a": 1}


# -- with others -----------------------------------------------------------------------------------


def test_what_others_wrote_while_it_waited_is_undone_like_its_own(
    place: Place, crash: Crashes
) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        with run.edit("mine") as draft:
            draft["mine"] = 1
        run.wait_for("go")
        seen = [dict(run.state)]
        run.undo()
        seen.append(dict(run.state))
        run.undo()
        seen.append(dict(run.state))
        crash("after")
        return seen

    store = place.open()
    handle = run_until_waiting(store, act, "a")
    with store.agent("a").edit("theirs") as draft:
        draft["theirs"] = 2
    handle.signal("go")
    crash.arm("after")
    with pytest.raises(CrashError):
        store.run(act, "a")
    assert store.run(act, "a") == [{"mine": 1, "theirs": 2}, {"mine": 1}, {}]
    assert moves(store) == ["undo", "undo"]


def test_what_was_refused_is_refused_on_replay_though_it_could_be_done_now(
    place: Place, crash: Crashes
) -> None:
    """Nothing was there to undo, and the function went another way. Its process died; somebody
    wrote meanwhile; the next process found something, undid it, and met another program."""

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> str:
        problems = []
        for move in (run.undo, run.redo, lambda: run.rollback("point"), lambda: run.rollback(999)):
            try:
                move()
            except NotFound as error:
                problems.append(str(error))
        with run.edit("went another way") as draft:
            draft["problems"] = problems
        crash("after")
        run.wait_for("go")
        return "|".join(problems)

    store = place.open()
    run_until_waiting(store, act, "a")
    agent = store.agent("a")
    agent.checkpoint("point")
    with agent.edit("theirs") as draft:
        draft["theirs"] = 1
    store.handle("a/act/main").signal("go")
    told = store.run(act, "a")
    assert told == "|".join(agent.state["problems"])
    assert "there is nothing to undo" in told
    assert "there is nothing to redo" in told
    assert "has no branch or checkpoint 'point'" in told
    assert moves(store) == ["checkpoint"]


def test_an_invariant_forbids_an_undo_and_not_a_rollback(store: Any, crash: Crashes) -> None:
    grows = perdure.Schema(
        Ticket,
        id="Ticket",
        invariants=[perdure.transitions("cents", {0: [1], 1: [2]})],
    )

    @perdure.agent(grows)
    def act(run: perdure.Run[Ticket]) -> Any:
        point = run.checkpoint("zero")
        for _ in range(2):
            with run.edit("more") as draft:
                draft.cents += 1
        with pytest.raises(SchemaError, match="may not go from 2 to 1"):
            run.undo()
        assert run.state.cents == 2
        run.rollback(point)
        crash("after")
        return run.state.cents

    crash.arm("after")
    with pytest.raises(CrashError):
        store.run(act, "a")
    assert store.run(act, "a") == 0
    assert moves(store) == ["checkpoint", "rollback"]


def test_later_changes_stand_in_the_way_as_outside(store: Any) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        with run.edit("one", group="turn") as draft:
            draft["a"] = 1
        with run.edit("two") as draft:
            draft["a"] = 2
        with run.edit("three", group="turn") as draft:
            draft["b"] = 2
        with pytest.raises(Conflict, match=r"later commits touched state\.a"):
            run.undo()
        return dict(run.state)

    assert store.run(act, "a") == {"a": 2, "b": 2}


# -- names -----------------------------------------------------------------------------------------


def test_a_loop_names_its_checkpoints_by_the_same_words(store: Any, crash: Crashes) -> None:
    """Names stay taken: the second round of a loop, a run that was set back, and a what-if failed
    on the name that the first one had taken."""

    @perdure.step
    def work(number: int) -> int:
        return number

    @perdure.agent(dict)
    def act(run: perdure.Run[dict], rounds: int) -> list[Any]:
        names = []
        for number in range(rounds):
            done = work(number)
            with run.edit("round") as draft:
                draft["round"] = done
            names.append(run.checkpoint("before refund").name)
        with run.edit("behind it") as draft:
            draft["round"] = 99
        run.rollback("before refund")
        crash("after")
        return [*names, run.state["round"]]

    crash.arm("after")
    with pytest.raises(CrashError):
        store.run(act, "a", 3)
    names = ["before refund", "before refund#2", "before refund#3"]
    assert store.run(act, "a", 3) == [*names, 2]
    handle = store.handle("a/act/main")
    forked = handle.fork("work#3", branch="what-if")
    again = store.options(key=forked.info.key)
    assert again.run(act, "a", 3) == [*names[:2], "before refund#4", 2]
    handle.retry("work#2")
    assert store.run(act, "a", 3) == [names[0], "before refund#5", "before refund#6", 2]
    assert store.agent("a").state == {"round": 2}
    assert len(store.agent("a").checkpoints()) == 6


@pytest.mark.parametrize("name", ["", "12", "2025-01-01T00:00:00+00:00", "@mine", "x" * 195, 5])
def test_a_name_that_no_checkpoint_may_have_is_refused_at_the_call(store: Any, name: Any) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        with pytest.raises((TypeError, ValueError)):
            run.checkpoint(name)

    store.run(act, "a")
    assert moves(store) == []


@pytest.mark.parametrize("to", [None, 1.5, True, datetime(2025, 1, 1), "", object()])
def test_what_names_no_commit_is_refused_at_the_call(store: Any, to: Any) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        with pytest.raises((TypeError, ValueError)):
            run.rollback(to)

    store.run(act, "a")
    assert moves(store) == []


def test_it_goes_to_a_seq_a_moment_a_branch_and_a_name_from_outside(store: Any) -> None:
    agent = store.agent("a")
    with agent.edit("one") as draft:
        draft["a"] = 1
    moment = agent.commit(2).at
    agent.checkpoint("point")
    side = agent.fork("side")
    with side.edit("aside") as draft:
        draft["side"] = 1
    with agent.edit("two") as draft:
        draft["a"] = 2

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> list[Any]:
        seen = []
        for to in (1, moment, "side", "point", "main"):
            run.rollback(to)
            seen.append(dict(run.state))
        return seen

    assert store.run(act, "a") == [{}, {"a": 1}, {"a": 1, "side": 1}, {"a": 1}, {"a": 1}]


# -- what it does not take back --------------------------------------------------------------------


def test_calls_are_told_once_and_the_same_ones_after_retention(
    place: Place, crash: Crashes
) -> None:
    """It makes up for each call that a rollback tells of. In its second round it was told of the
    first round's once more, and refunded twice."""

    @perdure.tool
    def charge(number: int) -> None:
        crash.note(f"charge {number}")

    @perdure.tool
    def refund(place: str) -> None:
        crash.note(f"refund {place}")

    @perdure.agent(dict)
    def act(run: perdure.Run[dict], turn: int = 0) -> Any:
        if turn == 0:
            run.checkpoint("point")
            charge(0)
            return run.again(1)
        for number in (1, 2):
            charge(number)
            move = run.rollback("point")
            assert not move.untold
            for call in move.tool_calls:
                if call["place"].startswith("charge"):
                    refund(call["preview"])
        run.wait_for("go")
        crash("after")
        return None

    store = place.open()
    handle = run_until_waiting(store, act, "a")
    expected = [f"charge {0}", "charge 1", "refund number=1", "refund number=0"]
    expected += ["charge 2", "refund number=2"]
    assert crash.calls == expected
    agent = store.agent("a")
    agent.trim(before=agent.seq)
    handle.signal("go")
    assert store.run(act, "a") is None
    assert crash.calls == expected


def test_a_state_that_retention_removed_is_not_there(store: Any) -> None:
    agent = store.agent("a")
    for number in range(5):
        with agent.edit("more") as draft:
            draft["a"] = number
    agent.trim(before=5)

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        with pytest.raises(NotFound, match="removed by retention"):
            run.rollback(3)
        run.rollback(5)
        return dict(run.state)

    assert store.run(act, "a") == {"a": 3}


def test_an_undo_reaches_behind_the_turn_and_the_run(store: Any) -> None:
    with store.agent("a").edit("before any run") as draft:
        draft["a"] = 1

    @perdure.agent(dict)
    def act(run: perdure.Run[dict], turn: int = 0) -> Any:
        if turn == 0:
            with run.edit("first turn") as draft:
                draft["b"] = 1
            return run.again(1)
        run.undo()
        run.undo()
        return dict(run.state)

    assert store.run(act, "a") == {}


@dataclass
class Cents:
    cents: int = 0


def test_it_goes_back_to_an_older_version_migrated_as_a_whole(store: Any, crash: Crashes) -> None:
    first = perdure.Schema(dict, id="order", version=1)
    agent = store.agent("a", first, initial={"euros": 3})
    agent.checkpoint("before")
    with agent.edit("more") as draft:
        draft["euros"] = 4
    second = perdure.Schema(
        Cents, id="order", version=2, migrations={1: lambda old: {"cents": old["euros"] * 100}}
    )

    @perdure.agent(second)
    def act(run: perdure.Run[Cents]) -> Any:
        with run.edit("mine") as draft:
            draft.cents += 1
        seen = [run.state.cents]
        run.undo()
        with pytest.raises(Conflict, match="it is of version 1"):
            run.undo()
        seen.append(run.state.cents)
        run.rollback("before")
        seen.append(run.state.cents)
        crash("after")
        return seen

    crash.arm("after")
    with pytest.raises(CrashError):
        store.run(act, "a")
    assert store.run(act, "a") == [401, 400, 300]
    assert store.agent("a", second).state.cents == 300
    store.agent("a", second).verify()


# -- places and tasks ------------------------------------------------------------------------------


def test_it_has_no_place_in_a_step_or_an_edit(store: Any) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> int:
        @perdure.step
        def within() -> str:
            with pytest.raises(perdure.PerdureError, match="cannot be recorded inside a step"):
                run.undo()
            return "done"

        within()
        with run.edit("block") as draft:
            draft["a"] = 1
            for move in (run.undo, lambda: run.rollback(1), lambda: run.checkpoint("point")):
                with pytest.raises(perdure.PerdureError, match="inside an open edit"):
                    move()
        return len(run.state)

    assert store.run(act, "a") == 1
    assert moves(store) == []


def test_another_call_at_its_place_is_changed_code(store: Any, crash: Crashes) -> None:
    now = ["undo"]

    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> None:
        with run.edit("one") as draft:
            draft["a"] = 1
        if now[0] == "undo":
            run.undo()
        else:
            run.rollback(1)
        crash("after")

    crash.arm("after")
    with pytest.raises(CrashError):
        store.run(act, "a")
    now[0] = "rollback"
    with pytest.raises(perdure.NeedsAttention, match=r"now calls rollback:1#1.*move undo#1"):
        store.run(act, "a")
    now[0] = "undo"
    store.run(act, "a")


def test_tasks_see_it_when_it_is_its_turn(runs: Async, crash: Crashes, fetch: Any) -> None:
    """An undo waits for the block of another task; and who looks at the state beside it sees the
    same on replay."""
    seen: list[list[Any]] = []

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        mine: list[Any] = []

        async def writes(number: int) -> None:
            async with run.edit(f"task {number}") as draft:
                draft[f"k{number}"] = number
                await asyncio.sleep(0.01)
            mine.append(("wrote", number, len(run.state)))

        async def undoes() -> None:
            await fetch("undo", 0.005)
            await run.undo()
            mine.append(("undone", len(run.state)))

        async def looks(number: int) -> None:
            await fetch(f"look {number}", 0.003 * number)
            mine.append(("saw", number, len(run.state)))

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(writes(number))
                group.create_task(looks(number))
            group.create_task(undoes())
        await run.rollback(3)
        seen.append([*mine, dict(run.state)])
        crash("after")
        return mine

    crash.arm("after", "after")
    runs.crash(act)
    runs.crash(act)
    runs.run(act)
    assert seen[0] == seen[1] == seen[2]
    assert moves(runs.store) == ["undo", "rollback"]


def test_a_task_that_is_cancelled_behind_its_undo_is_so_on_replay(
    runs: Async, crash: Crashes, fetch: Any
) -> None:
    seen: list[Any] = []

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        async with run.edit("one") as draft:
            draft["a"] = 1
        heard = "the undo"
        try:
            async with asyncio.timeout(0):
                await run.undo()
        except TimeoutError:
            heard = "the end of the time"
        again = await fetch("x")
        seen.append((heard, again, dict(run.state)))
        crash("after")
        return heard

    crash.arm("after")
    runs.crash(act)
    runs.run(act)
    assert seen[0] == seen[1]


def test_threads_of_a_run_undo_one_after_the_other(store: Any, crash: Crashes) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        for number in range(6):
            with run.edit("more") as draft:
                draft[f"k{number}"] = number
        run.map(lambda _: run.undo().untold, range(4), limit=4)
        crash("after")
        return dict(run.state)

    crash.arm("after")
    with pytest.raises(CrashError):
        store.run(act, "a")
    assert store.run(act, "a") == {"k0": 0, "k1": 1}
    assert moves(store) == ["undo"] * 4


def test_an_undo_waits_for_the_block_of_another_thread(store: Any) -> None:
    @perdure.agent(dict)
    def act(run: perdure.Run[dict]) -> Any:
        with run.edit("one") as draft:
            draft["a"] = 1
        opened, may_end = threading.Event(), threading.Event()

        def writes() -> None:
            with run.edit("two") as draft:
                draft["b"] = 1
                opened.set()
                may_end.wait(10)

        def undoes() -> int:
            opened.wait(10)
            threading.Timer(0.05, may_end.set).start()
            return run.undo().commit.cause.refers[0]

        with run.executor(2) as threads:
            write, undo = threads.submit(writes), threads.submit(undoes)
            write.result()
            return undo.result(), dict(run.state)

    refers, state = store.run(act, "a")
    assert state == {"a": 1}
    assert store.agent("a").commit(refers).cause.what == "two"


# -- kills, and tests of users -----------------------------------------------------------------


def going_back(bank: list[int]) -> Callable[..., Any]:
    @perdure.tool(
        on_crash="probe", probe=lambda cents: cents if cents in bank else perdure.NOT_DONE
    )
    def pay(cents: int) -> int:
        bank.append(cents)
        return cents

    @perdure.agent(Ticket)
    def act(run: perdure.Run[Ticket]) -> Any:
        told: list[Any] = []
        point = run.checkpoint("before")
        for cents in (5, 7):
            paid = pay(cents)
            with run.edit("paid", group="turn") as draft:
                draft.cents += paid
                draft.drafts.append(f"{cents}")
        told.append(run.undo().commit.cause.refers)
        told.append(run.redo().commit.cause.refers)
        try:
            run.redo()
        except NotFound as error:
            told.append(error.problem)
        told.append([call["preview"] for call in run.rollback(point).tool_calls])
        told.append(run.checkpoint("before").name)
        return told

    return act


@pytest.mark.slow
def test_killed_at_every_boundary(tmp_path: Path) -> None:
    bank: list[int] = []

    def check(ending: RunEnding) -> None:
        with perdure.open(ending.folder / "agents.db", durability="os") as store:
            [info] = store.agents()
            made = [commit.cause.kind for commit in store.agent(info.name, Ticket).log()]
            assert [kind for kind in made if kind in MOVES] == [
                *("checkpoint", "undo", "redo", "rollback", "checkpoint"),
            ]

    def same(ending: RunEnding) -> Any:
        return ending.result[2:], ending.state

    act = going_back(bank)
    endings = kill_at_every_boundary(
        act, before=lambda _: bank.clear(), check=check, same=same, folder=tmp_path
    )
    assert len(endings) > 20
    assert all(ending.state == Ticket() for ending in endings)


@pytest.mark.slow
def test_an_async_function_killed_at_every_boundary() -> None:
    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict]) -> Any:
        point = await run.checkpoint("before")
        for number in range(2):
            async with run.edit("more") as draft:
                draft[f"k{number}"] = number

        async def one() -> int:
            return len((await run.undo()).commit.cause.refers)

        undone = await asyncio.gather(one(), one())
        await run.redo()
        seen = dict(run.state)
        await run.rollback(point)
        return undone, seen, dict(run.state)

    endings = kill_at_every_boundary(act)
    assert endings[0].result == ([1, 1], {"k0": 0}, {}) or endings[0].result[0] == [1, 1]


def test_it_is_played_and_replayed(store: Any, tmp_path: Path) -> None:
    act = going_back([])
    played = play(act)
    assert played.result[3:] == [["cents=7", "cents=5"], "before#2"]
    store.run(act, "a")
    assert replay(store, act).check() == store.handle("a/act/main").result()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() <= before + 20
