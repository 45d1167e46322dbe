"""`kill_at_every_boundary`: an agent function, killed wherever it hurts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.testing import RunEnding, boundary, kill_at_every_boundary

POLICIES = ("retry", "probe", "ask")


@dataclass
class Receipt:
    key: str
    cents: int


class Bank:
    """What the tools act on, outside of the library; forgets nothing when a process dies."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []

    def open(self, _: Path) -> None:
        self.paid.clear()

    def pay(self, cents: int) -> Receipt:
        self.paid.append((perdure.idempotency_key(), cents))
        return Receipt("r", cents)

    def find(self, cents: int) -> Any:
        mine = (perdure.idempotency_key(), cents) in self.paid
        return Receipt("r", cents) if mine else perdure.NOT_DONE


@pytest.fixture
def bank() -> Bank:
    return Bank()


def paying(bank: Bank, policy: Any) -> Callable[..., Any]:
    probe = bank.find if policy == "probe" else None
    pay = perdure.tool(on_crash=policy, name="pay", probe=probe)(bank.pay)

    @perdure.agent(dict)
    def pay_all(run: perdure.Run[dict], *bills: int) -> int:
        began = run.now()
        total = 0
        for cents in bills:
            total += pay(run.call(abs, cents)).cents
            with run.edit("paid") as draft:
                draft["total"], draft["began"] = total, began
        return total

    return pay_all


@pytest.mark.parametrize("policy", POLICIES)
def test_a_sound_function_stands_it(bank: Bank, policy: str) -> None:
    seen: list[RunEnding] = []

    def check(end: RunEnding) -> None:
        seen.append(end)
        assert len({key for key, _ in bank.paid}) == 2
        if policy != "retry":
            assert len(bank.paid) == 2

    endings = kill_at_every_boundary(paying(bank, policy), -5, 7, before=bank.open, check=check)
    assert endings == seen
    assert (endings[0].killed_at, endings[0].result) == ("", 12)
    places = [end.killed_at for end in endings[1:]]
    assert len(places) == len(set(places)) > 20
    wanted = {"before append 1", "after append 3", "before tool 2", "after tool 2"}
    assert wanted <= set(places)


def test_a_probe_that_lies_is_found(bank: Bank) -> None:
    pay = perdure.tool(on_crash="probe", probe=lambda cents: perdure.NOT_DONE, name="pay")(bank.pay)

    @perdure.agent(dict)
    def careless(run: perdure.Run[dict]) -> int:
        return pay(5).cents

    with pytest.raises(AssertionError, match=r"(?s)killed after tool 1 and.*pay#1 was called 2 ti"):
        kill_at_every_boundary(careless, before=bank.open)


def test_a_result_that_depends_on_the_process_is_found() -> None:
    lives: list[int] = []

    @perdure.agent(dict)
    def counting(run: perdure.Run[dict]) -> int:
        run.call(abs, 1)
        lives.append(1)
        return len(lives)

    with pytest.raises(AssertionError, match=r"the result is \d, undisturbed 1"):
        kill_at_every_boundary(counting, before=lambda _: lives.clear())


def test_an_effect_outside_of_tools_is_found_by_a_check(bank: Bank) -> None:
    @perdure.agent(dict)
    def naive(run: perdure.Run[dict]) -> str:
        bank.paid.append(("", 5))
        run.call(abs, 1)
        return "paid"

    def check(end: RunEnding) -> None:
        assert bank.paid == [("", 5)]

    with pytest.raises(AssertionError) as found:
        kill_at_every_boundary(naive, before=bank.open, check=check)
    assert "killed" in found.value.__notes__[0]


def test_what_a_function_catches_does_not_keep_its_process_alive(bank: Bank) -> None:
    """A function that caught everything went on after its death, and paid a second time."""
    pay = perdure.tool(on_crash="ask", name="pay")(bank.pay)

    @perdure.agent(dict)
    def stubborn(run: perdure.Run[dict]) -> int:
        paid = 0
        for cents in (1, 2):
            try:
                paid += pay(cents).cents
            except BaseException:
                with suppress(BaseException):
                    paid += pay(cents).cents
        return paid

    def check(end: RunEnding) -> None:
        assert [cents for _, cents in bank.paid] == [1, 2]

    kill_at_every_boundary(stubborn, before=bank.open, check=check)


