"""fork, checkpoint, undo, redo, rollback; and runs: settle and cancel."""

import json

import pytest

import perdure
from perdure import RunFailed
from perdure.testing import run_until_waiting
from tests.cli.operator import Operator, failing, support


def test_fork_checkpoint_undo_redo_rollback(operator: Operator) -> None:
    assert "state of commit 3" in operator.see("fork", "ticket-42", "again", "--at", "3")
    assert operator.json("state", "ticket-42", "-b", "again")["state"]["status"] == "pending"
    assert "closed" in operator.see("undo", "ticket-42")
    assert operator.json("state", "ticket-42")["state"]["status"] == "pending"
    operator.see("redo", "ticket-42")
    assert operator.json("state", "ticket-42")["state"]["status"] == "closed"
    point = operator.json("checkpoint", "ticket-42", "now", "--dependency", "rich")
    assert list(point["dependencies"]) == ["rich"]
    shown = operator.see("rollback", "ticket-42", "before refund")
    assert "refund#1(invoice='i-7', cents=4200)" in shown
    assert "invoice" not in operator.json("state", "ticket-42")["state"]
    moved = operator.json("rollback", "ticket-42", "now")
    assert moved["commit"]["cause"]["kind"] == "rollback"
    assert operator.json("verify", "ticket-42")["ok"]


def test_a_name_that_is_taken_is_a_conflict(operator: Operator) -> None:
    for words in (["fork", "ticket-42", "what-if"], ["checkpoint", "ticket-42", "gone"]):
        code, said = operator.refused(*words)
        assert code == 4
        assert "taken" in said


def test_an_unfinished_run_is_in_the_way_until_it_is_said_to_end(operator: Operator) -> None:
    code, said = operator.refused("undo", "ticket-43")
    assert code == 4
    assert "--cancel-run" in said
    operator.see("undo", "ticket-43", "--cancel-run")
    assert operator.json("runs", "ticket-43")[0]["status"] == "cancelled"


def test_what_a_run_started_ends_with_it_where_it_is_said_to_end(operator: Operator) -> None:
    @perdure.agent(dict, name="waiting")
    def waiting(run: perdure.Run[dict]) -> str:
        return str(run.wait_for("word"))

    @perdure.agent(dict, name="sending")
    def sending(run: perdure.Run[dict]) -> str:
        return run.options(key="k").start(waiting, "ticket-45").result()

    with perdure.open(operator.path) as store:
        store.agent("ticket-44").save({"n": 1}, "opened")
        run_until_waiting(store, sending, "ticket-44")
        run_until_waiting(store.options(key="k"), waiting, "ticket-45")
    operator.see("rollback", "ticket-44", "1", "--cancel-run")
    with perdure.open(operator.path) as store, pytest.raises(RunFailed, match="with ticket-44/"):
        run_until_waiting(store.options(key="k"), waiting, "ticket-45")


def test_a_name_that_cannot_be_is_a_wrong_command_line(operator: Operator) -> None:
    code, said = operator.refused("fork", "ticket-42", "\ud800", "--json")
    assert code == 2
    assert "Traceback" not in said


def test_nothing_to_undo(operator: Operator) -> None:
    with perdure.open(operator.path) as store:
        store.agent("new").save({}, "made")
    assert operator.refused("undo", "new")[0] == 3
    assert operator.refused("redo", "new")[0] == 3


def test_undo_goes_not_behind_a_migration(operator: Operator) -> None:
    """The command line knows no migration, and the log says of which version each commit is: it put
    euros among cents."""
    one = perdure.Schema(dict, id="cart", version=1)
    two = perdure.Schema(
        dict, id="cart", version=2, migrations={1: lambda old: {k: v * 100 for k, v in old.items()}}
    )
    with perdure.open(operator.path) as store:
        store.agent("cart", one, initial={"a": 1, "b": 2}).update(lambda draft: draft.pop("a"))
        store.agent("cart", two).update(lambda draft: draft.update(c=300))
    operator.see("undo", "cart")
    code, said = operator.refused("undo", "cart")
    assert code == 4
    assert "cannot undo commit 2: it is of version 1 of the schema 'cart'" in said
    assert "rollback cart 1`" in said
    assert operator.json("state", "cart")["state"] == {"b": 200}
    operator.see("rollback", "cart", "1")
    assert operator.json("state", "cart")["state"] == {"a": 1, "b": 2}


