"""Steps and tools that fail, take too long or are killed at it: who is called again, and when."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import perdure
from perdure.engine.execution.activity import Going, Waiting
from perdure.engine.execution.performer import pausing
from perdure.engine.journal.effects import Pause
from perdure.engine.journal.retries import Retry
from perdure.errors import CallFailed, InDoubt, NeedsAttention, TimedOut, Unstorable
from perdure.storage.memory.backend import MemoryBackend
from perdure.store import Store
from perdure.testing.boundaries import boundary, run_with_kills
from tests.engine.conftest import CrashError, Crashes, Place

SOON = Retry(3, first=0.01, jitter=0)
HOUR_US = 3_600_000_000


class Clock:
    """The store's clock, in the test's hand."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def __call__(self) -> int:
        return time.time_ns() // 1000 + self.ahead_us


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(clock: Clock) -> Any:
    store = Store(MemoryBackend(clock=clock))
    yield store
    store.close()


def wait_until(condition: Callable[[], Any]) -> Any:
    until = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.005)
    return found


def records(store: Store, kind: str, agent: str = "a") -> list[Any]:
    log = store.agent(agent).log()
    return [record for commit in log for record in commit.records if record["t"] == kind]


def in_background(function: Callable[[], Any]) -> Callable[[], Any]:
    """Call it on a thread; what is returned waits for its result."""
    found: list[Any] = []

    def call() -> None:
        try:
            found.append((function(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(30)
        assert found, "stuck"
        value, error = found[0]
        if error is not None:
            raise error
        return value

    return result


# -- which errors, how often, after what pauses ------------------------------------------------


@pytest.mark.parametrize(
    ("on", "raised", "calls"),
    [
        (ConnectionError, ConnectionResetError("gone"), 3),
        (ConnectionError, ValueError("bad"), 1),
        ((KeyError, ValueError), ValueError("bad"), 3),
        ((KeyError, ValueError), TypeError("bad"), 1),
        (lambda error: "again" in str(error), ValueError("again"), 3),
        (lambda error: "again" in str(error), ValueError("never"), 1),
    ],
)
@pytest.mark.parametrize("kind", ["step", "tool"])
def test_an_error_is_tried_again_by_its_type_or_by_what_a_function_says(
    store: Store, crash: Crashes, kind: str, on: Any, raised: Exception, calls: int
) -> None:
    def act() -> None:
        crash.note(1)
        raise raised

    call = getattr(perdure, kind)(retry=Retry(3, on=on, first=0, jitter=0))(act)

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        try:
            call()
        except Exception as error:
            return repr(error)
        return ""

    assert store.run(f, "a") == repr(raised)
    assert len(crash.calls) == calls
    assert len(records(store, "attempt-failed")) == calls - 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"first": -1},
        {"jitter": 1.5},
        {"factor": 0.5},
        {"longest": -1},
        {"on": "ValueError"},
        {"on": [ValueError]},
    ],
)
def test_a_retry_that_means_nothing_is_refused_where_it_is_written(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"a Retry needs|must be a type"):
        Retry(**wrong)


def test_pauses_grow_to_the_longest_and_jitter_takes_off_a_part_of_them_only() -> None:
    """With a steep factor and many attempts, the pause was an OverflowError."""
    retry = Retry(1000, first=0.5, factor=3, longest=timedelta(seconds=20), jitter=0.25)
    for attempt, whole in ((1, 0.5), (2, 1.5), (3, 4.5), (4, 13.5), (5, 20), (999, 20)):
        pauses = [retry.pause_s(attempt) for _ in range(200)]
        assert min(pauses) >= whole * 0.75 and max(pauses) <= whole
        assert max(pauses) - min(pauses) > whole * 0.05, "they spread"
    assert Retry(5, first=2, jitter=0).pause_s(2) == 4.0
    assert Retry(999, factor=1e9, jitter=0).pause_s(998) == 60.0


def unsure(error: Exception) -> bool:
    raise KeyError("the predicate's own")


async def worth_it(error: Exception) -> Any:
    return False


