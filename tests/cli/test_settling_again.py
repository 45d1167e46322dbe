"""What a person said of a call in doubt, and how it is put right."""

import pytest

import perdure
from tests.cli.operator import Operator, PowerLoss

power = {"lost": ""}


@perdure.tool
def wire(cents: int) -> str:
    if power["lost"] == "wire":
        raise PowerLoss
    return "receipt"


@perdure.tool
def mail(receipt: str) -> str:
    if power["lost"] == "mail":
        raise PowerLoss
    return "sent"


@perdure.agent(dict)
def paying(run: perdure.Run[dict]) -> str:
    return mail(wire(5)) + wire(6)


def pay(operator: Operator, *, lost: str = "") -> str:
    power["lost"] = lost
    try:
        with perdure.open(operator.path) as store:
            return store.run(paying, "alice smith")
    finally:
        power["lost"] = ""


def test_a_result_that_was_mistyped_is_settled_again(operator: Operator) -> None:
    """Story: `settle … --done 5` on a tool that returns text was a typing error that nobody could
    take back: the run stopped at it for good, and settling again was refused."""
    with pytest.raises(PowerLoss):
        pay(operator, lost="wire")
    assert "with the result 5" in operator.see("settle", "alice smith", "wire#1", "--done", "5")
    with pytest.raises(perdure.NeedsAttention, match="settle it again") as stopped:
        pay(operator)
    assert "perdure settle 'alice smith' 'wire#1' --done JSON" in stopped.value.hint
    shown = operator.see("runs")
    assert f"`perdure --store {operator.path} settle 'alice smith' 'wire#1' --done JSON`" in shown
    operator.see("settle", "alice smith", "wire#1", "--done", '"by hand"')
    assert operator.json("effects", "alice smith")[0]["result"] == "by hand"
    with pytest.raises(PowerLoss):  # it goes past the call with that
        pay(operator, lost="mail")
    code, said = operator.refused("settle", "alice smith", "wire#1", "--not-done")
    assert (code, "the run has continued with that" in said) == (4, True)
    assert operator.json("effects", "alice smith")[0]["result"] == "by hand"
    operator.see("settle", "alice smith", "mail#1", "--not-done")
    assert pay(operator) == "sentreceipt"
    for words in (["--done", '"x"'], ["--not-done", "--run", "alice smith/paying/main"]):
        assert operator.refused("settle", "alice smith", "mail#1", *words)[0] in (3, 4)
    assert operator.json("verify", "alice smith")["ok"]


def test_not_done_may_become_done(operator: Operator) -> None:
    operator.see("settle", "ticket-43", "refund#1", "--not-done")
    operator.see("settle", "ticket-43", "refund#1", "--done", '{"receipt": "r-9"}')
    assert operator.json("effects", "ticket-43")[1]["result"] == {"receipt": "r-9"}


def test_a_run_that_nobody_executes_says_what_to_do(operator: Operator) -> None:
    """Story: after `settle` the run was "pending", and nothing said what for."""
    operator.see("settle", "ticket-43", "refund#1", "--not-done")
    for words in (["runs"], ["run", "show", "ticket-43"], ["show", "ticket-43"]):
        shown = operator.see(*words)
        assert "is ready to continue, but not resumed: no living worker serves" in shown
        assert "run its program again, or start a worker that serves it" in shown
        assert "or end it: perdure cancel" in shown
    assert "no executor has it" in operator.see("ls")


def test_a_repeated_call_is_told_once(operator: Operator) -> None:
    """Story: `rollback` listed a call that was attempted twice as two calls."""
    with pytest.raises(PowerLoss):
        pay(operator, lost="wire")
    operator.see("settle", "alice smith", "wire#1", "--not-done")
    pay(operator)
    assert "calls wire#1, attempt 2" in operator.see("log", "alice smith", "-n", "0")
    shown = operator.see("rollback", "alice smith", "1")
    assert shown.count("wire#1(") == 1
    assert "wire#1(cents=5)  2 attempts" in shown
    assert "3 tool calls" in shown


def test_an_agents_name_stands_for_its_only_run(operator: Operator) -> None:
    assert operator.json("run", "show", "ticket-42")["id"] == "ticket-42/support/main"
    operator.see("cancel", "ticket-43")
    assert operator.json("runs", "ticket-43")[0]["status"] == "cancelled"
    with pytest.raises(PowerLoss):
        pay(operator, lost="wire")
    assert operator.json("run", "show", "alice smith")["status"] == "running"


def test_where_a_fork_is_in_doubt_too_each_command_says_of_which_run(operator: Operator) -> None:
    """`runs` printed one and the same command for both, which is refused: "2 runs have such a
    call"."""
    with pytest.raises(PowerLoss):
        pay(operator, lost="mail")
    with perdure.open(operator.path) as store:
        fork = store.handle("alice smith/paying/main").fork("wire#1", branch="b", effects="live")
        power["lost"] = "mail"
        try:
            with pytest.raises(PowerLoss):
                store.options(key=fork.info.key).run(paying, "alice smith")
        finally:
            power["lost"] = ""
        runs = [run.id for run in store.runs("alice smith")]
    shown = operator.see("runs")
    for run in runs:
        assert f"settle 'alice smith' 'mail#1' --run '{run}' --done JSON" in shown
        operator.see("settle", "alice smith", "mail#1", "--run", run, "--done", '"sent"')


def test_a_call_in_doubt_of_a_run_that_was_cancelled(operator: Operator) -> None:
    """Story: `effects` said "in doubt" of it for ever, and `settle` that there is no such call."""
    operator.see("cancel", "ticket-43/support/main")
    assert operator.json("effects", "ticket-43")[1]["state"] == "in doubt"
    shown = operator.see("settle", "ticket-43", "refund#1", "--not-done")
    assert "was not done" in shown and "again" not in shown
    assert operator.json("effects", "ticket-43")[1]["state"] == "not done"
    code, said = operator.refused("settle", "ticket-43", "refund#1", "--not-done")
    assert (code, "nothing is in doubt" in said) == (3, True)


def test_an_unfinished_run_is_meant_before_one_that_has_ended(operator: Operator) -> None:
    with pytest.raises(PowerLoss):
        pay(operator, lost="wire")
    operator.see("cancel", "alice smith/paying/main")
    power["lost"] = "wire"
    with perdure.open(operator.path) as store, pytest.raises(PowerLoss):
        store.options(key="second").run(paying, "alice smith")
    power["lost"] = ""
    words = ("settle", "alice smith", "wire#1", "--not-done")
    assert operator.json(*words)["run"] == "alice smith/paying/second"
    assert operator.json(*words, "--run", "alice smith/paying/main")["run"].endswith("main")
    states = [one["state"] for one in operator.json("effects", "alice smith")]
    assert states == ["not done", "not done"]