def test_settle_done_and_the_run_goes_on(operator: Operator) -> None:
    shown = operator.see("runs", "--unfinished")
    assert "is in doubt" in shown
    result = '{"receipt": "by-hand", "at": {"$datetime": "2026-08-12T14:03:22+00:00"}}'
    operator.see("settle", "ticket-43", "refund#1", "--done", result, "--by", "ann")
    with perdure.open(operator.path) as store:
        assert store.run(support, "ticket-43", "Where is my money?") == "done"
    effect = operator.json("effects", "ticket-43")[1]
    assert effect["state"] == "done"
    assert effect["attempts"] == 1
    assert effect["result"] == json.loads(result)
    assert "says ann" in operator.see("log", "ticket-43")


def test_settle_not_done_and_it_is_called_again(operator: Operator) -> None:
    operator.see("settle", "ticket-43", "refund#1", "--not-done")
    with perdure.open(operator.path) as store:
        assert store.run(support, "ticket-43", "Where is my money?") == "done"
    assert operator.json("effects", "ticket-43")[1]["attempts"] == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["refund#1"], 2, "--done JSON, or --not-done"),
        (["refund#1", "--done", "1", "--not-done"], 2, "either"),
        (["refund#1", "--done", "{bad"], 2, "not JSON"),
        (["refund#1", "--done", '{"$decimal": []}'], 2, "cannot hold"),
        (["refund#2", "--not-done"], 3, "in doubt: refund#1"),
        (["lookup#1", "--not-done"], 3, "in doubt: refund#1"),
        (["lookup#1", "--not-done", "--run", "ticket-43/support/main"], 4, "settled"),
        (["refund#1", "--not-done", "--run", "ticket-43/support/mian"], 3, "did you mean"),
    ],
)
def test_settle_refuses(operator: Operator, words: list[str], code: int, said: str) -> None:
    found, stderr = operator.refused("settle", "ticket-43", *words)
    assert (found, said in stderr) == (code, True), stderr


def test_settle_a_call_that_several_runs_have(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = perdure.Store.runs
    monkeypatch.setattr(perdure.Store, "runs", lambda *args, **more: real(*args, **more) * 2)
    code, said = operator.refused("settle", "ticket-43", "refund#1", "--not-done")
    assert code == 4
    assert "--run ticket-43/support/main" in said
    operator.see("settle", "ticket-43", "refund#1", "--not-done", "--run", "ticket-43/support/main")


def test_run_show_and_cancel(operator: Operator) -> None:
    shown = operator.see("run", "show", "ticket-43/support/main")
    assert "in doubt" in shown
    assert "lookup#1(customer='c-8')" in shown
    said = operator.json("run", "show", "ticket-42/support/main")
    assert said["status"] == "done"
    assert said["result"] == "done"
    assert [effect["place"] for effect in said["effects"]] == ["lookup#1", "refund#1"]
    code, stderr = operator.refused("run", "show", "ticket-43/support/mian")
    assert code == 3
    assert "did you mean ticket-43/support/main" in stderr
    operator.see("cancel", "ticket-43/support/main", "--why", "wrong customer")
    assert "wrong customer" in operator.see("run", "show", "ticket-43/support/main")
    assert operator.refused("cancel", "ticket-43/support/main")[0] == 4
    assert "--not-done" not in operator.see("runs")


def test_a_run_that_needs_attention_and_one_that_failed(operator: Operator) -> None:
    with perdure.open(operator.path) as store:
        with pytest.raises(perdure.NeedsAttention):
            store.run(support, "ticket-43", "Where is my money?")
        with pytest.raises(ValueError, match="no such"):
            store.run(failing, "ticket-42")
    shown = operator.see("runs")
    assert "needs attention" in shown
    assert "failed" in shown
    assert "ValueError: no such" in operator.see("run", "show", "ticket-42/failing/main")
    assert operator.json("runs", "-u")[0]["status"] == "needs_attention"
    assert "run needs attention" in operator.see("log", "ticket-43")


def test_a_call_that_a_living_executor_is_at_is_not_in_doubt(operator: Operator) -> None:
    @perdure.tool
    def look(path: str) -> str:
        assert "under way" in operator.see("run", "show", "ticket-42/busy/main")
        assert "in doubt" not in operator.see("show", "ticket-42")
        assert operator.json("effects", "ticket-42")[-1]["state"] == "under way"
        assert operator.refused("settle", "ticket-42", "look#1", "--not-done")[0] == 4
        assert operator.refused("undo", "ticket-42", "--cancel-run")[0] == 4
        return path

    @perdure.agent(dict, name="busy")
    def busy(run: perdure.Run[dict]) -> str:
        return look("x")

    with perdure.open(operator.path) as store:
        assert store.run(busy, "ticket-42") == "x"