def test_a_predicate_whose_code_does_not_run_is_refused() -> None:
    """Story: an `async def` predicate was taken. Its answer, a coroutine, counts as true: a tool
    charged three times, though the predicate would have said no."""
    with pytest.raises(TypeError, match="runs none of its code"):
        Retry(3, on=worth_it, first=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("on", "note"),
    [(unsure, "predicate's own"), (lambda error: worth_it(error), "has not run")],
)
def test_a_predicate_that_fails_does_not_hide_the_error_nor_leave_the_call_in_doubt(
    store: Store, crash: Crashes, on: Any, note: str
) -> None:
    """Its own error left the tool without an outcome: the run then waited for a person to say
    what had become of a call that had plainly failed."""

    @perdure.tool(retry=Retry(3, on=on, first=0))
    def act() -> None:
        crash.note(1)
        raise ValueError("the tool's")

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        act()

    with pytest.raises(ValueError, match="the tool's") as caught:
        store.run(f, "a")
    assert any(note in one for one in caught.value.__notes__)
    assert [e.state for e in store.handle("a/f/main").effects()] == ["failed"]
    assert crash.calls == [1]


def test_attempts_are_counted_across_crashes(place: Place, crash: Crashes) -> None:
    """Each process would have begun to count anew, and a call that fails for ever would have been
    tried for ever."""

    @perdure.step(retry=SOON)
    def fetch() -> None:
        crash.note("fetch")
        if len(crash.calls) == 3:
            crash("at the third")
        raise ConnectionError(f"down, {len(crash.calls)}")

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        fetch()

    crash.arm("at the third")
    with pytest.raises(CrashError):
        place.open().run(f, "a")
    with pytest.raises(ConnectionError, match="down, 4"):
        place.open().run(f, "a")
    assert len(crash.calls) == 4
    with pytest.raises(ConnectionError, match="down, 4"):
        place.open().run(f, "a")
    assert len(crash.calls) == 4, "recorded"


def test_a_long_pause_unloads_the_run_and_it_goes_on_when_the_time_has_come(
    timed: Store, clock: Clock, crash: Crashes
) -> None:
    @perdure.step(retry=Retry(2, first=3600, longest=3600, jitter=0))
    def fetch() -> int:
        crash.note("fetch")
        if len(crash.calls) == 1:
            raise ConnectionError("down")
        return 7

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        return fetch()

    result = in_background(lambda: timed.run(f, "a"))
    waiting = wait_until(lambda: timed.runs(status=["waiting"]))[0]
    assert waiting.waits == "attempt 2 of " + fetch.__qualname__.rsplit("<locals>.", 1)[-1]
    assert abs(waiting.wake_at_micros - clock() - HOUR_US) < 60_000_000
    assert timed.agent("a").branches()[0].holder is None
    clock.ahead_us += HOUR_US
    assert result() == 7 and len(crash.calls) == 2


def test_a_signal_that_nobody_waits_for_yet_does_not_spin_a_run_that_pauses(
    timed: Store, clock: Clock
) -> None:
    """The signal counted as news for the run, which was loaded, paused, was unloaded and loaded
    again, thousands of times until its pause was over."""

    @perdure.step(retry=Retry(2, first=3600, longest=3600, jitter=0))
    def fetch() -> None:
        if clock.ahead_us == 0:
            raise ConnectionError("down")

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> Any:
        fetch()
        return run.wait_for("go")

    result = in_background(lambda: timed.run(f, "a"))
    run = wait_until(lambda: timed.runs(status=["waiting"]))[0]
    timed.handle(run.id).signal("go", 5)
    time.sleep(1.2)
    assert len(records(timed, "run-resumed")) <= 1
    clock.ahead_us += HOUR_US
    assert result() == 5


def test_a_clock_that_was_set_back_does_not_make_the_pause_longer_than_the_longest(
    timed: Store, clock: Clock, crash: Crashes
) -> None:
    """It had failed at three o'clock and was to be tried at one minute past; then it was two."""

    @perdure.step(retry=Retry(3, first=0.2, longest=0.2, jitter=0))
    def fetch() -> int:
        crash.note("fetch")
        if len(crash.calls) == 1:
            raise ConnectionError("down")
        if len(crash.calls) == 2:
            clock.ahead_us -= HOUR_US
            raise ConnectionError("down")
        return 7

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        return fetch()

    assert in_background(lambda: timed.run(f, "a"))() == 7


# -- how long ----------------------------------------------------------------------------------


def test_an_attempt_that_takes_too_long_is_left_to_itself_and_nothing_of_it_counts(
    store: Store, crash: Crashes
) -> None:
    """The thread that was left behind went on to save its progress, over that of its successor."""
    go_on, told = threading.Event(), threading.Event()

    @perdure.step(retry=Retry(2, first=0, jitter=0), timeout=0.2)
    def slow() -> str:
        crash.note(perdure.saved_progress("nothing"))
        if len(crash.calls) == 2:
            return "the second"
        perdure.heartbeat("half of it")
        go_on.wait(30)
        try:
            perdure.heartbeat("more of it")
        except TimedOut:
            told.set()
        return "the first"

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        return slow()

    assert store.run(f, "a") == "the second"
    go_on.set()
    assert told.wait(30)
    assert crash.calls == ["nothing", "half of it"]
    assert [r["value"] for r in records(store, "progress")] == ["half of it"]
    (failed,) = records(store, "attempt-failed")
    assert "longer than" in failed["error"]["text"]


