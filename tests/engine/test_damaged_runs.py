"""A run meets a commit of its own log that cannot be read: it needs a person, who can end it."""

from __future__ import annotations

import re
from typing import Any

import pytest

import perdure
from perdure import Corrupt, NeedsAttention
from perdure.store import Store
from tests.cli.operator import Operator
from tests.damaging import Vandal
from tests.engine.conftest import Place
from tests.engine.waits import go, until
from tests.engine.working import working

KINDS = [
    "a delta that does not fit",
    "a record that is no map",
    "a byte of the payload",
    "no header",
]

calls: list[int] = []


@perdure.tool
def pay(number: int) -> int:
    calls.append(number)
    return number


@perdure.agent(dict)
def paying(run: perdure.Run[dict[str, Any]]) -> int:
    pay(1)
    with run.edit("paid once") as draft:
        draft["n"] = 1
    run.wait_for("go")
    return pay(2)


def met(place: Place, kind: str) -> tuple[Store, perdure.RunHandle[Any], int]:
    """A run that waited, met the damage when its signal came, and the last good commit."""
    calls.clear()
    store = place.open()
    assert go(store, paying) is None
    last = store.agent("a").seq
    Vandal(store, "a").damage(kind)
    (row,) = store.runs("a")
    handle = store.handle(row.id)
    handle.signal("go")
    with pytest.raises(Corrupt) as caught:
        go(store, paying)
    assert (caught.value.seq, caught.value.before) == (last + 1, last)
    return store, handle, last


def check_told(handle: perdure.RunHandle[Any], last: int) -> None:
    """I8: it is noted, in whatever is asked, and with the way out."""
    back = f"`perdure rollback a {last} --cancel-run`"
    assert handle.status == "needs_attention"
    assert back in (handle.info.problem or "")
    with pytest.raises(NeedsAttention, match=f"commit {last + 1}"):
        handle.result(timeout=0)
    assert back in str(handle.why())


@pytest.mark.parametrize("kind", KINDS)
def test_it_needs_a_person_and_can_be_ended(place: Place, kind: str) -> None:
    """Where the damage was at its branch's head, the run stayed waiting, though its signal had
    come, and whoever went on with it got Corrupt: it was stranded, and `runs` did not say so."""
    store, handle, last = met(place, kind)
    check_told(handle, last)
    seq = store.agent("a").log(all_branches=True, damaged_too=True)
    commits = len(list(seq))
    with pytest.raises(Corrupt):
        store.run(paying, "a")
    assert handle.status == "needs_attention"
    told = list(store.agent("a").log(all_branches=True, damaged_too=True))
    assert len(told) <= commits + 2, "what is noted already is not noted again"
    handle.cancel("it cannot be read")
    assert handle.info.status == "cancelled"
    assert store.agent("a").rollback(last).untold == (kind != "a delta that does not fit")
    assert store.agent("a").state == {"n": 1}
    other = store.options(key="again").start(paying, "a")
    assert go(store, paying, key="again") is None
    other.signal("go")
    assert go(store, paying, key="again") == 2
    assert calls == [1, 1, 2]


def test_one_command_ends_it_and_goes_back(place: Place) -> None:
    """The commands of the hint lacked --cancel-run, and said Conflict when they were pasted."""
    store, handle, last = met(place, "a byte of the payload")
    store.agent("a").rollback(last, cancel_run=True)
    assert handle.status == "cancelled"
    assert store.agent("a").state == {"n": 1}
    assert store.runs("a", unfinished=True) == []


def test_a_resumed_one_stops_again(place: Place) -> None:
    store, handle, last = met(place, "a byte of the payload")
    handle.resume()
    assert handle.status == "pending"
    with pytest.raises(Corrupt):
        go(store, paying)
    check_told(handle, last)


def test_a_worker_hands_it_to_a_person(place: Place) -> None:
    """It was tried again and again, later and later, before anybody was asked."""
    calls.clear()
    store = place.open()
    with working(store, paying) as events:
        handle = store.start(paying, "a")
        until(lambda: handle.status == "waiting")
        last = store.agent("a").seq
        Vandal(store, "a").damage("a byte of the payload")
        handle.signal("go")
        until(lambda: handle.status == "needs_attention")
        check_told(handle, last)
        until(lambda: any(event.kind == "needs_attention" for event in events))
    assert not [event for event in events if event.kind == "trouble"]


def test_from_the_shell(place: Place) -> None:
    """What is printed can be typed, run by run and store by store."""
    _, handle, last = met(place, "a byte of the payload")
    if place.url.startswith("memory:"):
        return  # of one process alone
    place.close()
    operator = Operator(place.url.removeprefix("sqlite:///"))  # type: ignore[arg-type]
    assert operator.json("runs", "--status", "needs_attention")[0]["id"] == handle.id
    said = operator.see("why", handle.id)
    assert f"rollback a {last} --cancel-run" in re.sub(r"\s+", " ", said)
    for words in (["runs"], ["show", "a"], ["run", "show", handle.id], ["branches", "a"]):
        assert operator.see(*words)
    assert operator.see("rollback", "a", str(last), "--cancel-run")
    assert operator.json("state", "a")["state"] == {"n": 1}
    shown = operator.json("run", "show", handle.id)
    assert shown["status"] == "cancelled"
    assert [effect["place"] for effect in shown["effects"]] == ["pay#1"]
    assert f"commit {last + 1}" in shown["damaged"]


def test_the_ledger_goes_on_behind_the_damage(place: Place) -> None:
    """Once a commit was damaged, nobody saw the tool calls of that agent again, of no run."""
    store, handle, last = met(place, "a byte of the payload")
    store.agent("a").rollback(last, cancel_run=True)
    with pytest.raises(Corrupt):
        handle.effects()
    assert [effect.place for effect in handle.effects(damaged_too=True)] == ["pay#1"]
    if place.url.startswith("memory:"):
        return
    operator = Operator(place.url.removeprefix("sqlite:///"))  # type: ignore[arg-type]
    told = operator.type("effects", "a")
    assert told.exit_code == 5
    assert "pay#1" in told.stdout
    assert f"commit {last + 1}" in told.stderr
