"""Turns of a conversation are taken back one by one, whatever its run did in them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure import Agent, Conflict, NotFound, Store
from perdure.core.undo.undo_plan import RunChanges
from perdure.core.values.ops import Append
from perdure.model import Cause
from perdure.state import time_travel
from perdure.state.working_copy import drive
from perdure.testing import replay, run_until_waiting

EDITS = ("set", "add", "drop", "pop")
MOVES = ("undo", "redo", "back", "name")
Doing = tuple[str, str]
"""A word of `EDITS` or `MOVES`, and the group of an edit."""

doings = st.tuples(st.sampled_from(EDITS + MOVES), st.sampled_from(["", "", "g", "h"]))


def does(run: perdure.Run[dict[str, Any]], doing: Doing, number: int) -> None:
    word, group = doing
    if word == "name":
        run.checkpoint("point")
    elif word == "back":
        run.rollback("point")
    elif word in MOVES:
        getattr(run, word)()
    else:
        with run.edit(word, group=group or None) as draft:
            if word == "set":
                draft[f"k{number % 3}"] = number
            elif word == "drop":
                draft.pop(f"k{number % 3}", None)
            elif word == "add":
                draft.setdefault("list", []).append(number)
            elif draft.get("list"):
                draft["list"].pop()


def has_changed(agent: Agent[dict[str, Any]], since: int) -> bool:
    """Returns True if the run changed something, or went back, behind a commit."""
    made = [one for one in agent.log() if one.seq > since and one.cause.step is not None]
    return any(one.delta or one.cause.kind in ("undo", "redo", "rollback") for one in made)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(doings, max_size=5), min_size=1, max_size=5),
    st.lists(st.integers(1, 3), max_size=5),
)
def test_each_undo_comes_to_where_its_turns_began(
    program: list[list[Doing]], undos: list[int]
) -> None:
    """Also where a turn went back behind itself, or used the group of another one; turns that
    changed nothing do not count; and redo brings them back, the last one first."""

    @perdure.agent(dict)
    def act(run: perdure.Run[dict], turn: int = 0) -> Any:
        run.wait_for("go")
        for number, doing in enumerate(program[turn]):
            with suppress(NotFound, Conflict):
                does(run, doing, 10 * turn + number)
        return run.again(turn + 1)

    with perdure.open("memory://") as store:
        agent = store.agent("a", initial={})
        agent.checkpoint("point")
        handle = run_until_waiting(store, act, "a")
        states, changed = played(store, act, agent, len(program))
        left, undone = len(program), []
        for turns in undos:
            to = left
            while to > 0 and turns > sum(changed[to:left]):
                to -= 1
            if any(changed[to:left]):
                agent.undo(run=handle, turns=turns)
                assert agent.state == states[to]
                undone.append(states[left])
                left = to
        for state in reversed(undone):
            agent.redo()
            assert agent.state == state
        agent.verify()
        replay(store, act, handle.id).check()


def played(
    store: Store, act: Any, agent: Agent[dict[str, Any]], turns: int
) -> tuple[list[Any], list[bool]]:
    """Returns the states between the turns, and which turns changed something."""
    states, changed = [deepcopy(agent.refresh())], []
    for _ in range(turns):
        since = agent.seq
        store.handle("a/act/main").signal("go")
        run_until_waiting(store, act, "a")
        states.append(deepcopy(agent.refresh()))
        changed.append(has_changed(agent, since))
    return states, changed


# -- whoever wrote, undid and redid in between -----------------------------------------------------


RUN = "a/chat/main"
SAYS = ("turn", "turn", "half")
GOES_BACK = ("undo", "redo", "redo", "redo", "0", "1", "1", "2", "3")
"""An undo or redo of the latest; of so many turns of the run, 0: of all of it."""
OTHERS = ("append", "insert", "drop")


class Talk:
    """The log of a run with turns, as it is, without the run: each word is in it once."""

    def __init__(self, store: Store) -> None:
        self.agent = store.agent("a", initial={"said": []})
        self.agent.checkpoint("point")
        self.began, self.turn, self.words = self.agent.seq, 0, 0

    @property
    def said(self) -> list[str]:
        return list(self.agent.refresh()["said"])

    def does(self, act: str, where: int) -> None:
        if act in SAYS:
            for who in ("user", "assistant")[: 1 if act == "half" else 2]:
                self.says(f"{self.turn} {who} {self.words}")
            if act == "turn":
                self.agent._working.commit_delta([], Cause("run-turn", "chat", run=RUN))
                self.turn += 1
        elif act in OTHERS:
            with self.agent.edit(act) as draft:
                at = where % (len(draft["said"]) + 1)
                if act == "drop":
                    del draft["said"][at : at + 1]
                else:
                    self.words += 1
                    at = len(draft["said"]) if act == "append" else at
                    draft["said"].insert(at, f"other {self.words}")
        else:
            with suppress(NotFound, Conflict):
                self.goes_back(act)

    def says(self, words: str) -> None:
        cause = Cause("edit", words, run=RUN, step=f"edit:{words}")
        self.agent.refresh()
        self.agent._working.commit_delta([Append(("said",), [words])], cause)
        self.words += 1

    def goes_back(self, act: str) -> None:
        before = self.said
        if act in ("undo", "redo"):
            seqs = getattr(self.agent, act)().commit.cause.refers
        else:
            of = RunChanges(RUN, self.began, int(act))
            undoing = time_travel.undoing(self.agent._working, cancel_run=False, of=lambda: of)
            seqs = drive(self.agent._context, undoing).commit.cause.refers
        after = self.said
        kept = set(before) & set(after)
        assert [one for one in before if one in kept] == [one for one in after if one in kept]
        gone, came = set(before) - kept, set(after) - kept
        assert (gone, came) == self.made_by(seqs), "just what it says that it takes back"
        if act not in ("undo", "redo"):
            turns = {int(one.split()[0]) for one in gone}
            assert not came and (act == "0" or len(turns) <= int(act))
            mine = [int(one.split()[0]) for one in after if not one.startswith("other")]
            assert not turns or all(one < min(turns) for one in mine), "the last ones"

    def made_by(self, seqs: Sequence[int]) -> tuple[set[str], set[str]]:
        """Returns what commits added and removed."""
        added, removed = set[str](), set[str]()
        for seq in seqs:
            now = set(self.agent.at(seq).state["said"])
            then = set(self.agent.at(self.agent.commit(seq).parents[0]).state["said"])
            added, removed = added | (now - then), removed | (then - now)
        return added, removed


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(SAYS + GOES_BACK + SAYS + GOES_BACK + OTHERS), st.integers(0, 9)),
        max_size=30,
    )
)
def test_what_goes_is_what_is_said(acts: list[tuple[str, int]]) -> None:
    with perdure.open("memory://") as store:
        talk = Talk(store)
        for act, where in acts:
            talk.does(act, where)
        talk.agent.verify()
