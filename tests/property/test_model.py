"""Random operations on an agent, against a plain model of its log: a state for each commit, a head
for each branch. After each step the states agree; in the end everything verifies."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import perdure
from perdure import SnapshotPolicy
from perdure.core.values.plain_values import copy, same
from perdure.errors import Conflict, NotFound
from perdure.storage.locate import _named_memories
from perdure.storage.log import snapshots
from tests.postgres.server import kinds, shared

LONG = "the quick brown fox jumps over the lazy dog, again and again and again; "
PHASES = [Phase.explicit, Phase.generate]  # a failing history says enough; shrinking takes minutes
_places = itertools.count()

scalars = st.one_of(
    st.none(), st.integers(-9, 2**65), st.sampled_from(["x", LONG]), st.floats(0, 1)
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        st.sets(st.integers(0, 5), max_size=3),
    ),
    max_leaves=5,
)
states = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)
small = st.integers(0, 6)
policies = st.sampled_from(
    [
        SnapshotPolicy(),
        SnapshotPolicy(by_weight=False, on=()),
        SnapshotPolicy(every_commits=1),
        SnapshotPolicy(every_commits=3),
        SnapshotPolicy(every_seconds=0.0),
        SnapshotPolicy(by_weight=False, on={"edit"}),
    ]
)


def change(root: Any, pick: int, act: int, n: int, value: Any) -> None:
    """One change somewhere in a draft or a plain tree, the same in both."""
    places = list(containers(root))
    target = places[pick % len(places)]
    if isinstance(target, dict):
        key = "abcd"[n % 4]
        if act % 3 == 0 and key in target:
            del target[key]
        elif act % 3 == 1 and isinstance(target.get(key), str):
            target[key] = target[key][:n] + "!" + target[key][n:]
        elif act % 3 == 1 and type(target.get(key)) is int:
            if type(target) is dict:
                target[key] += n
            else:
                perdure.increment(target, key, n)
        else:
            target[key] = copy(value)
    elif isinstance(target, list):
        at = n % (len(target) + 1)
        match act % 6:
            case 0 | 1:
                target.extend([copy(value), n, copy(value)])
            case 2:
                target.insert(at, copy(value))
            case 3:
                del target[:at]
            case 4 if at < len(target):
                perdure.move(target, at, 0)
            case _ if at < len(target):
                target[at] = copy(value)
    elif act % 2:
        target.add(n)
    else:
        target.discard(n)


def containers(root: Any) -> Any:
    yield root
    if isinstance(root, dict):
        for key in sorted(root):  # a saved value's keys may have another order
            if isinstance(root[key], dict | list | set):
                yield from containers(root[key])
    elif isinstance(root, list):
        for item in list(root):
            if isinstance(item, dict | list | set):
                yield from containers(item)


changes = st.lists(st.tuples(st.integers(0, 30), small, small, values), min_size=1, max_size=4)


def apply(root: Any, todo: Any) -> None:
    for one in todo:
        change(root, *one)


class Log(RuleBasedStateMachine):
    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp()) if self.kind == "sqlite" else None
        self.name = f"model-{next(_places)}"
        self.url = str(self.folder / "store.db") if self.folder else f"memory://{self.name}"
        if self.kind == "postgres":
            self.url = shared().new_url()
        self.store = perdure.open(self.url, durability="os")
        self.states: dict[int, Any] = {}
        self.heads: dict[str, int] = {}
        self.points: dict[str, int] = {}
        self.dropped: set[str] = set()
        self.keys: dict[str, tuple[str, int, str]] = {}
        self.parents: dict[int, int] = {}
        self.handles: dict[str, list[Any]] = {}
        self.last = 0
        self.root: str | None = None

    def teardown(self) -> None:
        try:
            if self.last:
                self.check_everything()
        finally:
            self.store.close()
            _named_memories.pop(self.name, None)
            if self.folder:
                shutil.rmtree(self.folder)

    def check_everything(self) -> None:
        agent = self.open("main")
        assert agent.verify(anchor=self.root).commits == self.last
        for seq, state in self.states.items():
            assert same(agent.at(seq).plain, state), seq
        live = {b.name: b.head for b in agent.branches() if not b.deleted}
        assert live == self.heads
        assert {b.name for b in agent.branches() if b.deleted} == self.dropped
        assert {c.name: c.seq for c in agent.checkpoints()} == self.points
        assert [c.seq for c in agent.log(all_branches=True)] == list(range(1, self.last + 1))

    # -- the model -------------------------------------------------------------------------

    def open(self, branch: str) -> Any:
        return self.store.agent("a", branch=branch)

    def handle(self, branch: str, n: int) -> Any:
        """One of two handles on a branch: each may be behind."""
        pair = self.handles.setdefault(branch, [self.open(branch), self.open(branch)])
        return pair[n % 2]

    def branch(self, n: int) -> str:
        return sorted(self.heads)[n % len(self.heads)]

    def committed(self, branch: str, state: Any, parent: int | None = None) -> None:
        self.last += 1
        self.parents[self.last] = self.heads.get(branch, 0) if parent is None else parent
        self.heads[branch] = self.last
        self.states[self.last] = copy(state)

    def past(self, branch: str) -> set[int]:
        seqs = {seq := self.heads[branch]}
        while seq := self.parents[seq]:
            seqs.add(seq)
        return seqs

    def head(self, branch: str) -> Any:
        return copy(self.states[self.heads[branch]])

    # -- steps -----------------------------------------------------------------------------

    @initialize(state=states)
    def create(self, state: Any) -> None:
        agent = self.store.agent("a", initial=copy(state))
        agent.checkpoint("start")
        self.committed("main", state)
        self.committed("main", state)
        self.points["start"] = 2

    @rule(n=small, which=small, todo=changes, group=st.sampled_from([None, None, "g"]))
    def edit(self, n: int, which: int, todo: Any, group: str | None) -> None:
        branch = self.branch(n)
        agent, after = self.handle(branch, which), self.head(branch)
        edit = agent.edit(group=group)
        with edit as draft:
            apply(draft, todo)
        apply(after, todo)
        if edit.commit is not None:
            self.committed(branch, after)
        else:
            assert same(after, self.head(branch))
        assert same(agent.state, after) and agent.drift() == []

    @rule(n=small, which=small, todo=changes)
    def fail(self, n: int, which: int, todo: Any) -> None:
        agent = self.handle(self.branch(n), which)
        with pytest.raises(ZeroDivisionError), agent.edit() as draft:
            apply(draft, todo)
            1 / 0
        assert same(agent.state, self.head(self.branch(n)))

    @rule(
        n=small, which=small, todo=changes, key=st.sampled_from("klm"), what=st.sampled_from("vw")
    )
    def update(self, n: int, which: int, todo: Any, key: str, what: str) -> None:
        branch = self.branch(n)
        agent = self.handle(branch, which)
        used = self.keys.get(key)
        elsewhere = used and used[2] != branch and used[1] not in self.past(branch)
        if used is not None and (used[0] != what or elsewhere):
            with pytest.raises(Conflict):
                agent.update(lambda draft: apply(draft, todo), what, key=key)
            return
        commit = agent.update(lambda draft: apply(draft, todo), what, key=key)
        if used is None:
            after = self.head(branch)
            apply(after, todo)
            self.committed(branch, after)
            self.keys[key] = (what, self.last, branch)
            assert same(agent.state, after)
        assert commit.seq == self.keys[key][1]

    @rule(n=small, which=small, state=states, todo=changes)
    def save(self, n: int, which: int, state: Any, todo: Any) -> None:
        branch = self.branch(n)
        agent = self.handle(branch, which)
        seen = agent.seq
        if todo[0][0] % 2:  # something like what is there
            state = copy(agent.state)
            apply(state, todo)
        if same(state, self.states[seen]):
            assert agent.save(state) is None
        elif seen != self.heads[branch]:
            with pytest.raises(Conflict):
                agent.save(state)
            assert same(agent.state, self.states[seen])
            agent.refresh()
        else:
            agent.save(state)
            self.committed(branch, state)
            assert same(agent.state, state)

    @rule(n=small, name=st.sampled_from(["b1", "b2", "b3", "p1"]), seq=st.integers(0, 99))
    def fork(self, n: int, name: str, seq: int) -> None:
        agent = self.handle(self.branch(n), 0)
        at = seq % self.last + 1
        if name in self.heads or name in self.dropped or name in self.points:
            with pytest.raises(Conflict):
                agent.fork(name, at=at)
            return
        agent.fork(name, at=at)
        self.committed(name, self.states[at], parent=at)

    @rule(n=small, name=st.sampled_from(["p1", "p2", "b1", "main"]))
    def checkpoint(self, n: int, name: str) -> None:
        branch = self.branch(n)
        agent = self.handle(branch, 0)
        if name in self.heads or name in self.dropped or name in self.points:
            with pytest.raises(Conflict):
                agent.checkpoint(name)
            return
        self.committed(branch, self.head(branch))
        self.points[name] = agent.checkpoint(name).seq
        assert self.points[name] == self.last

    @rule(n=small, which=small, seq=st.integers(0, 99))
    def rollback(self, n: int, which: int, seq: int) -> None:
        branch, at = self.branch(n), seq % self.last + 1
        agent = self.handle(branch, which)
        agent.rollback(at)
        self.committed(branch, self.states[at], parent=at)
        assert same(agent.state, self.states[at])

    @rule(n=small, other=small)
    def adopt(self, n: int, other: int) -> None:
        branch, source = self.branch(n), self.branch(other)
        self.handle(branch, 1).adopt(source)
        head = self.heads[source]
        self.committed(branch, self.states[head], parent=head)

    @precondition(lambda self: len(self.heads) > 1)
    @rule(n=small)
    def delete_branch(self, n: int) -> None:
        name = self.branch(n)
        if name == "main":
            return
        self.handle("main", 0).delete_branch(name)
        self.committed("main", self.head("main"))
        del self.heads[name]
        self.dropped.add(name)
        for stale in self.handles.pop(name, []):
            with pytest.raises(NotFound):
                stale.save({"late": self.last})

    @rule(n=small, which=small, redo=st.booleans())
    def undo(self, n: int, which: int, redo: bool) -> None:
        """Its plan has tests of its own; here: it commits what it says, and is refused cleanly."""
        branch = self.branch(n)
        agent = self.handle(branch, which)
        before = self.head(branch)
        try:
            moved = agent.redo() if redo else agent.undo()
        except (NotFound, Conflict):
            assert agent.seq == self.heads[branch] and same(agent.state, before)
            return
        self.committed(branch, agent.at("main" if branch == "main" else branch).plain)
        assert moved.commit.seq == self.last
        assert same(agent.state, self.states[self.last])
        if not redo and len(moved.commit.cause.refers) == 1:
            (seq,) = moved.commit.cause.refers
            if agent.commit(self.last).parent == seq:  # nothing in between
                assert same(self.states[self.last], self.states[agent.commit(seq).parent])

    @rule(policy=policies)
    def reopen(self, policy: SnapshotPolicy) -> None:
        if self.kind != "memory":
            self.store.close()
        self.store = perdure.open(self.url, durability="os", snapshots=policy)
        self.handles.clear()

    @rule()
    def anchor(self) -> None:
        self.root = self.open("main").verify(anchor=self.root).root

    @rule(seq=st.integers(0, 99), n=small, which=small)
    def look(self, seq: int, n: int, which: int) -> None:
        at, branch = seq % self.last + 1, self.branch(n)
        agent = self.handle(branch, which)
        assert same(agent.at(at).state, self.states[at])
        assert same(agent.at(branch).state, self.head(branch))
        assert same(agent.refresh(), self.head(branch))
        changed = agent.diff(at, branch) != []
        assert changed != same(self.states[at], self.head(branch))

    @invariant()
    def heads_agree(self) -> None:
        for branch in self.heads:
            fresh = self.open(branch)
            assert fresh.seq == self.heads[branch]
            assert same(fresh.state, self.head(branch))


@pytest.mark.parametrize("kind", kinds(["memory", "sqlite"]))
def test_any_history(kind, monkeypatch):
    monkeypatch.setattr(snapshots, "LEAF_ITEMS_MAX", 3)  # so that short lists have leaves
    machine = type(f"Log_{kind}", (Log,), {"kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=100 if kind == "memory" else 40,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=PHASES,
        ),
    )
