"""`perdure trim`: old history goes, and every other command says so where it meets that."""

from __future__ import annotations

import perdure
from perdure.integrations.langgraph import PerdureSaver
from tests.cli.operator import Operator
from tests.integrations.langgraph.checkpoints import config, get, line


@perdure.step
def looked(number: int) -> int:
    return number


@perdure.tool(on_crash="fail")
def charged(number: int) -> int:
    return number


@perdure.agent(dict)
def charging(run: perdure.Run[dict[str, object]], number: int) -> int:
    seen = looked(number)
    with run.edit("noted") as draft:
        draft["n"] = seen
    return charged(number) + charged(number)


def test_a_ledger_does_not_say_that_there_were_no_calls(operator: Operator) -> None:
    """`effects` said "no tool calls" of an agent that had made two, before its history was removed;
    and by `run show` the run had done nothing between its begin and its end."""
    with perdure.open(operator.path) as store:
        assert store.run(charging, "spender", 7) == 14
        store.options(key="later").run(charging, "spender", 8)
    (run, _) = operator.json("runs", "spender")
    operator.see("trim", "spender", "--before", str(run["ended"]))
    said = operator.see("effects", "spender")
    assert said.count("removed by retention") == 2 and said.count("done") == 2
    states = [(one["place"], one["state"]) for one in operator.json("effects", "spender")]
    assert states == [
        ("charged#1", "removed"),
        ("charged#2", "removed"),
        ("charged#1", "done"),
        ("charged#2", "done"),
    ]
    shown = operator.see("run", "show", run["id"])
    for place in ("looked#1", "charged#1", "charged#2"):
        assert shown.count(place) == 1
    assert shown.count("removed by retention") >= 3
    assert "finished" in shown and "→ 14" in shown


def test_what_went_is_told_by_each_command(operator: Operator) -> None:
    state = operator.json("state", "ticket-42")["state"]
    said = operator.see("trim", "ticket-42", "--older-than", "0s")
    assert "emptied" in said and "earlier states kept" in said
    log = operator.see("log", "ticket-42", "-n", "0")
    assert log.count("removed by retention") > 3
    assert "message added" in log
    commits = operator.json("log", "ticket-42")
    assert [one for one in commits if one.get("trimmed") and (one["delta"] or one["records"])] == []
    assert operator.json("state", "ticket-42")["state"] == state
    assert operator.see("state", "ticket-42", "--at", "before refund")
    assert "removed by retention" in operator.refused("state", "ticket-42", "--at", "3")[1]
    assert "removed by retention" in operator.refused("diff", "ticket-42", "3", "main")[1]
    assert "emptied by retention" in operator.see("verify", "ticket-42")
    (agent,) = operator.json("verify", "ticket-42")["agents"]
    assert agent["trimmed"] > 3
    assert "nothing to remove" in operator.see("trim", "ticket-42", "--older-than", "0s")
    rolled = operator.see("rollback", "ticket-42", "before refund")
    assert "is not known" in rolled
    for command in ("show", "branches", "stats", "runs", "effects"):
        assert operator.see(command, "ticket-42")


def test_all_agents_by_age_and_what_holds(operator: Operator) -> None:
    assert operator.json("trim", "--older-than", "1d") == {
        "trimmed": [],
        "kept": [],
        "shrunk": False,
    }
    found = operator.json("trim", "--older-than", "0s", "--shrink")
    assert "ticket-42" in [one["agent"] for one in found["trimmed"]]
    # The run of the other one has a call in doubt, and holds what it needs.
    assert [one["state"] for one in operator.json("effects", "ticket-43")].count("in doubt") == 1
    assert found["shrunk"]
    assert operator.json("verify")["ok"]


def test_what_is_not_said_right_removes_nothing(operator: Operator) -> None:
    for words, told in (
        (["ticket-42"], "give either --before"),
        (["--before", "3"], "name the agent"),
        (["ticket-42", "--before", "3", "--older-than", "1d"], "either"),
        (["ticket-42", "--older-than", "soon"], "a length of time"),
        (["ticket-42", "--before", "nowhere"], "there are"),
        (["ticket-44", "--before", "3"], "no such agent"),
    ):
        assert told in operator.refused("trim", *words)[1]
    assert "emptied" not in operator.see("verify", "ticket-42")


def test_threads_keep_their_latest_checkpoints(operator: Operator) -> None:
    with perdure.open(operator.path) as store:
        saver = PerdureSaver(store)
        line(saver, 30)
        line(saver, 5, config("copied"))
        saver.copy_thread("copied", "copy")
        before = get(saver)
    found = operator.json("trim", "--older-than", "0s")
    assert {"t", "ticket-42"} <= {one["agent"] for one in found["trimmed"]}
    assert [one["agent"] for one in found["kept"]] == ["copied"]
    assert "'copy'" in operator.refused("trim", "copied", "--before", "3")[1]
    with perdure.open(operator.path) as store:
        assert get(PerdureSaver(store)) == before
