"""A run that goes on after a crash sees what it saw: results, errors, state, time and chance."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

import perdure
from perdure.errors import SchemaError
from perdure.store import Store
from tests.engine.conftest import CrashError, Crashes, Place


@dataclass
class Task:
    count: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass
class Invoice:
    id: str
    due: datetime
    lines: tuple[int, ...]


class Limited(Exception):
    def __init__(self, words: str, retry_after: float) -> None:
        super().__init__(words)
        self.retry_after = retry_after


def crashed(place: Place, function: Any, *args: Any) -> None:
    """The process died: what was in memory is gone, what is in the store is all there is."""
    with pytest.raises(CrashError):
        place.open().run(function, "a", *args)


def test_time_and_chance_are_the_same_again(place: Place, crash: Crashes) -> None:
    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[Any]:
        seen: list[Any] = [run.now(), run.random(), run.uuid(), run.now()]
        assert isinstance(seen[0], datetime) and seen[0].tzinfo is UTC
        assert isinstance(seen[2], UUID) and 0 <= seen[1] < 1
        crash.note(seen)
        run.call(len, "x")  # they are durable with this
        crash("after")
        return seen

    crash.arm("after")
    crashed(place, f)
    assert place.open().run(f, "a") == crash.calls[0] == crash.calls[1]


def test_steps_are_not_repeated_and_their_results_are_typed_from_the_start(
    place: Place, crash: Crashes
) -> None:
    @perdure.step
    def load(number: int) -> Invoice:
        crash.note("load")
        return Invoice(f"i-{number}", datetime(2026, 1, 2, tzinfo=UTC), (1, 2))

    seen: list[Any] = []

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[Any]:
        invoice = load(4)
        parsed: list[int] = run.call(list, (1, 2))
        seen.append((invoice, parsed))
        crash("after")
        return [invoice.id, parsed]

    crash.arm("after")
    crashed(place, f)
    assert place.open().run(f, "a") == ["i-4", [1, 2]]
    assert crash.calls == ["load"]
    assert seen[0] == seen[1] and isinstance(seen[0][0], Invoice)


def test_results_are_round_tripped_the_first_time(store: Store) -> None:
    kept: list[Any] = []

    def give() -> dict[str, Any]:
        kept.append({"list": [1]})
        return kept[0]  # type: ignore[no-any-return]

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> bool:
        return run.call(give) is kept[0]

    assert store.run(f, "a") is False


def test_errors_come_back_with_their_type_and_what_they_carry(place: Place, crash: Crashes) -> None:
    """`except Limited as error: wait(error.retry_after)` was an AttributeError after a crash."""

    @perdure.step
    def search() -> str:
        crash.note("search")
        raise Limited("slow down", 2.5)

    @perdure.tool
    def send() -> str:
        crash.note("send")
        raise FileNotFoundError(2, "No such file", "x.txt")

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[Any]:
        found: list[Any] = []
        try:
            search()
        except Limited as error:
            found += [str(error), error.retry_after]
        try:
            send()
        except FileNotFoundError as error:
            found += [error.errno, str(error)]
        crash("after")
        return found

    crash.arm("after")
    crashed(place, f)
    assert place.open().run(f, "a") == ["slow down", 2.5, 2, "[Errno 2] No such file: 'x.txt'"]
    assert crash.calls == ["search", "send"]


def test_an_error_whose_type_is_gone_is_a_stand_in(place: Place, crash: Crashes) -> None:
    class Local(Exception):
        pass

    @perdure.tool
    def act() -> None:
        raise Local("gone")

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        try:
            act()
        except Exception as error:
            crash("after")
            return f"{type(error).__name__}: {error}"
        return ""

    crash.arm("after")
    crashed(place, f)
    assert "CallFailed" in place.open().run(f, "a")


def test_an_edits_recorded_delta_wins(place: Place, crash: Crashes) -> None:
    @perdure.agent(Task)
    def f(run: perdure.Run[Task]) -> float:
        with run.edit("roll the dice") as draft:
            draft.count = random.randrange(10**12)
            draft.notes.append("rolled")
        crash.note(run.state.count)
        crash("after")
        return run.state.count

    crash.arm("after")
    crashed(place, f)
    store = place.open()
    assert store.run(f, "a") == crash.calls[0] == crash.calls[1]
    assert store.agent("a", Task).state == Task(crash.calls[0], ["rolled"])
    assert [c.cause.what for c in store.agent("a").log() if c.delta][1:] == ["roll the dice"]


def test_state_is_the_same_at_every_point(place: Place, crash: Crashes) -> None:
    """Others wrote between a crash and what came next, twice; each replay must see the state that
    was seen, where it was seen: in edits' blocks, too."""
    runs: list[list[Any]] = []

    @perdure.agent(Task)
    def f(run: perdure.Run[Task]) -> list[Any]:
        seen: list[Any] = []
        runs.append(seen)

        def look(where: str) -> None:
            seen.append((where, run.state.count, tuple(run.state.notes)))

        look("begin")
        run.call(len, "1")
        look("after a step")
        crash("one")
        run.now()
        look("after now")
        run.call(len, "2")
        look("after the next step")
        with run.edit("three") as draft:
            seen.append(("in the edit", draft.count, tuple(draft.notes)))
            draft.notes.append("three")
        look("after the edit")
        crash("two")
        look("after the crash")
        with run.edit("four") as draft:
            seen.append(("in the edit", draft.count, tuple(draft.notes)))
            draft.notes.remove("by hand 2")  # not there as of the last entry before
        look("end")
        crash("three")
        return [run.state.count, list(run.state.notes)]

    crash.arm("one", "two", "three")
    for number in (1, 2):
        crashed(place, f)
        with place.open().agent("a", Task).edit("by hand") as draft:
            draft.count += 10
            draft.notes.append(f"by hand {number}")
    crashed(place, f)
    result = place.open().run(f, "a")
    assert result == [20, ["by hand 1", "three"]]
    longest = runs[-1]
    assert runs[2] == longest
    for seen in runs[:2]:
        assert seen == longest[: len(seen)]


