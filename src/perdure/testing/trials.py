"""One agent function on a store of its own, brought to its end by whichever process survives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from perdure.core.format.records import WaitBranch
from perdure.core.schema.schema import Schema
from perdure.engine.control.run_handle import RunHandle
from perdure.engine.dispatch.command import Command
from perdure.engine.functions.agent_functions import spec_of
from perdure.engine.functions.orders import Order
from perdure.engine.journal.any_values import take_any
from perdure.engine.journal.ledger import EffectInfo
from perdure.engine.journal.replay import NOT_DONE
from perdure.engine.journal.run_log import reader_of, recorded_turn
from perdure.errors import NeedsAttention, PerdureError
from perdure.missing import MISSING
from perdure.model import FINISHED, RunInfo, from_micros
from perdure.private import make_file
from perdure.storage.capabilities import Backend
from perdure.storage.locate import locate
from perdure.store import Store
from perdure.testing.boundaries import counting
from perdure.testing.clock import Clock
from perdure.testing.driving import execute, has_news
from perdure.testing.mortal import CallLog, Killed, Life, Mortal, WatchedCalls
from perdure.visible import visible

AGENT = "tried"
TURNS_MAX = 10_000


class Stuck(PerdureError):
    """The function reached neither its end, nor a wait in which it is unloaded."""


class Trial(Struct):
    """The function under test. `asked`: the places of the questions that were answered, in order;
    `settle`: decides about a call in doubt that `CallLog` does not know."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    state: Any
    answers: list[Any]
    signals: Mapping[str, Sequence[Any]]
    tools: Mapping[Any, Any]
    timeout_s: float = 60
    settle: Callable[[EffectInfo], Any] | None = None
    asked: list[str] = field(default_factory=list)
    _prepared: bytes | None = None
    start: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))

    # -- before and after ------------------------------------------------------------------

    @property
    def schema(self) -> Schema[Any]:
        """The schema that the function declares for its agent's state: no other type may open
        it."""
        schema: Schema[Any] = spec_of(self.function).schema
        return schema

    def prepare(self, folder: Path) -> None:
        """Makes the agent, in a new store."""
        if self._prepared is None:
            self._prepared = self._new_store(folder)
        _write(folder / "agents.db", self._prepared)

    def _new_store(self, folder: Path) -> bytes:
        with self._open(folder, lambda backend: backend)[0] as store:
            agent = store.agent(AGENT, self.schema, initial=self.state)
            with agent.edit("prepared"):
                pass
        return (folder / "agents.db").read_bytes()  # closed by its last user, it is all of it

    def undisturbed(self, places: list[str]) -> None:
        """Notes a run without kills, which asked at these places.

        Raises:
            ValueError: an answer is left over.
        """
        self.asked = places
        left = self.answers[len(places) :]
        if left:
            raise ValueError(f"answers left over: {left!r:.200}")

    def look(self, folder: Path) -> tuple[Any, Any, list[EffectInfo]]:
        """Returns its result or exception, the agent's state, and the effects."""
        with self._open(folder, lambda backend: backend)[0] as store:
            handle = self._handle(store)
            try:
                result: Any = handle.result(0)
            except Exception as error:
                result = error
            return result, store.agent(AGENT, self.schema).state, handle.effects()

    # -- a life ----------------------------------------------------------------------------

    def live_alone(self, folder: Path) -> list[str]:
        """Runs it in a process of its own, which may be killed; returns where it was asked."""
        store, clock = self._open(folder, lambda backend: backend)
        with store:
            self._live(store, clock, folder, lambda when, what: None)
        return self.asked

    def live_mortally(self, folder: Path, kill_at: int | None) -> str | None:
        """Runs it in this process, dying at that boundary; returns where, or None if it reached its
        end."""
        life = Life(kill_at)
        store, clock = self._open(folder, lambda backend: Mortal(backend, life))
        try:
            with counting(life.counter), store:
                self._live(store, clock, folder, life.passed)
        except (Exception, Killed):
            if not life.dead:
                raise
        except BaseException as left:
            if not life.dead or isinstance(left, KeyboardInterrupt | SystemExit):
                raise
        return life.ended_at

    def _open(self, folder: Path, wrap: Callable[[Backend], Any]) -> tuple[Store, Clock]:
        file = folder / "clock"
        clock = Clock(from_micros(int(file.read_text())) if file.exists() else self.start)
        backend = locate(folder / "agents.db", durability="os", clock=clock)
        return clock.store_on(wrap(backend)), clock

    def _live(
        self, store: Store, clock: Clock, folder: Path, passed: Callable[[str, str], None]
    ) -> None:
        calls = CallLog(folder / "calls")
        order = Order.of(self.function, AGENT, "main", self.args, self.kwargs, storable=False)
        fakes = WatchedCalls(self.tools, calls, passed)
        command = Command(self.function, order, self.args, self.kwargs, fakes=fakes)
        backend = store.runner.context.backend
        for _ in range(TURNS_MAX):
            info = store.runner.drive(command).find()
            if info is not None and info.status in FINISHED:
                return
            if info is not None and info.status == "waiting" and not has_news(backend, info):
                self._supply(store, info, clock, folder)
            try:
                with self._not_for_ever(store):
                    execute(store.runner, command)
            except Stuck as stuck:
                raise AssertionError(stuck.problem) from None
            except NeedsAttention:
                if not self._settle(store, calls, folder):
                    raise
            except Exception:
                if self._handle(store).status not in FINISHED:
                    raise
        raise AssertionError(f"it did not end after it was resumed {TURNS_MAX} times")

    @contextmanager
    def _not_for_ever(self, store: Store) -> Iterator[None]:
        stuck = Stuck(
            f"it was busy for {self.timeout_s:g} s. Its clock is moved when it is unloaded to "
            "wait. It is not while it waits on a thread that is not the run's own (take "
            "run.executor()), or beside a task that waits for a queue, an event, a lock or a "
            "semaphore of asyncio: `play` such a function"
        )
        timer = threading.Timer(self.timeout_s, store.runner.stop_all, [stuck])
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    # -- what comes from outside -----------------------------------------------------------

    def _supply(self, store: Store, info: RunInfo, clock: Clock, folder: Path) -> None:
        """Answers it, signals it, or lets its time come.

        Raises:
            AssertionError: nothing that it waits for was given.
        """
        handle = self._handle(store)
        for place, branch in _waited_for(store, info):
            if branch.kind == "ask" and self._answer(handle, place, branch, info.turn):
                return
            if branch.kind == "signal" and self._signal(handle, branch.name):
                return
        if not info.wake_at_micros:
            raise AssertionError(
                f"it waits for {visible(info.waits)}, but that was not given: pass answers= "
                "or signals=; other runs that it starts are not run here"
            )
        _write(folder / "clock", str(info.wake_at_micros).encode())  # whoever is next lives later
        clock.advance_to(info.wake_at_micros)

    def _answer(self, handle: RunHandle[Any], place: str, branch: WaitBranch, turn: int) -> bool:
        which = f"{place} in turn {turn}"
        if which not in self.asked:
            if len(self.asked) >= len(self.answers):
                return False
            self.asked.append(which)
        given = self.answers[self.asked.index(which)]
        handle.answer(given, to=branch.name, by="the test")
        return True

    def _signal(self, handle: RunHandle[Any], name: str) -> bool:
        return any(
            handle.signal(name, value, key=f"given-{number}", by="the test")
            for number, value in enumerate(self.signals.get(name, ()))
        )

    def _settle(self, store: Store, calls: CallLog, folder: Path) -> bool:
        """Settles the calls in doubt by what really happened; returns False if there are none."""
        handle = self._handle(store)
        doubts = [effect for effect in handle.effects() if effect.state == "in doubt"]
        for effect in doubts:
            given = self._given_by(effect, calls, folder)
            if given is NOT_DONE:
                handle.settle(effect.place, not_done=True, by="the test")
            else:
                handle.settle(effect.place, done=given, by="the test")
        return bool(doubts)

    def _given_by(self, effect: EffectInfo, calls: CallLog, folder: Path) -> Any:
        """Returns the result of a call in doubt, or NOT_DONE. The effect of one that had begun,
        without a result, is known only to the world."""
        made = [call for call in calls.read() if call.key == effect.key]
        given = [call.value for call in made if call.ended and call.value is not MISSING]
        if given:
            return given[-1]
        if not made or (made[-1].ended and len(made) < effect.attempts):
            return NOT_DONE  # its last intent is in the log, and it was not called
        if self.settle is not None:
            said = self.settle(effect)
            return said if said is NOT_DONE else take_any(said, "settle=")
        with open(folder / "assumed", "a", opener=make_file) as file:
            file.write(f"{effect.place}\n")
        return NOT_DONE

    def assumed(self, folder: Path) -> list[str]:
        """Returns the places of the calls that were settled as not done, without knowing."""
        file = folder / "assumed"
        return file.read_text().splitlines() if file.exists() else []

    def _handle(self, store: Store) -> RunHandle[Any]:
        order = Order.of(self.function, AGENT, "main", self.args, self.kwargs, storable=False)
        run = order.run_id(store.runner.context.backend)
        return store.handle(run).typed(self.function)


def _waited_for(store: Store, info: RunInfo) -> Iterator[tuple[str, WaitBranch]]:
    """Yields the branches of the run's current waits, in their order, each with the wait's
    place."""
    reader = reader_of(store.runner.context.backend, info)
    for wait in recorded_turn(reader, info).open if reader is not None else ():
        for branch in wait.branches:
            yield wait.place, branch


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb", opener=make_file) as file:
        file.write(data)
