"""What a run's tasks see while commits are ahead: exactly the state of the log where they are, in
the object that they hold on to; whatever is ahead, and whatever comes in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pydantic
import pytest

import perdure
from perdure.agents import Agent
from perdure.core.schema.schema import Schema
from perdure.engine.journal.leaving import TornError
from perdure.engine.journal.visible_state import Seeing
from perdure.model import Cause
from perdure.state.run_view import ViewedCopy
from perdure.state.working_copy import drive
from perdure.store import Store
from perdure.system.locks import ReentrantLock
from tests.faults.injecting import KINDS, counted, inject


@dataclass
class AsDataclass:
    n: int = 0
    notes: list[str] = field(default_factory=list)
    client: perdure.Ephemeral[Any] = None


class Page(pydantic.BaseModel):
    words: list[str] = []
    client: perdure.Ephemeral[Any] = None


class AsModel(pydantic.BaseModel):
    n: int = 0
    notes: list[str] = []
    pages: dict[str, Page] = {}
    client: perdure.Ephemeral[Any] = None


class Scene:
    """A copy whose branch goes on, by edits of its own and by those of others."""

    def __init__(self, store: Store, kind: type) -> None:
        self._kind = kind
        self._agent: Agent[Any] = store.agent("a", Schema(kind, id="state"))
        with self._agent.edit("begins") as draft:
            self._change(draft, 1)
        schema = self._agent._working.schema
        self.working: ViewedCopy[Any] = ViewedCopy(store._context, "a", schema, "main")
        self.working.load()
        self.shown = self.working.seq
        self._client = object()

    def _change(self, draft: Any, number: int) -> None:
        if self._kind is dict:
            draft["n"] = number
            draft.setdefault("notes", []).append(f"note {number}")
            # A container comes in with one commit, and is changed by later ones.
            draft.setdefault("lists", {}).setdefault(f"list {number // 4}", []).append(number)
            return
        draft.n = number
        draft.notes.append(f"note {number}")
        if self._kind is AsModel:
            name = f"page {number // 2 % 3}"
            if number % 2:
                draft.pages[name] = Page(words=[f"word {number}"])
            elif name in draft.pages:
                draft.pages[name].words.append(f"word {number}")

    def edit(self, number: int) -> None:
        """As a task of the run does, which has it before others hear of it."""
        recording = self.working.record()
        self._change(recording.draft, number)
        if self._kind is not dict:
            recording.draft.client = self._client
        recording.close()
        working = self.working
        drive(working.context, working.committing_recording(recording, Cause("edit")))

    def others(self, number: int) -> None:
        """They are not here while a run executes; it may not have seen it when it goes on."""
        with self._agent.edit("by hand") as draft:
            self._change(draft, number)
        self.working.advance_unseen(self.working.reader.commit(self._agent.seq))

    def nothing(self, number: int) -> None:
        self.working.commit_delta([], Cause("step"))

    def show(self, seq: int) -> None:
        self.working.show(seq)
        self.shown = max(self.shown, min(seq, self.working.seq))

    def check(self) -> None:
        for state, seq in ((self.working.seen, self.shown), (self.working.typed, self.working.seq)):
            assert _without_clients(state) == self.logged(seq), (state, seq)
        reader = self.working.reader  # of the plain state the next snapshot is made
        assert self.working.plain == reader.fold(self.working.seq, snapshots_too=False).state

    def logged(self, seq: int) -> Any:
        folded = self.working.reader.fold(seq).state
        return _without_clients(self.working.schema.build(folded))


def _without_clients(state: Any) -> Any:
    if isinstance(state, dict):
        return state
    return state.n, state.notes, [*getattr(state, "pages", {}).items()]


KINDS_OF_STATE = [dict, AsDataclass, AsModel]


@pytest.mark.parametrize("kind", KINDS_OF_STATE)
def test_what_is_seen_is_a_state_of_the_log_in_the_same_object(kind: type) -> None:
    for seed in range(40):
        chance = random.Random(seed)
        with perdure.open("memory://") as store:
            scene = Scene(store, kind)
            first = scene.working.seen
            for number in range(2, 16):
                act: Callable[[int], None] = chance.choice(
                    [scene.edit, scene.edit, scene.others, scene.nothing]
                )
                act(number)
                if chance.random() < 0.5:
                    scene.check()
                if chance.random() < 0.6:
                    scene.show(chance.randint(scene.shown, scene.working.seq))
                    scene.check()
                assert scene.working.seen is first
            scene.show(scene.working.seq)
            scene.check()
            assert scene.working.seen is first and scene.working.typed is first
            assert not scene.working.ahead and scene.working._apart is None


@pytest.mark.parametrize("kind", [AsDataclass, AsModel])
def test_an_ephemeral_field_goes_on_with_what_is_seen(kind: type) -> None:
    with perdure.open("memory://") as store:
        scene = Scene(store, kind)
        assert scene.working.seen.client is None
        scene.edit(2)
        assert scene.working.seen.client is None
        scene.show(scene.working.seq)
        assert scene.working.seen.client is scene._client
        scene.others(3)
        scene.others(4)
        assert scene.working.typed.client is scene._client  # who edits has it, too
        scene.edit(5)
        scene.show(scene.working.seq)
        assert scene.working.seen.client is scene._client


@pytest.mark.parametrize("kind", KINDS_OF_STATE)
@pytest.mark.parametrize("ahead", ["edit", "others", "others, edit", "edit, edit"])
def test_an_exception_between_any_two_instructions_leaves_a_state_of_the_log(
    kind: type, ahead: str
) -> None:
    """What it came in the middle of is done again, and what is seen then is whole."""

    def ready(store: Store) -> Scene:
        scene = Scene(store, kind)
        assert scene.working.seen is not None
        for number, way in enumerate(ahead.split(", "), 2):
            getattr(scene, way)(number)
        return scene

    with perdure.open("memory://") as store:
        scene = ready(store)
        points = counted(lambda: scene.show(scene.working.seq)).count
    for at in sorted(random.Random(1).sample(range(1, points + 1), min(points, 60))):
        with perdure.open("memory://") as store:
            scene = ready(store)
            first, last = scene.shown, scene.working.seq
            inject(lambda: scene.show(last), at, KINDS[0])  # noqa: B023 - called at once
            states = [scene.logged(seq) for seq in range(first, last + 1)]
            assert _without_clients(scene.working.seen) in states
            scene.show(last)
            scene.check()
            scene.edit(9)
            scene.check()
            scene.show(last + 1)
            scene.check()


def test_the_next_execution_begins_with_all_that_is_in_the_log() -> None:
    with perdure.open("memory://") as store:
        scene = Scene(store, dict)
        scene.edit(2)
        assert scene.working.seen["n"] == 1
        Seeing(scene.working, [], ReentrantLock(), "run")
        assert scene.working.seen["n"] == 2


@pytest.mark.parametrize("name", ["show", "advance"])
def test_a_showing_that_was_interrupted_is_not_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A RecursionError came where what a function sees was brought to a commit, and was lost: the
    object that the function held no longer was what the run showed, and nobody was told."""

    def interrupted(*_: Any, **__: Any) -> None:
        monkeypatch.undo()
        raise RecursionError("injected")

    with perdure.open("memory://") as store:
        scene = Scene(store, AsModel)
        behind = [scene.working.reader.commit(scene.working.seq)]
        if name == "advance":
            scene.working.rewind(scene.working.reader.fold(1))
        seeing = Seeing(scene.working, behind, ReentrantLock(), "run")
        if name == "show":
            scene.edit(2)
        monkeypatch.setattr(ViewedCopy, name, interrupted)
        with pytest.raises(RecursionError):
            seeing.show(scene.working.seq + 1)
        with pytest.raises(TornError, match="ended a change of the state that its function sees"):
            seeing.show(scene.working.seq + 1)