@pytest.mark.parametrize("ends", ["a wait", "a failing edit"])
def test_an_edit_is_not_seen_before_it_by_what_shares_its_commit(
    place: Place, crash: Crashes, ends: str
) -> None:
    """What a wait came to joins the next commit. Where that was an edit's, the state that was read
    between the two had the edit on replay: `run.wait_for`, then `if not run.state["n"]`, went the
    other way, or stopped the run for good."""

    @perdure.agent(Task)
    def f(run: perdure.Run[Task]) -> Any:
        if ends == "a wait":
            run.sleep(0)
        else:
            with suppress(ValueError), run.edit("fails"):
                raise ValueError
        before = run.state.count
        with run.edit("count") as draft:
            seen = [before, draft.count, list(draft.notes)]
            draft.count += 1
            draft.notes.append("counted")
        seen += [run.call(str, before), run.state.count]
        crash("after")
        return seen

    crash.arm("after")
    crashed(place, f)
    assert place.open().run(f, "a") == [0, 0, [], "0", 1]
    commits = [*place.open().agent("a").log()]
    assert "edit" in [
        record["t"] for commit in commits if commit.delta for record in commit.records
    ]


def test_a_state_that_is_held_on_to_moves_along_on_replay_as_it_did_live(
    place: Place, crash: Crashes
) -> None:
    """``state = run.state`` before an edit had the edit's change live, and not on replay: the
    function took the other branch, and the run was stranded by code that had not changed."""
    seen: list[Any] = []

    @perdure.agent(Task)
    def f(run: perdure.Run[Task]) -> str:
        state, notes = run.state, run.state.notes
        with run.edit("count") as draft:
            draft.count = 1
            draft.notes.append("counted")
        seen.append((state.count, list(notes), state is run.state))
        way = run.call(str, "counted" if state.count else "not counted")
        crash("after")
        return way

    crash.arm("after")
    crashed(place, f)
    assert place.open().run(f, "a") == "counted"
    assert seen[0] == seen[1]


def test_an_edit_that_failed_and_was_caught_is_no_change_of_the_code(
    place: Place, crash: Crashes
) -> None:
    """An edit's block raised, the function caught it and went on; after a crash the run was
    stranded: "the function now calls edit, where it had recorded …"."""

    def positive(after: Task) -> bool:
        return after.count >= 0

    schema = perdure.Schema(Task, invariants=[positive])

    @perdure.agent(schema)
    def f(run: perdure.Run[Task]) -> list[str]:
        caught = []
        try:
            with run.edit("raises") as draft:
                draft.count = 5
                raise KeyError("in the block")
        except KeyError as error:
            caught.append(repr(error))
        try:
            with run.edit("breaks a rule") as draft:
                draft.count = -5
        except SchemaError as error:
            caught.append(type(error).__name__)
        with run.edit("works") as draft:
            draft.count += 1
        run.call(len, "x")
        crash("after")
        return [*caught, str(run.state.count)]

    crash.arm("after")
    crashed(place, f)
    assert place.open().run(f, "a") == ["KeyError('in the block')", "SchemaError", "1"]


