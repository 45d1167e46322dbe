"""Code of the user's own that raises, and what that was taken for once."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.dispatch.heartbeat import Heartbeat
from tests.faults.__main__ import urls
from tests.faults.checking import State
from tests.faults.injecting import Helper
from tests.faults.running import Finding, runner
from tests.faults.user_scenes import USER_KINDS, USERS


def test_whatever_the_users_code_raises_leaves_nothing_wrong(tmp_path: Path) -> None:
    """A share of `make faults`: validators, methods of values, invariants, migrations, probes and
    callbacks raise, in edits, moves, runs and workers."""
    rng, found = random.Random(1), list[str]()
    with runner(urls("memory", str(tmp_path))) as one:
        for scene in sorted(USERS):
            one.points(scene)
            calls = one.calls(scene)
            for call_no in sorted(rng.sample(range(1, calls + 1), min(calls, 3))):
                try:
                    one.trap(scene, call_no, rng.randrange(len(USER_KINDS)))
                except Finding as finding:
                    found.append(str(finding))
                    one.anew()
    assert not found


raising = False


@dataclass
class Thing:
    name: str

    def __post_init__(self) -> None:
        global raising
        if raising:
            raising = False
            raise perdure.Conflict("of the user's own")


@perdure.agent(State)
def naming(run: perdure.Run[State], thing: Thing) -> str:
    return thing.name


def test_an_argument_whose_class_raises_is_not_handed_over_as_plain_data() -> None:
    """A value's class raised a `Conflict` when a run's arguments were built again. The function got
    a dict in its place, failed with an AttributeError, and the run with it, for good."""
    global raising
    with perdure.open("memory://") as store:
        handle = store.options(queue="q").start(naming, "a", Thing("coat"))
        worker = perdure.Worker(
            store,
            [naming],
            queues=["q"],
            on_event=lambda event: worker.stop() if event.kind == "done" else None,
        )
        raising = True
        Helper().call(lambda: worker.run(signals=False), 30.0)
        assert not raising and handle.result(0.0) == "coat"


def test_a_block_that_lacks_memory_when_it_is_replayed_is_no_changed_code() -> None:
    """A MemoryError came in the block of an edit that a resumed run went over again. The run
    stopped for a person, who was told that the code had changed under it."""
    lacking = iter([None, MemoryError("injected")])
    crashing = iter([True])

    class CrashError(BaseException):
        pass

    @perdure.agent(State)
    def editing(run: perdure.Run[State]) -> int:
        with run.edit("more") as draft:
            draft.n += 1
            if (error := next(lacking, None)) is not None:
                raise error
        if next(crashing, False):
            raise CrashError
        return run.state.n

    with perdure.open("memory://") as store:
        with pytest.raises(CrashError):
            store.run(editing, "a")
        with pytest.raises(perdure.PerdureError, match="MemoryError: injected"):
            store.run(editing, "a")
        assert store.handle("a/editing/main").status == "running"
        assert store.run(editing, "a") == 1


def test_a_heart_beats_on_after_a_moment_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A MemoryError ended the thread that says that an executor lives. Nobody made another: its
    leases ran out, and others took its runs over while it was at them. Between two beats, too."""
    say, beats = Heartbeat._say, list[str]()

    class EnoughError(BaseException):
        pass

    def lacking(liveness: Heartbeat, executor: str) -> None:
        beats.append("beat")
        if beats.count("beat") == 1:
            raise MemoryError("injected")
        raise EnoughError

    monkeypatch.setattr(Heartbeat, "_say", lacking)
    with perdure.open("memory://") as store:
        liveness = store.runner.liveness

        class Due:
            def wait(self, seconds: float) -> bool:
                beats.append("wait")
                if len(beats) == 1:
                    raise MemoryError("injected")
                return False

        due: Any = Due()
        with pytest.raises(EnoughError):
            liveness._beat("executor", due)
        monkeypatch.setattr(Heartbeat, "_say", say)
    assert beats == ["wait", "wait", "beat", "wait", "beat"]
