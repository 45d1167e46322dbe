"""Operating runs: finding them, telling them what they wait for, ending and resuming them."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any, Literal
from unittest.mock import Mock

import pytest
from typing_extensions import TypedDict

import perdure
from perdure.cli.failures import UsageError
from perdure.cli.naming import age, value_of
from tests.cli.operator import Operator, failing, support

BOUND_S = 30.0


@perdure.agent(dict)
def asking(run: Any) -> str:
    run.progress("asking a person", 0.5)
    if run.ask("Refund 42 EUR?"):
        return str(run.wait_for("paid"))
    return "no"


@perdure.agent(dict)
def choosing(run: Any) -> str:
    return str(run.ask("Which \x1b[31mcolour?", schema=Literal["red", "blue"]))


@perdure.agent(dict)
def telling(run: Any) -> str:
    return str(run.ask("What is the number?", schema=str))


class Decision(TypedDict, total=False):
    approve: bool


@perdure.agent(dict)
def deciding(run: Any) -> str:
    return str(run.ask("Refund 42 EUR?", schema=Decision))


def until(so: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND_S
    while not so():
        assert time.monotonic() < end
        time.sleep(0.01)


def work(operator: Operator, run: str, till: str) -> None:
    """A worker that ends once the run has got as far as this."""
    with perdure.open(operator.path) as store:
        worker = perdure.Worker(store, [asking, choosing, telling, deciding])
        thread = Thread(target=lambda: worker.run(signals=False))
        thread.start()
        try:
            until(lambda: till in (store.handle(run).status, store.handle(run).info.waits))
        finally:
            worker.stop()
            thread.join()


@pytest.fixture
def waiting(tmp_path: Path) -> Operator:
    operator = Operator(tmp_path / "agents.db")
    with perdure.open(operator.path) as store:
        store.start(asking, "t")
    work(operator, "t/asking/main", "waiting")
    return operator


def test_a_question_is_answered_and_a_signal_sent_to_the_end(waiting: Operator) -> None:
    assert "waiting" in waiting.see("runs")
    assert "for an answer to 'Refund 42 EUR?'" in waiting.see("runs")
    shown = waiting.see("run", "show", "t")
    for words in (
        "progress",
        "asking a person 50%",
        "wants yes or no",
        "answer t/asking/main VALUE",
    ):
        assert words in shown
    assert "Refund 42 EUR?  wants yes or no" in waiting.see("answer", "t")
    (asked,) = waiting.json("answer", "t")
    assert asked["place"] == "ask#1"
    command = f"answer t/asking/main VALUE --to '{asked['name']}'"
    for line in ("answer t", "run show t", "why t", "runs"):
        assert command in waiting.see(*line.split())
    code, stderr = waiting.refused("answer", "t", "yes", "--to", "ask#1 000000000000")
    assert code == 4
    assert "asks nothing at ask#1 000000000000" in stderr
    said = waiting.see("answer", "t", "yes", "--by", "ann")
    assert "was answered: True" in said
    assert "nobody went on with it" in said
    assert "perdure worker MODULE:asking" in said
    code, stderr = waiting.refused("answer", "t", "no")
    assert code == 4
    assert "asks nothing" in stderr
    code, stderr = waiting.refused("answer", "t", "no", "--to", asked["name"])
    assert code == 4
    assert "was answered already" in stderr
    work(waiting, "t/asking/main", "signal 'paid'")
    code, stderr = waiting.refused("answer", "t", "no", "--to", asked["name"])
    assert code == 4
    assert "the question is over" in stderr
    answer = waiting.json("signal", "t", "paid", "by bank", "--key", "k")
    assert (answer["fresh"], answer["why"]["situation"]) == (True, "due")
    assert "before" in waiting.see("signal", "t", "paid", "again", "--key", "k")
    assert waiting.refused("signal", "t", "paid", "--key", "")[0] == 2  # a variable without value
    shown = waiting.see("run", "show", "t")
    assert "signal paid" in shown
    assert "→ True by ann" in shown
    work(waiting, "t/asking/main", "done")
    assert waiting.json("run", "show", "t")["result"] == "by bank"
    code, stderr = waiting.refused("signal", "t", "paid")
    assert code == 4
    assert "finished" in waiting.json("why", "t")["situation"]


def test_answers_are_read_by_the_type_that_is_asked_for(tmp_path: Path) -> None:
    operator = Operator(tmp_path / "agents.db")
    with perdure.open(operator.path) as store:
        store.start(choosing, "a")
        store.start(telling, "b")
    work(operator, "a/choosing/main", "waiting")
    work(operator, "b/telling/main", "waiting")
    shown = operator.see("answer", "a")
    assert "wants 'red' or 'blue'" in shown
    assert "\x1b" not in shown + operator.see("run", "show", "a") + operator.see("why", "a")
    assert operator.refused("answer", "a", "green")[0] == 8
    assert operator.json("answer", "a", "red")["answer"] == "red"
    assert operator.json("answer", "b", "42")["answer"] == "42"
    assert operator.refused("answer", "b", "x", "--to", "ask#9")[0] == 4


def test_a_misspelt_answer_is_none(operator: Operator) -> None:
    """`perdure answer` took `{"aprove": false}` with exit code 0, and the run got what an answer
    without a word gives."""
    with perdure.open(operator.path) as store:
        store.start(deciding, "a")
    work(operator, "a/deciding/main", "waiting")
    code, stderr = operator.refused("answer", "a", '{"aprove": false}')
    assert code == 8
    assert "declares no such field: answer.aprove" in stderr and "there are: approve" in stderr
    operator.json("answer", "a", '{"approve": false}')
    work(operator, "a/deciding/main", "done")
    assert operator.json("run", "show", "a")["result"] == "{'approve': False}"


def test_runs_are_filtered(operator: Operator) -> None:
    with perdure.open(operator.path) as store:
        with pytest.raises(ValueError, match="no such"):
            store.run(failing, "ticket-42")
        store.options(queue="mail").start(asking, "new")

    def found(*words: str) -> list[str]:
        return [run["id"] for run in operator.json("runs", *words)]

    assert found("--status", "failed") == found("--failed") == ["ticket-42/failing/main"]
    assert found("--status", "needs-attention") == []
    assert found("--status", "done", "--status", "running", "--agent", "ticket-43") == [
        "ticket-43/support/main"
    ]
    assert found("--queue", "mail") == found("new") == ["new/asking/main"]
    assert found("--function", "support", "-n", "1") == ["ticket-43/support/main"]
    assert found("--older", "1d") == []
    assert len(found("--newer", "1d")) == 4
    assert found("-r") == found()[::-1]
    assert found("--unfinished", "--limit", "1") == ["new/asking/main"]
    assert "not begun" in operator.see("runs", "new")
    assert "older ones; -n 0 shows all" in operator.see("runs", "-n", "1")
    assert operator.see("runs", "--queue", "none") == "no such runs\n"
    assert operator.refused("runs", "--status", "runing")[0] == 2
    assert operator.refused("runs", "--older", "yesterday")[0] == 2


def test_many_runs_are_ended_by_a_filter_once_somebody_agrees(operator: Operator) -> None:
    with perdure.open(operator.path) as store:
        for number in range(3):
            store.start(asking, f"agent-{number}")
    work(operator, "agent-2/asking/main", "waiting")
    code, said = operator.refused("cancel", "--all", "--status", "waiting")
    assert code == 2
    assert "would cancel" in said
    assert "--yes" in said
    assert operator.refused("cancel")[0] == 2
    assert operator.refused("cancel", "ticket-43", "--all")[0] == 2
    done = operator.json("cancel", "--all", "--function", "asking", "--agent", "agent-0", "-y")
    assert [one["run"] for one in done] == ["agent-0/asking/main"]
    operator.see("cancel", "agent-1", "agent-2", "--why", "enough")
    assert "enough" in operator.see("why", "agent-1")
    assert operator.json("cancel", "--all", "--status", "waiting", "--yes") == []


@pytest.mark.parametrize("when", ["before", "behind"])
def test_one_run_that_fails_does_not_keep_the_others_from_their_end(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """An agent was purged between the look for what to cancel and its turn; or the log of one was
    damaged, so that nobody could say why it waits. `perdure cancel --all` stopped there."""
    with perdure.open(operator.path) as store:
        for number in range(3):
            store.start(asking, f"agent-{number}")
    found = perdure.Store.handle

    def handle(store: perdure.Store, run_id: str, *more: Any) -> Any:
        made = found(store, run_id, *more)
        if run_id == "agent-0/asking/main":
            gone = perdure.NotFound("is gone", target="agent 'agent-0'")
            if when == "before":
                raise gone
            monkeypatch.setattr(made, "cancel", Mock())  # as of one that is executed
            monkeypatch.setattr(made, "why", Mock(side_effect=gone))
        return made

    with monkeypatch.context() as patched:
        patched.setattr(perdure.Store, "handle", handle)
        done = operator.type("cancel", "--all", "--function", "asking", "--yes")
    assert done.exit_code == 3 and "is gone" in done.stderr
    assert "it was cancelled" in operator.see("why", "agent-1")
    assert "it was cancelled" in operator.see("why", "agent-2")


def test_one_that_cannot_be_ended_does_not_keep_the_others(operator: Operator) -> None:
    result = operator.type("cancel", "ticket-42", "ticket-43")
    assert result.exit_code == 4
    assert "run ticket-43/support/main is cancelled" in result.stdout
    assert "ticket-42/support/main" in result.stderr


def test_a_stopped_run_is_resumed(operator: Operator) -> None:
    with perdure.open(operator.path) as store, pytest.raises(perdure.NeedsAttention):
        store.run(support, "ticket-43", "Where is my money?")
    said = operator.json("why", "ticket-43")
    assert said["situation"] == "stopped"
    assert any(way["command"][:1] == ["settle"] for way in said["ways"])
    shown = operator.see("resume", "ticket-43")
    assert "gone on with" in shown
    assert f"perdure worker MODULE:support --store {operator.path}" in shown
    assert operator.refused("resume", "ticket-43")[0] == 4
    assert operator.json("resume", "--all", "--yes") == []


def test_a_run_that_was_asked_for_is_ended_before_it_begins(operator: Operator) -> None:
    with perdure.open(operator.path) as store:
        store.start(asking, "new")
    assert "has not begun" in operator.see("why", "new")
    assert "nothing is recorded of it yet" in operator.see("run", "show", "new")
    assert "is cancelled" in operator.see("cancel", "new")
    assert "it was cancelled" in operator.see("why", "new")


def test_a_run_is_set_back_to_a_step_and_another_forked_from_it(operator: Operator) -> None:
    forked = operator.json("run", "fork", "ticket-42", "again", "--from", "refund#1")
    assert (forked["branch"], forked["status"]) == ("again", "pending")
    assert operator.json("retry", "ticket-42/support/main", "--from", "lookup#1")["run"]
    assert operator.refused("retry", "ticket-43", "--from", "lookup#1")[0] == 4
    words = ["retry", "ticket-42/support/main", "--from", "lookup#1", "--effects", "x"]
    assert operator.refused(*words)[0] == 2


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("42", 42),
        ('"42"', "42"),
        ("ann", "ann"),
        ("by bank, today", "by bank, today"),
        ('{"a": [1]}', {"a": [1]}),
        ("null", None),
        ("true", True),
    ],
)
def test_a_value_is_json_or_plain_words(words: str, value: object) -> None:
    assert value_of("VALUE", words) == value


@pytest.mark.parametrize("words", ["True", "None", "{bad", "[1", "1x", "-", "", "'x'"])
def test_what_could_be_meant_otherwise_is_refused(words: str) -> None:
    with pytest.raises(UsageError, match="not JSON"):
        value_of("VALUE", words)


def test_ages() -> None:
    seconds = {"90s": 90, "15m": 900, "1h30m": 5400, "2 h": 7200, "1.5d": 129_600, "1w": 604_800}
    for words, wanted in seconds.items():
        found = age("--older", words)
        assert found is not None
        assert found.total_seconds() == wanted
    for words in ("", "5", "h", "5 years", "-5m", "5mm"):
        with pytest.raises(UsageError):
            age("--older", words)


def test_why_answers_for_each_run_of_the_store(operator: Operator) -> None:
    for run in operator.json("runs"):
        said = json.loads(operator.see("why", run["id"], "--json"))
        assert said["ways"]
        assert operator.see("why", run["id"])