def test_an_attempt_without_a_sign_of_life_is_given_up(timed: Store) -> None:
    end = threading.Event()

    @perdure.step(heartbeat_timeout=1.0)
    def lively() -> str:
        for _ in range(15):
            time.sleep(0.1)
            perdure.heartbeat()
        return "alive"

    @perdure.step(heartbeat_timeout=0.2)
    def still() -> None:
        end.wait(30)

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        with pytest.raises(TimedOut, match="no sign of life"):
            still()
        return lively()

    assert timed.run(f, "a") == "alive"
    end.set()


def test_an_async_attempt_that_takes_too_long_is_cancelled(tmp_path: Path, crash: Crashes) -> None:
    @perdure.step(timeout=0.2)
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            crash.note("cancelled")

    @perdure.step(timeout=0.2)
    def slow_thread() -> None:
        time.sleep(0.6)

    @perdure.agent(dict)
    async def f(run: perdure.AsyncRun[dict]) -> list[str]:
        found = []
        for call in (slow, slow_thread):
            try:
                await run.call(call)
            except TimedOut as late:
                found.append(late.problem)
        return found

    async def main() -> list[str]:
        async with perdure.open_async(tmp_path / "a.db") as store:
            first = await store.run(f, "a")
            assert await store.run(f, "a") == first
            return first

    assert asyncio.run(main()) == ["took longer than 0.2 s"] * 2
    assert crash.calls == ["cancelled"]


