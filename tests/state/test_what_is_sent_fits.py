"""Ops are folded onto the state that they name before they are sent: what does not fit there would
be `Corrupt` for everybody, for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.adapters import foreign_logs
from perdure.core.values import ops
from perdure.core.values.fitting_ops import check_fits
from perdure.core.values.ops import OpError
from perdure.core.values.plain_values import copy
from perdure.model import MAIN, Cause

WRONG: dict[str, list[ops.Op]] = {
    "appended to what is no list": [ops.Append(("n",), [1])],
    "appended to what is not there": [ops.Append(("other",), [1])],
    "set in what is not there": [ops.Set(("other", "x"), 1)],
    "deleted, and not there": [ops.Delete(("other",))],
    "deleted twice": [ops.Delete(("n",)), ops.Delete(("n",))],
    "spliced behind the end": [ops.Splice(("list",), 2, 2, [])],
    "spliced behind what an op before left": [
        ops.Splice(("list",), 0, 3, []),
        ops.Splice(("list",), 0, 1, []),
    ],
    "text spliced in a number": [ops.TextSplice(("n",), 0, 1, "x")],
    "added to a text": [ops.Increment(("text",), 1)],
    "members for a list": [ops.SetAdd(("list",), [1])],
    "moved from where nothing is": [ops.Move(("list",), 9, 0)],
}

STATE = {"n": 1, "text": "t", "list": [1, 2, 3], "deep": {"list": [{"x": 1}]}}


@pytest.mark.parametrize("what", WRONG)
def test_an_adapters_delta_that_does_not_fit_is_refused(what: str) -> None:
    """`ForeignLog.append` wrote whatever its adapter had worked out: one op that did not fit, and
    the thread with all of its past was unreadable."""
    with perdure.open("memory://") as store:
        logs = foreign_logs(store, "theirs", (1, 0))
        log, held = logs.create("thread", copy(STATE), Cause("create"))
        with pytest.raises(perdure.Unstorable, match="does not fit"):
            log.append(held, WRONG[what], {}, Cause("save"), branch=MAIN)
        unknown = perdure.adapters.Held(held.seq, None, None)
        with pytest.raises(perdure.Unstorable, match="does not fit"):
            log.append(unknown, WRONG[what], {}, Cause("save"), branch=MAIN)
        right: list[ops.Op] = [
            ops.Append(("deep", "list"), [2]),
            ops.Set(("deep", "list", 0, "x"), 5),
        ]
        state = ops.fold(log.at(held.seq).state, right)
        log.append(held, right, state, Cause("save"), branch=MAIN)
        assert held.state == STATE
        assert log.at(2).state == state
        assert store.agent_of(store.agents()[0]).verify().commits == 2


class EqualToAll(str):
    """A word that is any word that it is asked about."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return str.__hash__(self)


def test_a_snapshot_holds_what_the_ops_make() -> None:
    """An adapter said a state that was not what its ops make. The log was right; once a snapshot
    was due (here by a cause that is equal to every one) it held the other state, and verify said
    that the agent was corrupt."""
    with perdure.open("memory://", snapshots=perdure.SnapshotPolicy(every_commits=1)) as store:
        logs = foreign_logs(store, "theirs", (1, 0))
        log, held = logs.create("t", {"n": 1}, Cause("create"))
        kind = EqualToAll("save")
        held = log.append(held, [ops.Set(("n",), 2)], {"n": 99}, Cause(kind), branch=MAIN)
        assert held.state == log.at(held.seq).state == {"n": 2}
        agent = store.agent_of(store.agents()[0])
        assert agent.state == {"n": 2} and agent.verify().commits == 2


@pytest.mark.parametrize("what", WRONG)
def test_ops_from_elsewhere_are_folded_before_they_are_sent(what: str) -> None:
    """The same by the way of diffs and inverses: save, undo, migrations."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", initial=copy(STATE))
        agent.checkpoint("first")
        with pytest.raises(OpError):
            agent._working.commit_delta(WRONG[what], Cause("save"))
        assert agent.seq == store.agent("a").seq == agent.verify().commits
        assert agent.state == STATE
        with pytest.raises(OpError):
            check_fits(STATE, WRONG[what])


def _adopt(store: perdure.Store, agent: Any) -> None:
    branch = agent.fork("side")
    with branch.edit("there") as draft:
        draft["list"].append(4)
        draft["text"] += "!"
    agent.adopt("side")


def _migrate(store: perdure.Store, agent: Any) -> None:
    def grow(plain: dict[str, Any]) -> dict[str, Any]:
        return {**plain, "list": plain["list"][::-1], "n": {"was": plain.pop("n")}}

    newer: Any = perdure.Schema(dict, id="dict", version=(2, 0), migrations={1: grow})
    with store.agent("a", newer).edit("under the new one") as draft:
        draft["n"]["is"] = 2


def _back_and_forth(store: perdure.Store, agent: Any) -> None:
    for n in range(3):
        with agent.edit("it", group=f"g{n // 2}") as draft:
            draft["list"].insert(0, n)
            del draft["text"]
            draft["text"] = "x" * n
    agent.undo()
    agent.undo()
    agent.redo()
    agent.rollback(2)


def _save(store: perdure.Store, agent: Any) -> None:
    agent.save({"list": [3, 1], "deep": {"list": []}, "s": {1, 2}}, "another whole one")
    agent.save({"s": {2, 3}, "list": [[3], 1]}, "and another")


WAYS: tuple[Callable[[perdure.Store, Any], None], ...] = (_adopt, _migrate, _back_and_forth, _save)


@pytest.mark.parametrize("way", WAYS)
def test_every_commit_fits_the_one_that_it_names(way: Callable[[perdure.Store, Any], None]) -> None:
    """Looked at as it is sent, by the state that the log gives for its parent."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", initial=copy(STATE))
        agent.checkpoint("first")
        with agent.edit("it") as draft:
            draft["n"] = 2
        way(store, agent)
        log = foreign_logs(store, "any", (1, 0)).log(store.agents()[0])
        for commit in log.commits():
            state = log.at(commit.parent).state if commit.parent else None
            check_fits(state, commit.delta)
            assert ops.fold(state, commit.delta) == log.at(commit.seq).state
        assert store.agent_of(store.agents()[0]).verify().commits == store.agents()[0].seq
