"""What an exception left behind in a run once."""

from __future__ import annotations

import sys
from itertools import count
from typing import Any

import pytest

import perdure
from perdure.engine.execution.performer import Performer
from perdure.engine.execution.run_writer import RunWriter
from perdure.engine.journal import failures
from perdure.engine.journal.effects import RecordEffect
from perdure.engine.journal.leaving import Leaving
from tests.faults.checking import State
from tests.faults.injecting import KINDS, Helper, Injector, TimeLimit
from tests.faults.run_scenes import double, paying


@pytest.mark.parametrize("kind", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_i8_a_commit_that_nobody_goes_on_with_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseException], nth: int
) -> None:
    """An exception came when a run's commit was prepared and not yet on its way. What the run wrote
    next waited for it, for ever, and with it the thread that had called `store.run`."""
    calls = iter(range(1, 1000))
    fly = RunWriter._fly

    def interrupted(writer: RunWriter, flight: Any) -> None:
        if next(calls) == nth:
            raise kind("injected")
        fly(writer, flight)

    monkeypatch.setattr(RunWriter, "_fly", interrupted)
    with perdure.open("memory://") as store:
        agent = store.agent("a", State, initial=State())
        agent.update(lambda draft: setattr(draft, "n", 1))
        helper = Helper()
        results: list[object] = []
        for _ in range(3):
            try:
                helper.call(lambda: results.append(store.run(paying, "a")), 20.0)
            except TimeoutError:
                raise
            except BaseException as error:  # it may fail of it, but ends
                results.append(error)
        assert results[-1] == "paid 3" or "injected" in str(results[-1]), results
        assert not [run for run in store.runs() if run.status == "running"]
        agent.verify()


def test_what_comes_between_two_instructions_of_a_commit_is_what_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A soft time limit, which is an `Exception`, came just before a tool's commit was taken in.
    The tool recorded that as its failure, could not, for the commit before was nobody's; and
    `store.run` raised "was withdrawn", without a word of the time limit."""
    go_on = RunWriter._go_on

    def interrupted(writer: RunWriter, flight: Any, outcome: Any) -> bool:
        if any(record.t == "intent" for item in flight.items for record in item.riders.records):
            monkeypatch.setattr(RunWriter, "_go_on", go_on)
            raise TimeLimit("injected")
        return go_on(writer, flight, outcome)

    monkeypatch.setattr(RunWriter, "_go_on", interrupted)
    with perdure.open("memory://") as store:
        store.agent("a", State, initial=State())
        with pytest.raises(perdure.PerdureError, match="recorded: TimeLimit: injected") as caught:
            store.run(paying, "a")
        assert isinstance(caught.value.__cause__, TimeLimit)
        assert store.run(paying, "a") == "paid 3"


WITHIN = ("warn_if_blocking", "Performer.make", "Performer.invoke")
"""Where what comes cannot be told from what the function, the step or tool does itself."""


class Paying:
    """A run that goes on from whatever its tool comes to, with something injected behind what the
    tool itself does."""

    def __init__(self, at: int) -> None:
        self.paid = 0
        self.injector = Injector(at, KINDS[at % len(KINDS)])

        @perdure.tool(on_crash="fail")
        def pay() -> int:
            self.paid += 1
            self.injector.join()
            return 7

        @perdure.agent(dict)
        def catching(run: perdure.Run[dict[str, Any]]) -> list[object]:
            given: object
            try:
                given = pay()
            except perdure.InDoubt:
                given = "in doubt"
            except Exception as error:
                given = f"{type(error).__name__}: {error}"
            return [given, double(1)]

        self.function = catching

    def run(self, store: perdure.Store) -> object:
        # In what a weak reference's end calls an exception goes nowhere: it is only shown.
        shows, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            return store.run(self.function, "a")
        except BaseException as error:
            return error
        finally:
            self.injector.leave()
            sys.unraisablehook = shows


def test_i5_what_comes_from_outside_is_no_outcome_of_a_call() -> None:
    """A MemoryError came just before a tool's result was recorded, or just behind. The function
    got it as what the tool had raised, which no journal said, and went on from it: with a payment
    in doubt that nobody was asked about, or to calls that the replay then found changed. Where it
    came while the result was written, it was recorded for good: "its result cannot be stored"."""
    step, past = 31, 0
    for at in count(1, step):
        paying = Paying(at)
        with perdure.open("memory://") as store:
            first = paying.run(store)
            if not paying.injector.raised:
                break
            [call] = store.handle("a/catching/main").effects()
            again = paying.run(store)
            assert paying.paid == 1
            where = paying.injector.where
            if where.startswith("engine/functions/decorators.py") or where.endswith(WITHIN):
                continue
            assert again in ([7, 2], ["in doubt", 2]), (where, first, again)
            assert (call.state == "done") is (again == [7, 2]), (where, call.state, again)
            past += 1
    assert past > 100


def test_i5_what_comes_while_a_first_exception_is_seen_to_is_no_outcome_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A MemoryError came before a tool's result was recorded, and another where the run was to be
    interrupted for that. The function took that for what the tool had raised, and the run ended
    well, with a payment in doubt that nobody was asked about."""
    record, failed = Performer.record, Leaving.failed

    def first(performer: Performer, effect: RecordEffect) -> Any:
        if effect.last.t != "outcome":
            return record(performer, effect)
        monkeypatch.setattr(Performer, "record", record)
        raise MemoryError("injected")

    def second(leaving: Leaving, error: BaseException) -> BaseException:
        monkeypatch.setattr(Leaving, "failed", failed)
        raise MemoryError("injected again")

    monkeypatch.setattr(Performer, "record", first)
    monkeypatch.setattr(Leaving, "failed", second)
    paying = Paying(0)
    with perdure.open("memory://") as store:
        with pytest.raises(perdure.PerdureError, match="MemoryError: injected again"):
            store.run(paying.function, "a")
        assert paying.run(store) == ["in doubt", 2]


def test_an_error_whose_record_is_interrupted_is_told_as_what_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A moment's MemoryError while a step's ValueError was made a record: the function got a
    CallFailed in its place, for good."""
    whole = failures._whole_record
    calls = count(1)

    def interrupted(error: BaseException, holders: Any) -> dict[str, Any]:
        if next(calls) == 1:
            raise MemoryError("injected")
        return whole(error, holders)

    monkeypatch.setattr(failures, "_whole_record", interrupted)

    @perdure.step
    def refuse() -> None:
        raise ValueError("no")

    @perdure.agent(dict)
    def act(run: perdure.Run[dict[str, Any]]) -> str:
        try:
            refuse()
        except ValueError as error:
            return f"it said {error}"
        return ""

    with perdure.open("memory://") as store:
        assert store.run(act, "a") == "it said no"
