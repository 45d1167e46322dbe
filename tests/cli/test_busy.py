"""Commands on agents at work: on a head that moves, and on a run that a living executor has."""

import threading

import pytest

import perdure
from perdure.errors import Hint
from tests.cli.operator import Operator


def test_writes_on_a_busy_agent_are_tried_again(operator: Operator) -> None:
    """Story: `checkpoint` on an agent at work failed, with advice for Python programs."""
    stop = threading.Event()

    def write() -> None:
        with perdure.open(operator.path, durability="os") as store:
            number = 0
            while not stop.is_set():
                number += 1
                store.agent("ticket-42").update(lambda draft: draft.update(n=number))  # noqa: B023
                stop.wait(0.01)  # nobody wins against a loop without any pause

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            operator.see("checkpoint", "ticket-42", f"point-{number}")
            operator.see("fork", "ticket-42", f"fork-{number}")
    finally:
        stop.set()
        writer.join()
    assert len(operator.json("branches", "ticket-42")["checkpoints"]) == 6


def test_a_head_that_never_stands_still(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(*args: object, **more: object) -> None:
        raise perdure.Conflict("expected the head at commit 1, it is at 2", hint=Hint.HEAD_MOVED)

    monkeypatch.setattr(perdure.Agent, "undo", moved)
    code, said = operator.refused("undo", "ticket-42")
    assert code == 4
    assert "it is being written to; try again" in said
    assert "agent." not in said


def test_a_run_that_is_executing_is_named_with_a_way_to_end_it(operator: Operator) -> None:
    """Story: `undo` said "say --cancel-run", and with it that an executor is in the way: neither
    led anywhere."""
    listed = f"one on this machine that has the store open (`lsof {operator.path}` lists them)"

    @perdure.tool
    def look(path: str) -> str:
        tried = (
            ["undo", "ticket-42"],
            ["undo", "ticket-42", "--cancel-run"],
            ["rollback", "ticket-42", "3"],
            ["checkpoint", "ticket-42", "x"],
            ["settle", "ticket-42", "look#1", "--not-done"],
        )
        for words in tried:
            code, said = operator.refused(*words)
            assert code == 4
            assert f"end its process first, {listed}" in said
            assert "--cancel-run" not in said
            assert "signal" not in said
        code, said = operator.refused("settle", "ticket-42", "look#2", "--not-done")
        assert "nothing is in doubt" in said
        return path

    @perdure.agent(dict, name="busy")
    def busy(run: perdure.Run[dict]) -> str:
        return look("x")

    with perdure.open(operator.path) as store:
        assert store.run(busy, "ticket-42") == "x"


def test_a_run_that_is_executing_is_asked_to_end_and_ends_at_its_next_step(
    operator: Operator,
) -> None:
    """Story: `cancel` refused a run that an executor had: one had to find and end its process."""
    made: list[str] = []

    @perdure.tool
    def look(path: str) -> str:
        made.append(path)
        said = operator.see("cancel", "ticket-42/busy/main", "--why", "wrong one")
        assert "is asked to end: executor " in said
        assert "leaves its function at its next step" in said
        answer = operator.json("cancel", "ticket-42/busy/main")
        assert (answer["status"], answer["why"]["situation"]) == ("running", "executing")
        assert answer["why"]["asked_to_end"]
        why = operator.see("why", "ticket-42/busy/main")
        assert "it was asked to end, and leaves its function at its next step" in why
        assert "or end it" not in why
        return path

    @perdure.agent(dict, name="busy")
    def busy(run: perdure.Run[dict]) -> str:
        return look("x") + look("y")

    with perdure.open(operator.path) as store, pytest.raises(perdure.PerdureError):
        store.run(busy, "ticket-42")
    assert made == ["x"]
    assert "it was cancelled: wrong one" in operator.see("why", "ticket-42/busy/main")
