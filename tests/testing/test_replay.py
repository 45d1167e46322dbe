"""`perdure.testing.replay`: recorded runs against today's code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import perdure
from bench.growth.counting import lines_of
from perdure.cli.app import app
from perdure.store import Store
from perdure.testing import Clock, Replayed, recorded_runs, replay, run_until_waiting


@dataclass
class Receipt:
    cents: int


called: list[str] = []


@perdure.step
def search(words: str) -> list[str]:
    called.append("search")
    return [words, words]


@perdure.tool
def refund(cents: int) -> Receipt:
    called.append("refund")
    return Receipt(cents)


def support_of(body: Callable[..., Any]) -> Any:
    return perdure.agent(dict, name="support")(body)


def _support(run: perdure.Run[dict], question: str) -> str:
    began = run.now()
    found = search(question)
    with run.edit("found") as draft:
        draft["found"] = len(found)
    receipt = refund(run.state["found"] * 100)
    return f"{receipt.cents} at {began.year}"


support = support_of(_support)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with perdure.open(tmp_path / "a.db", durability="os") as store:
        yield store


@pytest.fixture
def exported(store: Store, tmp_path: Path) -> Path:
    store.run(support, "ticket-42", "my bill")
    with store.agent("ticket-42").edit("later, by somebody else") as draft:
        draft["found"] = 99
    return export(store, tmp_path, "ticket-42")


def export(store: Store, folder: Path, agent: str) -> Path:
    file = folder / f"{agent}.jsonl"
    done = CliRunner().invoke(app, ["--store", store.url, "export", agent, "-o", str(file)])
    assert done.exit_code == 0, done.output
    return file


def test_the_same_code_replays_from_a_file_and_from_a_store(store: Store, exported: Path) -> None:
    called.clear()
    commits = store.agent("ticket-42").verify().commits
    from_file, from_store = replay(exported, support), replay(store, support)
    assert from_file.check() == from_store.check() == store.run(support, "ticket-42", "my bill")
    assert (from_file.calls, from_file.goes_on, from_file.drift) == (3, "", None)
    assert called == [], "nothing was called"
    assert store.agent("ticket-42").verify().commits == commits, "nothing was written"


def test_another_argument_is_found(exported: Path) -> None:
    @support_of
    def changed(run: perdure.Run[dict], question: str) -> str:
        run.now()
        found = search(question)
        with run.edit("found") as draft:
            draft["found"] = len(found)
        return str(refund(run.state["found"] * 200))

    seen = replay(exported, changed)
    assert seen.drift is not None
    assert seen.drift.recorded == "tool refund#1(cents=200)"
    assert seen.drift.now == "tool refund(cents=400)"
    with pytest.raises(AssertionError, match=r"(?s)does not replay.*cents.*cents=200.*cents=400"):
        seen.check()


def test_a_call_too_many_too_few_and_another_end_are_found(exported: Path) -> None:
    def one_more(run: perdure.Run[dict], question: str) -> str:
        search("all")
        return _support(run, question)

    def one_less(run: perdure.Run[dict], question: str) -> str:
        run.now()
        search(question)
        return "done"

    def other_end(run: perdure.Run[dict], question: str) -> str:
        return _support(run, question).upper()

    def raises(run: perdure.Run[dict], question: str) -> str:
        raise LookupError(_support(run, question))

    def behind(run: perdure.Run[dict], question: str) -> str:
        return _support(run, question) + str(refund(7))

    def drifts(body: Any) -> str:
        drift = replay(exported, support_of(body)).drift
        assert drift is not None
        return f"{drift.recorded} | {drift.now}"

    called.clear()
    assert "search#1(words='my bill') | step search(words='all')" in drifts(one_more)
    assert "edit:found#1 | the function ends" in drifts(one_less)
    assert "returns '200 at 20" in drifts(other_end)
    assert " AT 20" in drifts(other_end)
    assert "| raises LookupError: 200 at" in drifts(raises)
    assert replay(exported, support_of(behind)).goes_on == "tool refund(cents=7)"
    assert called == []


class Client: ...


class Refusing(dict[str, Any]):
    def items(self) -> Any:
        raise LookupError("it says nothing of itself")


RESULTS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "a set in another order": (set[int], lambda: {8, 0} if called else {0, 8}),
    "a set in a dict": (Any, lambda: {"seen": {16, 0, 8} if called else {8, 0, 16}}),
    "of another type": (int, lambda: "seven"),
    "of no type": (Any, Client),
    "not to be read": (dict[str, int], lambda: Refusing(a=1)),
    "none": (None, lambda: None),
}


@pytest.mark.parametrize(("kind", "make"), RESULTS.values(), ids=RESULTS)
def test_the_same_code_ends_as_before(store: Store, kind: Any, make: Callable[[], Any]) -> None:
    """Equal sets have different words, and were taken for another end; and a result that cannot be
    stored is the failure of its run, and was no failure on replay."""

    def result(run: perdure.Run[dict]) -> Any:
        return make()

    result.__annotations__["return"] = kind
    called.clear()
    try:
        store.run(support_of(result), "a")
    except Exception as raised:
        error: Exception | None = raised
    else:
        error = None
    called.append("again")
    seen = replay(store, support_of(result), "a/support/main")
    seen.check()
    assert (type(seen.error), str(seen.error)) == (type(error), str(error))
    called.clear()


def test_where_a_run_that_waits_would_go_on(store: Store, tmp_path: Path) -> None:
    @perdure.agent(dict)
    def asking(run: perdure.Run[dict]) -> str:
        refund(1)
        run.sleep(timedelta(days=1))
        return "unreached"

    run_until_waiting(store, asking, "a")
    called.clear()
    seen = replay(export(store, tmp_path, "a"), asking)
    assert seen.goes_on.startswith("wait sleep(1 day")
    assert seen.goes_on.endswith("which waits")
    assert (seen.check(), seen.calls, called) == (perdure.MISSING, 1, [])


def test_a_call_in_doubt_is_not_made(store: Store) -> None:
    @perdure.tool(on_crash="retry")
    def send() -> None:
        called.append("send")
        raise SystemExit

    @perdure.agent(dict)
    def sending(run: perdure.Run[dict]) -> None:
        send()

    with pytest.raises(SystemExit):
        store.run(sending, "a")
    called.clear()
    assert "send(), which has no outcome" in replay(store, sending).goes_on
    assert called == []


def test_turns_are_gone_through_one_by_one(store: Store) -> None:
    def body(run: perdure.Run[dict], left: int, step: int = 1) -> str:
        with run.edit("turn") as draft:
            draft["left"] = left
        search(str(left))
        return run.again(left - step) if left else "done"

    turning = perdure.agent(dict, name="turning")(body)
    store.run(turning, "a", 2)
    called.clear()
    seen = replay(store, turning)
    assert (seen.check(), seen.calls, called) == ("done", 6, [])

    @perdure.agent(dict, name="turning")
    def faster(run: perdure.Run[dict], left: int) -> str:
        return body(run, left, step=2)

    drift = replay(store, faster).drift
    assert drift is not None
    assert drift.recorded.startswith("run.again(left=1)")
    assert drift.now.startswith("run.again(left=0)")


def test_a_run_of_many_turns_takes_no_longer_than_one_of_as_many_steps(store: Store) -> None:
    """The state at each turn was folded from the begin of the log: of 2,000 turns, which had taken
    six seconds, a replay took three minutes."""

    @perdure.agent(dict)
    def counting(run: perdure.Run[dict], left: int) -> Any:
        with run.edit("one more") as draft:
            draft["n"] = draft.get("n", 0) + 1
        assert run.state["n"] >= 1
        return run.again(left - 1) if left else run.state["n"]

    lines: list[int] = []
    for turns in (20, 80):
        store.run(counting, f"a-{turns}", turns)
        handle = f"a-{turns}/counting/main"
        assert replay(store, counting, handle).check() == turns + 1
        lines.append(lines_of(lambda handle=handle: replay(store, counting, handle)))  # type: ignore[misc]
    assert lines[1] < 4.4 * lines[0]


def test_a_fork_replays_with_what_it_took_over(store: Store, tmp_path: Path) -> None:
    """What a run had recorded before it was forked was not read: each sound fork was said to call
    something else than was recorded."""

    @perdure.agent(dict)
    def trying(run: perdure.Run[dict], turn: int) -> Any:
        found = [search(f"{turn} {n}") for n in range(3)]
        with run.edit("found") as draft:
            draft["found"] = found
        return run.again(turn + 1) if turn < 2 else found

    gave = store.run(trying, "a", 0)
    handle = store.handle("a/trying/main")
    for number, step in enumerate(["search#2", "search#3", "search#1"]):
        fork = handle.fork(step, branch=f"try-{number}", effects="live")
        waits = replay(store, trying, fork.id)
        assert waits.goes_on.startswith("step search") and waits.drift is None
        assert store.options(key=fork.info.key).run(trying, "a", 0) == gave
        seen = replay(store, trying, fork.id)
        assert (seen.check(), seen.goes_on, seen.calls) == (gave, "", 4)
        handle = fork
    path = export(store, tmp_path, "a")
    assert [replay(path, trying, run).check() for run in recorded_runs(path)] == [gave] * 4

    @perdure.agent(dict, name="trying")
    def changed(run: perdure.Run[dict], turn: int) -> Any:
        return [search(f"{turn} other"), search(f"{turn} 1")]

    drift = replay(store, changed, handle.id).drift
    assert drift is not None and "other" in drift.now


def test_errors_answers_and_async(store: Store) -> None:
    @perdure.agent(dict)
    async def careful(run: perdure.AsyncRun[dict], cents: int) -> str:
        import asyncio

        one, two = await asyncio.gather(run.call(search, "a"), run.call(search, "b"))
        if not await run.ask("Refund?"):
            raise PermissionError(f"not {cents}, {one} {two}")
        return "refunded"

    run_until_waiting(store, careful, "a", 5)
    assert replay(store, careful).calls == 2
    store.handle("a/careful/main").answer(False)
    with pytest.raises(PermissionError):
        run_until_waiting(store, careful, "a", 5)
    called.clear()
    seen = replay(store, careful)
    assert isinstance(seen.error, PermissionError)
    assert (seen.check(), seen.calls, called) == (perdure.MISSING, 3, [])


def test_a_deadline_that_passed_before_the_next_turn_is_no_change_of_the_code() -> None:
    """A run that goes on for ever failed with its deadline where it called `run.again`. The replay
    of the very same code said that it "ends differently than before"."""
    clock = Clock()

    @perdure.agent(dict)
    def poll(run: perdure.Run[dict], turn: int = 0) -> Any:
        search("news")
        clock.advance(2)
        return run.again(turn + 1)

    with clock.open("memory://") as store:
        with pytest.raises(perdure.TimedOut):
            store.options(deadline=1).run(poll, "a")
        seen = replay(store, poll)
        assert (seen.check(), seen.calls) == (perdure.MISSING, 1)
        assert seen.goes_on.startswith("its end: run.again(turn=1)")


def test_a_deadline_that_passed_while_a_coroutine_waited_is_no_change_of_the_code() -> None:
    """An async function waited for something of asyncio's that never came, until its run's deadline
    ended it. The replay of the same code "stopped", as if that were new."""
    import asyncio

    clock = Clock()

    @perdure.agent(dict)
    async def listen(run: perdure.AsyncRun[dict]) -> None:
        await run.call(search, "news")
        await run.call(search, "more")
        clock.advance(2)
        await asyncio.Event().wait()

    async def main() -> None:
        async with clock.open_async("memory://listening") as store:
            with pytest.raises(perdure.TimedOut):
                await store.options(deadline=1).run(listen, "a")

    with clock.open("memory://listening") as kept:
        asyncio.run(main())
        seen = replay(kept, listen)
        assert (seen.check(), seen.calls) == (perdure.MISSING, 2)
        assert seen.goes_on == "its deadline has passed"


def test_a_source_with_several_runs_asks_which(store: Store, tmp_path: Path) -> None:
    for key in ("one", "two"):
        store.options(key=key).run(support, "a", key)
    file = export(store, tmp_path, "a")
    runs = ["a/support/one", "a/support/two"]
    assert recorded_runs(file, support) == recorded_runs(store) == runs
    assert [replay(file, support, run).drift for run in runs] == [None, None]
    with pytest.raises(ValueError, match="there are 2 runs of support; name one: a/support/one"):
        replay(file, support)
    with pytest.raises(perdure.NotFound):
        replay(file, support, "a/support/three")

    @perdure.agent(dict)
    def unknown(run: perdure.Run[dict]) -> None:
        pass

    with pytest.raises(ValueError, match="no run of unknown"):
        replay(file, unknown)


def test_arguments_that_no_longer_fit(exported: Path) -> None:
    @support_of
    def renamed(run: perdure.Run[dict], question: str, customer: str) -> str:
        return ""

    seen = replay(exported, renamed)
    assert seen.drift is not None
    assert "arguments no longer fit" in seen.drift.problem


def test_arguments_that_could_not_be_recorded(store: Store) -> None:
    @perdure.agent(dict)
    def with_client(run: perdure.Run[dict], client: Any) -> Any:
        return run.call(abs, -3)

    client = object()
    store.run(with_client, "a", client)
    with pytest.raises(ValueError, match="could not be recorded"):
        replay(store, with_client)
    assert replay(store, with_client, args=[client]).check() == 3


def test_patched_code_replays_old_runs(exported: Path) -> None:
    @support_of
    def patched(run: perdure.Run[dict], question: str) -> str:
        if run.patched("fee"):
            refund(-1)
        return _support(run, question)

    assert replay(exported, patched).drift is None


def test_a_damaged_file_is_refused(exported: Path) -> None:
    exported.write_text("\n".join(exported.read_text().splitlines()[:-1]))
    with pytest.raises(perdure.Corrupt, match="cut off"):
        replay(exported, support)
    assert not Replayed("r").calls
    assert Clock() is not None