def test_in_doubt_with_policy_fail_the_function_may_end_otherwise(bank: Bank) -> None:
    pay = perdure.tool(on_crash="fail", name="pay")(bank.pay)

    @perdure.agent(dict)
    def asking_after(run: perdure.Run[dict]) -> str:
        try:
            return f"paid {pay(5).cents}"
        except perdure.InDoubt:
            return "look it up"

    endings = kill_at_every_boundary(asking_after, before=bank.open)
    assert {end.result for end in endings} == {"paid 5", "look it up"}
    assert all(end.doubted == (end.result == "look it up") for end in endings)


def test_waits_get_what_was_given() -> None:
    @perdure.agent(dict)
    def patient(run: perdure.Run[dict], who: str) -> list[Any]:
        began = run.now()
        run.sleep(timedelta(days=2))
        got = [run.ask(f"May {who}?"), run.wait_for("color"), run.wait_for("color")]
        got.append(run.ask("Really?", timeout=3600, default="nobody said"))
        return [*got, (run.now() - began) // timedelta(minutes=1)]

    endings = kill_at_every_boundary(
        patient, "I", answers=[True], signals={"color": ["red", "blue"]}
    )
    assert endings[0].result == [True, "red", "blue", "nobody said", 2 * 24 * 60 + 60]
    assert len(endings) > 20


def test_answers_left_over_and_answers_missing_are_errors() -> None:
    @perdure.agent(dict)
    def asks(run: perdure.Run[dict]) -> Any:
        return run.ask("Well?")

    with pytest.raises(ValueError, match="left over"):
        kill_at_every_boundary(asks, answers=[True, False])
    with pytest.raises(AssertionError, match=r"waits for an answer to 'Well\?'"):
        kill_at_every_boundary(asks)


def test_waits_on_the_runs_own_threads_are_killed_as_any() -> None:
    @perdure.agent(dict)
    def on_threads(run: perdure.Run[dict]) -> list[Any]:
        return run.map(run.wait_for, ["a", "b"])

    endings = kill_at_every_boundary(on_threads, signals={"a": [1], "b": [2]})
    assert endings[0].result == [1, 2]


def test_waits_on_other_threads_are_refused_in_words() -> None:
    @perdure.agent(dict)
    def on_threads(run: perdure.Run[dict]) -> list[Any]:
        with ThreadPoolExecutor(2) as threads:  # of no run.executor(): nothing is known of them
            return list(threads.map(run.wait_for, ["a", "b"]))

    with pytest.raises(AssertionError, match="a thread that is not the run's own"):
        kill_at_every_boundary(on_threads, signals={"a": [1], "b": [2]}, timeout_s=0.5)


def test_a_wait_that_was_cancelled_is_found_again() -> None:
    """The run failed with a KeyError when it was resumed: the record of a wait whose task was
    cancelled was taken for one of its end."""

    @perdure.agent(dict)
    async def hurried(run: perdure.AsyncRun[dict]) -> Any:
        import asyncio

        try:
            async with asyncio.timeout(0.01):
                await run.wait_for("never")
        except TimeoutError:
            return await run.wait_for("late", timeout=5, default="nothing came")

    assert kill_at_every_boundary(hurried)[0].result == "nothing came"


def test_stand_ins_retries_turns_and_exceptions(bank: Bank) -> None:
    @perdure.step(retry=perdure.Retry(2, first=60, jitter=0))
    def fetch(url: str) -> str:
        raise AssertionError("the real one")

    tries: list[str] = []

    def flaky(url: str) -> str:
        tries.append(url)
        if len(tries) == 1:
            raise ConnectionError(url)
        return url.upper()

    @perdure.agent(dict)
    def in_turns(run: perdure.Run[dict], left: int) -> Any:
        with run.edit("turn") as draft:
            draft.setdefault("seen", []).append(left)
        if left:
            return run.again(left - 1)
        raise LookupError("the end")

    @perdure.agent(dict)
    def fetching(run: perdure.Run[dict]) -> str:
        return fetch("a")

    endings = kill_at_every_boundary(in_turns, 1)
    assert endings[0].state == {"seen": [1, 0]}
    assert isinstance(endings[-1].result, LookupError)
    ends = kill_at_every_boundary(fetching, tools={fetch: flaky}, before=lambda _: tries.clear())
    assert ends[0].result == "A"


def test_an_async_function(bank: Bank) -> None:
    import asyncio

    async def pay_slowly(cents: int) -> Receipt:
        await asyncio.sleep(0)
        return bank.pay(cents)

    pay = perdure.tool(on_crash="probe", probe=bank.find, name="pay")(pay_slowly)

    @perdure.agent(dict)
    async def pay_both(run: perdure.AsyncRun[dict]) -> Any:
        one, two = await asyncio.gather(pay(1), pay(2))
        if not await run.ask("Both?"):
            return 0
        async with run.edit("paid") as draft:
            draft["total"] = one.cents + two.cents
        return run.state["total"]

    endings = kill_at_every_boundary(pay_both, answers=[True], before=bank.open)
    assert endings[0].result == 3
    assert any("tool" in end.killed_at for end in endings)


def test_a_kill_in_the_middle_of_a_tool(bank: Bank) -> None:
    """`boundary` ended the process that is played, and the tool went on to its end all the same."""
    after: list[str] = []

    def pay_in_two(cents: int) -> Receipt:
        receipt = bank.pay(cents)
        boundary("paid")
        after.append("and told")
        return receipt

    pay = perdure.tool(on_crash="probe", probe=bank.find, name="pay")(pay_in_two)

    @perdure.agent(dict)
    def paying_once(run: perdure.Run[dict]) -> int:
        return pay(5).cents

    def check(end: RunEnding) -> None:
        assert len(bank.paid) == 1
        assert after == ([] if end.killed_at == "at paid 1" else ["and told"])

    def before(_: Path) -> None:
        bank.paid.clear()
        after.clear()

    endings = kill_at_every_boundary(paying_once, before=before, check=check)
    assert "at paid 1" in {end.killed_at for end in endings}


def test_really_killed(tmp_path: Path) -> None:
    """With processes that end by SIGKILL; their effects are in files."""
    current: list[Path] = []

    def found(line: str) -> Any:
        file = current[0] / "sent"
        return len(line) if file.exists() and line in file.read_text() else perdure.NOT_DONE

    @perdure.tool(on_crash="probe", probe=found)
    def send(line: str) -> int:
        with open(current[0] / "sent", "a") as file:
            file.write(line + "\n")
        boundary("sent")
        return len(line)

    @perdure.agent(dict)
    def letters(run: perdure.Run[dict]) -> int:
        return send("hello") + (1 if run.ask("One more?") else 0)

    def before(folder: Path) -> None:
        current[:] = [folder]

    def check(end: RunEnding) -> None:
        assert (end.folder / "sent").read_text() == "hello\n"

    endings = kill_at_every_boundary(
        letters, answers=[True], before=before, check=check, by="sigkill", folder=tmp_path
    )
    assert {end.result for end in endings} == {6}
    assert {"at sent 1", "before tool 1", "after append 2"} <= {end.killed_at for end in endings}


@pytest.mark.parametrize("policy", POLICIES)
def test_turns_are_told_apart(bank: Bank, policy: Any) -> None:
    """A call in doubt was settled by what a call at the same place had given in an earlier turn: a
    sound function was said to end otherwise."""
    probe = bank.find if policy == "probe" else None
    pay = perdure.tool(on_crash=policy, name="pay", probe=probe)(bank.pay)

    @perdure.agent(dict)
    def turns(run: perdure.Run[dict], number: int = 1) -> Any:
        cents = pay(number).cents
        return run.again(number + 1) if number < 3 else cents

    endings = kill_at_every_boundary(turns, before=bank.open)
    assert {end.result for end in endings} == {3}


def test_which_task_makes_a_call_may_be_left_out() -> None:
    """Workers on a queue share the calls otherwise each time; `same` could not say so, for calls
    were counted at each place, in whichever task."""
    tries: list[int] = []
    pay = perdure.tool(on_crash="retry", name="pay")(abs)

    @perdure.agent(dict)
    async def sharing(run: perdure.AsyncRun[dict], turn: int) -> int:
        async def worker(bills: int) -> None:
            for cents in range(bills):
                await run.call(pay, cents)

        await asyncio.gather(worker(turn), worker(3 - turn))
        return 3

    @perdure.agent(dict)
    async def weather(run: perdure.AsyncRun[dict]) -> int:
        return await sharing(run, await run.call(len, tries) % 4)

    def kill(**more: Any) -> None:
        tries.clear()
        kill_at_every_boundary(weather, before=lambda _: tries.append(1), **more)

    with pytest.raises(AssertionError, match=r"worker#[12]/pay#\d was called"):
        kill()
    kill(same=lambda end: end.result)


class Books:
    """A bank's books in a file, which outlives real processes; its answer comes late."""

    def __init__(self) -> None:
        self.place = Path()

    def open(self, folder: Path) -> None:
        self.place = folder / "books"
        self.place.touch()

    @property
    def paid(self) -> list[str]:
        return self.place.read_text().splitlines()

    def pay(self) -> None:
        with open(self.place, "a") as books:
            books.write(perdure.idempotency_key() + "\n")

    def look_up(self, effect: perdure.types.EffectInfo) -> Any:
        return "receipt" if effect.key in self.paid else perdure.NOT_DONE

    def check(self, end: RunEnding) -> None:
        assert len(self.paid) == 1, f"paid {len(self.paid)} times"


def paying_beside(books: Books) -> Callable[..., Any]:
    """A function that looks at something beside a payment: whose effect is there before, and whose
    answer comes after what it looked at is in the log."""

    @perdure.agent(dict)
    async def both(run: perdure.AsyncRun[dict]) -> Any:
        paid, looked = asyncio.Event(), asyncio.Event()

        @perdure.tool(on_crash="ask")
        async def pay() -> str:
            books.pay()
            paid.set()
            await looked.wait()
            return "receipt"

        @perdure.step
        async def look() -> str:
            if not books.paid:
                await paid.wait()
            return "seen"

        async def looks() -> str:
            seen = await look()
            looked.set()
            return seen

        return await asyncio.gather(pay(), looks())

    return both


@pytest.mark.parametrize("by", ["exception", "sigkill"])
def test_what_was_under_way_is_settled_by_who_looks_into_the_books(by: Any) -> None:
    """Killed at another task's boundary, a payment that had reached the bank was settled as not
    done, without anybody knowing: a sound function "paid 2 times"."""
    books = Books()
    both = paying_beside(books)
    endings = kill_at_every_boundary(
        both, before=books.open, check=books.check, settle=books.look_up, by=by
    )
    assert {tuple(end.result) for end in endings} == {("receipt", "seen")}
    assert "after step 1" in {end.killed_at for end in endings}
    assert not any(end.assumed for end in endings)


@pytest.mark.parametrize("by", ["exception", "sigkill"])
def test_what_nobody_knows_is_said_where_it_fails(by: Any) -> None:
    books = Books()
    assumption = (
        "pay#1 had begun when it was killed, and may have taken effect: it was settled as not "
        "done; pass settle= to tell what really happened"
    )
    both = paying_beside(books)
    with pytest.raises(AssertionError, match="paid 2 times") as found:
        kill_at_every_boundary(both, before=books.open, check=books.check, by=by)
    assert [note for note in found.value.__notes__ if note.endswith(assumption)]
    with pytest.raises(AssertionError, match="what must be the same is 1, undisturbed 0") as told:
        kill_at_every_boundary(both, before=books.open, same=lambda end: len(end.assumed), by=by)
    assert assumption in str(told.value)


def test_what_had_not_begun_or_gave_something_is_known(bank: Bank) -> None:
    """Nobody is asked about it. What raised may have taken effect: that is asked for."""
    asked: list[str] = []

    def pay_or_raise(cents: int) -> Receipt:
        receipt = bank.pay(cents)
        if cents == 5:
            raise ConnectionError
        return receipt

    pay = perdure.tool(on_crash="ask", name="pay")(pay_or_raise)

    @perdure.agent(dict)
    def pays(run: perdure.Run[dict], cents: int) -> str:
        try:
            return pay(cents).key
        except ConnectionError:
            return "r"

    def settle(effect: perdure.types.EffectInfo) -> Any:
        asked.append(effect.place)
        return Receipt("r", 5)

    whole: dict[str, Any] = {"before": bank.open, "same": lambda end: end.result}
    kill_at_every_boundary(pays, 7, settle=settle, **whole)
    assert asked == []
    kill_at_every_boundary(pays, 5, settle=settle, **whole)
    assert asked == ["pay#1"] * len(asked)
    assert asked