def test_an_async_attempt_that_swallows_its_cancellation_does_not_hold_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its timeout waited for the task to end, which caught the cancellation and went on."""
    monkeypatch.setattr("perdure.engine.execution.async_performer.GRACE_S", 0.1)
    ended: list[bool] = []

    @perdure.step(timeout=0.1)
    async def stubborn() -> None:
        while not ended:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    @perdure.agent(dict)
    async def f(run: perdure.AsyncRun[dict]) -> str:
        try:
            await stubborn()
        except TimedOut:
            return "went on"
        return ""

    async def main() -> str:
        async with perdure.open_async(tmp_path / "a.db") as store:
            result = await asyncio.wait_for(store.run(f, "a"), 30)
            ended.append(True)
            return result

    assert asyncio.run(main()) == "went on"


def test_no_attempt_is_begun_once_the_whole_time_is_up(
    timed: Store, clock: Clock, crash: Crashes
) -> None:
    """The process was away for an hour. The call was made once more, with no time left: a tool
    would have been given up in the middle of its effect."""

    @perdure.tool(retry=Retry(9, first=5, jitter=0), total_timeout=60)
    def act() -> None:
        crash.note("act")
        raise ConnectionError("down")

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        act()

    result = in_background(lambda: timed.run(f, "a"))
    wait_until(lambda: timed.runs(status=["waiting"]))
    clock.ahead_us += HOUR_US
    with pytest.raises(TimedOut, match="longer than 60 s, with 1 attempts"):
        result()
    assert crash.calls == ["act"]
    assert [e.state for e in timed.handle(timed.runs()[0].id).effects()] == ["failed"]


def test_the_whole_time_bounds_attempts_and_pauses_together(store: Store, crash: Crashes) -> None:
    @perdure.step(retry=Retry(1000, first=0.05, factor=1, jitter=0), total_timeout=0.4)
    def fetch() -> None:
        crash.note(1)
        raise ConnectionError("down")

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        fetch()

    began = time.monotonic()
    with pytest.raises((ConnectionError, TimedOut)):
        store.run(f, "a")
    assert time.monotonic() - began < 20 and 1 < len(crash.calls) < 12


# -- progress that is saved ----------------------------------------------------------------------


def test_what_an_attempt_saved_is_there_for_the_next(store: Store) -> None:
    seen: list[Any] = []

    @perdure.step(retry=SOON)
    def copy() -> int:
        done = perdure.saved_progress(0)
        seen.append(done)
        for number in range(done, 30):
            perdure.heartbeat(number + 1)
            if number in (9, 19) and number + 1 not in seen:
                raise ConnectionError
        return int(done)

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        return copy()

    assert store.run(f, "a") == 20
    assert seen == [0, 10, 20]
    perdure.heartbeat("outside of a run: nothing")
    assert perdure.saved_progress("nothing") == "nothing"


def test_progress_that_is_told_in_a_tight_loop_does_not_fill_the_log(store: Store) -> None:
    """Every call of heartbeat left a record, so that a million rows made a million of them."""

    @perdure.step
    def copy() -> None:
        for number in range(5000):
            perdure.heartbeat(number)

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> None:
        copy()

    store.run(f, "a")
    told = [record["value"] for record in records(store, "progress")]
    assert told[-1] == 4999 and len(told) < 4000


@perdure.step
def long_step(folder: str) -> list[int]:
    begun = perdure.saved_progress([])
    perdure.heartbeat([*begun, len(begun)])
    with perdure.open(Path(folder) / "a.db") as store:
        wait_until(lambda: len(records(store, "progress")) > len(begun))
    boundary("saved")
    return perdure.saved_progress([])  # type: ignore[no-any-return]


@perdure.agent(dict)
def long_run(run: perdure.Run[dict], folder: str) -> list[int]:
    return long_step(folder)


def long_scenario(folder: Path) -> Any:
    with perdure.open(folder / "a.db") as store:
        return store.run(long_run, "a", str(folder))


def test_what_an_attempt_saved_outlives_a_kill(tmp_path: Path) -> None:
    end = run_with_kills(long_scenario, tmp_path, ["at saved 1"] * 2)
    assert end.error is None
    assert end.killed_at == ["at saved 1"] * 2
    assert end.result == [0, 1, 2]


# -- tools ---------------------------------------------------------------------------------------


def test_each_attempt_of_a_tool_has_an_intent_of_its_own_and_all_the_same_key(
    store: Store, crash: Crashes
) -> None:
    @perdure.tool(retry=SOON)
    def act() -> int:
        crash.note((perdure.idempotency_key(), len(records(store, "intent"))))
        if len(crash.calls) < 3:
            raise ConnectionError("down")
        return 1

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        return act()

    assert store.run(f, "a") == 1
    assert len({key for key, _ in crash.calls}) == 1
    assert [intents for _, intents in crash.calls] == [1, 2, 3]
    assert [r["attempt"] for r in records(store, "intent")] == [1, 2, 3]
    (effect,) = store.handle(store.runs()[0].id).effects()
    assert (effect.state, effect.attempts) == ("done", 3)


def late_tool(crash: Crashes, **more: Any) -> Any:
    """A tool whose first call takes too long, and whose second does not."""

    @perdure.tool(timeout=0.25, name="act", **more)
    def act() -> str:
        crash.note(perdure.idempotency_key())
        if len(crash.calls) == 1:
            time.sleep(0.6)
        return f"call {len(crash.calls)}"

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        try:
            return act()
        except InDoubt:
            return "in doubt"
        except TimedOut:
            return "too late"

    return f


@pytest.mark.parametrize(
    ("more", "result", "calls"),
    [
        ({"on_crash": "retry", "retry": SOON}, "call 2", 2),
        ({"on_crash": "retry"}, "too late", 1),
        ({"on_crash": "probe", "probe": lambda: "found"}, "found", 1),
        ({"on_crash": "probe", "probe": lambda: perdure.NOT_DONE, "retry": SOON}, "call 2", 2),
        ({"on_crash": "probe", "probe": lambda: perdure.NOT_DONE}, "too late", 1),
        ({"on_crash": "fail", "retry": SOON}, "in doubt", 1),
    ],
)
def test_an_attempt_of_a_tool_that_took_too_long_is_in_doubt(
    store: Store, crash: Crashes, more: Any, result: str, calls: int
) -> None:
    f = late_tool(crash, **more)
    assert store.run(f, "a") == result
    assert store.run(f, "a") == result
    assert len(crash.calls) == calls and len(set(crash.calls)) == 1


def test_a_person_is_asked_about_a_tool_that_took_too_long(store: Store, crash: Crashes) -> None:
    f = late_tool(crash, on_crash="ask", retry=SOON)
    for _ in range(2):
        with pytest.raises(NeedsAttention, match="nobody knows whether it took effect"):
            store.run(f, "a")
    handle = store.handle(store.runs()[0].id)
    assert [e.state for e in handle.effects()] == ["in doubt"]
    handle.settle("act#1", done="it was done")
    assert store.run(f, "a") == "it was done"
    assert len(crash.calls) == 1


def test_a_call_that_failed_after_it_was_settled_is_not_in_doubt_again(
    timed: Store, clock: Clock, crash: Crashes
) -> None:
    """Intents were counted against failures: one intent had been settled as not done, the next had
    failed, and the run woke from its pause to ask a person about a call that was known to have
    failed."""

    @perdure.tool(retry=Retry(5, first=3600, longest=3600, jitter=0))
    def act() -> str:
        crash.note("act")
        if len(crash.calls) == 1:
            raise CrashError
        if len(crash.calls) == 2:
            raise ConnectionError("down")
        return "done"

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        return act()

    with pytest.raises(CrashError):
        timed.run(f, "a")
    with pytest.raises(NeedsAttention):
        timed.run(f, "a")
    run = timed.runs()[0].id
    (effect,) = timed.handle(run).effects()
    timed.handle(run).settle(effect.place, not_done=True)
    result = in_background(lambda: timed.run(f, "a"))
    wait_until(lambda: timed.runs(status=["waiting"]))
    assert [e.state for e in timed.handle(run).effects()] == ["to be tried again"]
    with pytest.raises(perdure.Conflict, match="not in doubt"):
        timed.handle(run).settle(effect.place, done="?")
    clock.ahead_us += HOUR_US
    assert result() == "done"


# -- errors and results --------------------------------------------------------------------------


class Declined(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"declined with {code}")
        self.code = code


@pytest.mark.parametrize("kind", ["step", "tool"])
def test_an_error_comes_back_with_its_type_or_as_a_stand_in(
    place: Place, crash: Crashes, kind: str
) -> None:
    class Local(Exception):
        pass

    def act(which: str) -> None:
        crash.note(which)
        raise {"own": Declined(51), "built in": KeyError("k"), "local": Local("here")}[which]

    call = getattr(perdure, kind)(retry=Retry(2, first=0))(act)

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> list[str]:
        found = []
        for which in ("own", "built in", "local"):
            try:
                call(which)
            except (Declined, KeyError, CallFailed) as error:
                found.append(f"{type(error).__name__} {getattr(error, 'code', '')} {error.args}")
        crash("at the end")
        return found

    crash.arm("at the end")
    with pytest.raises(CrashError):
        place.open().run(f, "a")
    found = place.open().run(f, "a")
    assert found[:2] == ["Declined 51 ('declined with 51',)", "KeyError  ('k',)"]
    assert found[2].startswith("CallFailed") and "Local: here" in found[2]
    assert len(crash.calls) == 6, "each tried twice, and none on replay"


@pytest.mark.parametrize("kind", ["step", "tool"])
def test_a_result_that_cannot_be_stored_fails_at_the_call_with_its_path_and_is_not_repeated(
    place: Place, crash: Crashes, kind: str
) -> None:
    def act() -> Any:
        crash.note("act")
        return {"rows": [1, {"socket": object()}]}

    call = getattr(perdure, kind)(retry=SOON)(act)

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> str:
        try:
            call()
        except (Unstorable, CallFailed) as error:
            crash("after it")
            return str(error)
        return ""

    crash.arm("after it")
    with pytest.raises(CrashError):
        place.open().run(f, "a")
    said = place.open().run(f, "a")
    assert "rows" in said and "socket" in said and "object" in said
    assert crash.calls == ["act"]


def test_a_huge_result_is_stored_and_comes_back(tmp_path: Path, crash: Crashes) -> None:
    @perdure.tool
    def dump() -> bytes:
        crash.note("dump")
        return b"\x00\xff" * 25_000_000

    @perdure.agent(dict)
    def f(run: perdure.Run[dict]) -> int:
        size = len(dump())
        crash("after it")
        return size

    crash.arm("after it")
    with perdure.open(tmp_path / "a.db") as store, pytest.raises(CrashError):
        store.run(f, "a")
    with perdure.open(tmp_path / "a.db") as store:
        assert store.run(f, "a") == 50_000_000
        store.agent("a").verify()
    assert crash.calls == ["dump"]


def test_a_clock_that_is_set_back_makes_a_pause_no_longer() -> None:
    """The clock was set back by an hour in a pause of half a second. The run, and its agent's
    branch, stood still for an hour, without a word."""
    clock = iter([0, 100_000, -3_600_000_000, -3_599_900_000, -3_599_600_000])
    execution: Any = SimpleNamespace(
        now=lambda: next(clock),
        check_stop=lambda: None,
        wakeups=SimpleNamespace(in_place_s=1.0),
        going=Going(lambda: None),
    )
    wait = Waiting("attempt 2", 500_000, own=True, deaf=True, runs=())
    left_s = list(pausing(execution, Pause(500_000, "attempt 2"), wait, lambda: False))
    assert left_s == [0.4, 0.4, 0.3]