def test_a_step_whose_result_cannot_be_stored_is_recorded_as_failed(
    place: Place, crash: Crashes
) -> None:
    """The function caught it and went on; after a crash the run was stranded."""

    @perdure.step
    def make() -> Any:
        crash.note("make")
        return {"rows": [{"when": object()}]}

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        try:
            make()
        except perdure.Unstorable as error:
            words = str(error)
            run.call(len, "x")
            crash("after")
            return words
        return ""

    crash.arm("after")
    crashed(place, f)
    assert "rows[0].when" in place.open().run(f, "a")
    assert crash.calls == ["make"]


def test_steps_in_steps_are_plain(place: Place, crash: Crashes) -> None:
    """What a step's body recorded through the run was not come to on replay: stranded."""

    @perdure.step
    def inner() -> int:
        crash.note("inner")
        return 1

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        @perdure.step
        def outer() -> int:
            assert run.now().tzinfo and run.uuid().version
            return inner() + run.call(inner) + run.call(len, "ab")

        total = outer()
        crash("after")
        return total

    crash.arm("after")
    crashed(place, f)
    assert place.open().run(f, "a") == 4
    assert crash.calls == ["inner", "inner"]


def test_replaying_tells_whether_it_goes_over_the_past(place: Place, crash: Crashes) -> None:
    seen: list[bool] = []

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        seen.append(run.replaying)
        run.call(len, "x")
        seen.append(run.replaying)
        crash("after")

    crash.arm("after")
    crashed(place, f)
    place.open().run(f, "a")
    assert seen == [False, False, True, False]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_run_can_be_resumed_at_once(
    place: Place, crash: Crashes, error: type[BaseException]
) -> None:
    store, stop = place.open(), [True]

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        crash.note(run.call(len, "abc"))
        if stop.pop():
            raise error
        return 1

    stop.append(True)
    with pytest.raises(error):
        store.run(f, "a")
    stop[:] = [False]
    (branch,) = store.agent("a").branches()
    assert branch.holder is None
    with store.agent("a").edit("by hand") as draft:
        draft["by hand"] = True
    assert place.open().run(f, "a") == 1


def test_a_big_argument_is_not_kept(store: Store) -> None:
    @perdure.tool
    def send(text: str, rows: list[int], client: perdure.Ephemeral[Any]) -> int:
        return len(text)

    @perdure.agent(dict)
    def f(run: perdure.Run[dict], text: str) -> int:
        return send(text, list(range(10_000)), object()) + run.call(len, text)

    sizes = []
    for size in (10, 10**6):
        agent = f"a{size}"
        assert store.run(f, agent, "x" * size) == 2 * size
        sizes.append(store.sizes(agent).payload_bytes + store.sizes(agent).header_bytes)
    assert sizes[1] < sizes[0] + 500


def test_objects_that_cannot_be_stored_are_fine_as_arguments(place: Place, crash: Crashes) -> None:
    class Client:
        def send(self, text: str) -> str:
            return text.upper()

    @perdure.tool
    def send(client: perdure.Ephemeral[Client], text: str) -> str:
        return client.send(text)

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[str]:
        client = Client()
        sent = [send(client, "hi"), run.call(client.send, "ho")]
        crash("after")
        return sent

    crash.arm("after")
    crashed(place, f)
    assert place.open().run(f, "a") == ["HI", "HO"]


def test_replay_reads_the_journal_with_few_queries(place: Place, crash: Crashes) -> None:
    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        total = sum(run.call(len, "x" * n) for n in range(200))
        crash("after")
        return total

    crash.arm("after")
    crashed(place, f)
    store, reads = place.open(), []
    backend: Any = store._context.backend
    read = backend.read

    def counted(*args: Any, **more: Any) -> Any:
        reads.append(args)
        return read(*args, **more)

    backend.read = counted
    try:
        assert store.run(f, "a") == 199 * 100
    finally:
        del backend.read
    assert len(reads) < 25
