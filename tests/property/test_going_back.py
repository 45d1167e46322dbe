"""Random programs of edits, groups, undo, redo, rollback and new versions of the schema, against
what undo and redo promise: what they bring back is what was there, and nothing else changes.

A state holds amounts, which each version counts in a hundredth of the unit of the one before: one
that came back from behind a migration without it would be seen in any state.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure import Agent, Schema, Store
from perdure.errors import Conflict, NotFound
from perdure.model import Commit

VERSIONS = 3
KEYS = "abcd"
ACTS = (
    "edit",
    "edit",
    "edit",
    "edit",
    "undo",
    "undo",
    "undo",
    "redo",
    "redo",
    "rollback",
    "newer",
    "as written",
    "checkpoint",
    "fork",
    "trim",
)
GROUPS = (None, None, None, "g", "h")

programs = st.lists(
    st.tuples(st.sampled_from(ACTS), st.integers(0, 99), st.sampled_from(GROUPS)),
    min_size=15,
    max_size=40,
)


def schema(version: int) -> Schema[Any]:
    def finer(old: dict[str, int]) -> dict[str, int]:
        return {key: amount * 100 for key, amount in old.items()}

    return Schema(
        dict, id="amounts", version=version, migrations=dict.fromkeys(range(1, version), finer)
    )


class Program:
    """What runs, and what its log has come to."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.version = 1
        self.agent: Agent[Any] = store.agent("a", schema(1), initial={"a": 1, "b": 2})
        self.agent.checkpoint("begun")
        self.trimmed = False
        self.commits: dict[int, Commit] = {}
        self.states: dict[int, dict[str, int]] = {}
        self.look()

    @property
    def unit(self) -> int:
        return int(100 ** (self.version - 1))

    def look(self) -> None:
        """Take in what was committed; each amount is in the unit of its version."""
        for commit in self.agent.log(all_branches=True):
            if commit.seq in self.commits or commit.branch.startswith("@"):
                continue
            self.commits[commit.seq] = commit
            state = self.states[commit.seq] = self.agent.at(commit.seq).plain
            unit = 100 ** (commit.schema_version[0] - 1)
            assert all(amount % unit == 0 and 0 < amount < 100 * unit for amount in state.values())

    def open(self, version: int, branch: str) -> None:
        self.version = version
        self.agent = self.store.agent("a", schema(version), branch=branch)

    def path(self) -> list[Commit]:
        """Behind the head, newest first."""
        found, seq = [], self.agent.seq
        while seq:
            found.append(self.commits[seq])
            seq = self.commits[seq].parent
        return found

    # -- what is promised ------------------------------------------------------------------

    def next(self, kind: str) -> list[Commit]:
        """What is to be taken back next, newest first."""
        gone: set[int] = set()
        chosen: list[Commit] = []
        for commit in self.path():
            own = commit.cause.kind
            if own == "redo" or (own == "undo" and kind == "undo" and commit.seq not in gone):
                gone.update(commit.cause.refers)
            can = own == "undo" if kind == "redo" else own == "edit" and bool(commit.delta)
            if not can or commit.seq in gone:
                continue
            if not chosen or commit.cause.group == chosen[0].cause.group:
                chosen.append(commit)
            if kind == "redo" or chosen[0].cause.group is None:
                break
        return chosen

    def go_back(self, kind: str) -> None:
        chosen, before = self.next(kind), dict(self.agent.state)
        majors = {commit.schema_version[0] for commit in chosen}
        touched = {key: commit for commit in chosen for key in self.changed(commit)}  # the oldest
        mine = [commit.seq for commit in chosen]
        later = {
            key
            for commit in self.path()
            for key in keys(commit)
            if commit.seq not in mine and key in touched and commit.seq > touched[key].seq
        }
        try:
            moved = getattr(self.agent, kind)()
        except (NotFound, Conflict) as error:
            refused = error
        else:
            assert majors == {self.version} and [*moved.commit.cause.refers] == mine[::-1]
            for key, commit in touched.items():
                before.pop(key, None)
                if key in self.states[commit.parent]:
                    before[key] = self.states[commit.parent][key]
            assert self.agent.state == before
            if len(chosen) == 1 and moved.commit.parent == mine[0]:
                assert list(self.agent.state) == list(self.states[chosen[0].parent])
            return
        assert self.agent.state == before
        if isinstance(refused, NotFound):
            assert not chosen or (self.trimmed and "removed by retention" in str(refused))
        else:
            across = "of version" in str(refused)
            assert across == (majors != {self.version}) and (across or later)
            assert chosen or self.trimmed

    def changed(self, commit: Commit) -> set[Any]:
        """The keys that a commit gave another value, not only another place among them."""
        was, became = self.states[commit.parent], self.states[commit.seq]
        return {key for key in keys(commit) if was.get(key) != became.get(key)}

    # -- what happens ----------------------------------------------------------------------

    def act(self, what: str, number: int, group: str | None) -> None:
        match what:
            case "edit":
                with self.agent.edit(group=group) as draft:
                    self.change(draft, number)
            case "undo" | "redo":
                self.go_back(what)
            case "rollback":
                with suppress(*[NotFound] * self.trimmed):
                    self.agent.rollback(self.path()[number % len(self.path())].seq)
            case "newer":
                self.open(min(self.version + 1, VERSIONS), self.agent.branch_name)
            case "as written":
                self.open(self.commits[self.agent.seq].schema_version[0], self.agent.branch_name)
            case "checkpoint":
                self.agent.checkpoint(f"c{self.agent.seq}-{number}")
            case "fork":
                branch = f"f{self.agent.seq}-{number}"
                if branch not in {one.name for one in self.agent.branches()}:
                    with suppress(*[NotFound] * self.trimmed):
                        self.agent.fork(branch, at=self.path()[number % len(self.path())].seq)
                        self.open(self.version, branch)
            case "trim" if number < 30:
                self.trimmed = True
                self.agent.trim(max(1, self.agent.seq - number))
        self.agent.refresh()
        self.look()

    def change(self, draft: Any, number: int) -> None:
        for _ in range(number % 2 + 1):
            number, key = number // 2 + 1, KEYS[number % len(KEYS)]
            if number % 3 == 0:
                draft.pop(key, None)
            elif number % 3 == 1 and draft.get(key, 99 * self.unit) < 99 * self.unit:
                perdure.increment(draft, key, self.unit)
            else:
                draft[key] = (number % 9 + 1) * self.unit


def keys(commit: Commit) -> set[Any]:
    return {op.path[0] for op in commit.delta if op.path}


@settings(max_examples=150, deadline=None)
@given(programs)
def test_what_comes_back_is_what_was_there(todo: Any) -> None:
    """Undo by a program of version 2 put amounts of version 1 among its own, and said nothing."""
    with perdure.open("memory://", durability="os") as store:
        program = Program(store)
        for what, number, group in todo:
            program.act(what, number, group)
        program.agent.verify()
