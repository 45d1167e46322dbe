"""What an exception left behind in a run once."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure.engine.writing import RunWriter
from tests.faults.checking import State
from tests.faults.injecting import Helper, TimeLimit
from tests.faults.run_scenes import paying


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
        if any(record["t"] == "intent" for item in flight.items for record in item.records):
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
