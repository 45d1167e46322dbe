"""Those who use the simulated store: clients, an operator, and the workers that they rely on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

import perdure
from perdure.engine.dispatch.worker import Worker
from perdure.errors import Conflict, NeedsAttention, NotFound, PerdureError, StoreUnavailable
from perdure.model import RunInfo
from perdure.store import Store
from tests.simulation.primitives import current_process
from tests.simulation.programs import Op, simulated

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

NAMES = ("a", "b")
RESUMED_MAX = 5


class Sent(Struct):
    """A signal that somebody sent. `known`: the store has said that it has it."""

    run: str
    name: str
    key: str
    value: str
    known: bool = False


class Started(Struct):
    """A run that somebody asked for. `known`: the store has said that it will be."""

    agent: str
    key: str
    program: list[Op]
    known: bool = False
    run: str = ""


class Expected(Struct):
    """What people did, and what they were told: what the promises are about."""

    started: list[Started] = field(default_factory=list)
    sent: dict[tuple[str, str, str], Sent] = field(default_factory=dict)
    results: dict[str, list[str]] = field(default_factory=dict)
    """What was returned or raised for each run, to whoever asked, as text."""
    edits: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Marks that were left in agents' states: which agent, and whether that was acknowledged."""
    answered: dict[str, set[str]] = field(default_factory=dict)
    """Answers that were given, by the run."""

    def tell(self, run: str, result: object) -> None:
        self.results.setdefault(run, []).append(repr(result))


def work(simulation: Simulation, store: Store, limit: int) -> None:
    """A worker's process, from begin to end."""
    with store:
        worker = Worker(store, [simulated], limit=limit)
        simulation.workers[current_process(simulation.scheduler)] = worker
        worker.run(signals=False)


class Client:
    """One that starts runs, talks to them, and looks at what comes of them."""

    def __init__(self, simulation: Simulation, store: Store, random: Random, acts: int) -> None:
        self._simulation = simulation
        self._expected = simulation.expected
        self._store = store
        self._random = random
        self._acts = acts
        self._pace_s = random.choice((0.2, 1.0, 2.0))

    def live(self) -> None:
        deeds: tuple[Callable[[], None], ...] = (
            self._start,
            self._start,
            self._signal,
            self._signal,
            self._signal,
            self._answer,
            self._answer,
            self._edit,
            self._look,
            self._cancel,
            self._run,
            self._result,
        )
        with self._store:
            for _ in range(self._acts):
                self._simulation.scheduler.sleep(self._random.random() * self._pace_s)
                deed = self._random.choice(deeds)
                try:
                    deed()
                except (Conflict, NotFound, StoreUnavailable):
                    continue  # said so: what they may not say is checked by the promises

    def _some(self) -> Started:
        if not self._expected.started:
            raise NotFound("nothing was asked for yet")
        return self._random.choice(self._expected.started)

    def _start(self) -> None:
        """Ask for a run, or for one that was asked for before: that is the same one."""
        wanted = self._simulation.next_start(self._random)
        options = self._store.options(key=wanted.key)
        handle = options.start(simulated, wanted.agent, wanted.program, [])
        wanted.known, wanted.run = True, handle.id

    def _run(self) -> None:
        """As a standby would: whoever has the run, its result is wanted."""
        wanted = self._simulation.next_start(self._random)
        options = self._store.options(key=wanted.key)
        try:
            result = options.run(simulated, wanted.agent, wanted.program, [])
        except ValueError as failed:
            self._expected.tell(self._id(wanted), str(failed))
        except perdure.RunFailed:
            self._expected.tell(self._id(wanted), "cancelled")
        except NeedsAttention:
            return
        else:
            wanted.known, wanted.run = True, self._id(wanted)
            self._expected.tell(wanted.run, result)

    def _id(self, wanted: Started) -> str:
        rows = self._store.runs(wanted.agent)
        return next(row.id for row in rows if row.key == wanted.key)

    def _result(self) -> None:
        wanted = self._some()
        if not wanted.run:
            return
        try:
            result = self._store.handle(wanted.run).result(timedelta(seconds=2))
        except ValueError as failed:
            self._expected.tell(wanted.run, str(failed))
        except perdure.RunFailed:
            self._expected.tell(wanted.run, "cancelled")
        except (NeedsAttention, perdure.TimedOut):
            return
        else:
            self._expected.tell(wanted.run, result)

    def _signal(self) -> None:
        wanted = self._some()
        if wanted.run:
            send(self._simulation, self._store, wanted.run, self._random)

    def _answer(self) -> None:
        wanted = self._some()
        if wanted.run:
            answer(self._simulation, self._store, wanted.run)

    def _edit(self) -> None:
        """Write to an agent directly, where no run has it."""
        name, mark = self._some().agent, self._simulation.new_name("mark")
        self._expected.edits[mark] = name, False

        def change(draft: dict[str, Any]) -> None:
            draft.setdefault("marks", []).append(mark)

        for _ in range(3):
            try:
                self._store.agent(name).update(change, "a mark", key=mark)
            except StoreUnavailable:
                continue
            self._expected.edits[mark] = name, True
            return

    def _look(self) -> None:
        """Read, while others write: what is read must be whole."""
        name = self._some().agent
        info = self._store.find(name)
        if info is not None:
            self._store.agent(name).verify()

    def _cancel(self) -> None:
        wanted = self._some()
        if wanted.run and self._random.random() < 0.4:
            self._store.handle(wanted.run).cancel("a client wanted it")


def send(simulation: Simulation, store: Store, run: str, random: Random) -> None:
    """Send a run a signal, a new one or one that was sent before, until the store has it."""
    expected = simulation.expected
    known = [one for one in expected.sent.values() if one.run == run]
    if known and random.random() < 0.3:
        sent = random.choice(known)
    else:
        key = simulation.new_name("signal")
        sent = Sent(run, random.choice(NAMES), key, f"value of {key}")
    handle = store.handle(run)
    for _ in range(3):
        expected.sent.setdefault((run, sent.name, sent.key), sent)
        try:
            handle.signal(sent.name, sent.value, key=sent.key)
        except StoreUnavailable:
            continue
        sent.known = True
        return


def answer(simulation: Simulation, store: Store, run: str) -> None:
    handle = store.handle(run)
    for question in handle.questions():
        text = f"answer to {question.place}"
        simulation.expected.answered.setdefault(run, set()).add(text)
        handle.answer(text, to=question, by="a client")


class Trimmer:
    """Removes what is old, again and again, beside all that goes on."""

    def __init__(self, simulation: Simulation, store: Store, random: Random) -> None:
        self._simulation = simulation
        self._store = store
        self._random = random
        self._pace_s = random.choice((0.3, 2.0))

    def live(self) -> None:
        with self._store:
            while not self._simulation.healed:
                self._simulation.scheduler.sleep(self._random.random() * self._pace_s)
                try:
                    self._trim()
                except (Conflict, NotFound, StoreUnavailable):
                    continue

    def _trim(self) -> None:
        infos = self._store.agents()
        if infos:
            info = self._random.choice(infos)
            trimmed = self._store.agent_of(info).trim(before=self._random.randint(1, info.seq))
            if trimmed.removed:
                self._simulation.tape.count("trims")


class Operator:
    """Settles what is in doubt, as the world tells; and lets go on what else stopped, which is
    noted: nothing should."""

    def __init__(self, simulation: Simulation, store: Store) -> None:
        self._resumed: Counter[str] = Counter()
        self._simulation = simulation
        self._store = store

    def live(self) -> None:
        with self._store:
            while True:
                self._simulation.scheduler.sleep(0.7)
                try:
                    for row in self._store.runs(status=("needs_attention",)):
                        self._help(row)
                    if self._simulation.healed:
                        self._supply()
                except PerdureError:
                    continue

    def _help(self, row: RunInfo) -> None:
        handle = self._store.handle(row.id)
        # Whoever was at it, and may wake up: the door is shut before anybody looks inside. The
        # epoch is that of the stop only if nothing has changed since.
        ref = self._store.runner.context.backend.ref(row.agent_no, row.branch)
        if ref is None or handle.info.changed_at_micros != row.changed_at_micros:
            return
        doubts = [effect for effect in handle.effects() if effect.state == "in doubt"]
        for effect in doubts:
            op = next(one for one in effect.preview.split("'") if one.startswith("tool-"))
            found = self._simulation.world.look(row.agent, op, ref.epoch + 1)
            if found is perdure.NOT_DONE:
                handle.settle(effect.place, not_done=True, by="operator")
            else:
                handle.settle(effect.place, done=found, by="operator")
        if not doubts and self._resumed[row.id] < RESUMED_MAX:
            self._resumed[row.id] += 1
            self._simulation.resumed.append((row.id, row.problem or ""))
            handle.resume()

    def _supply(self) -> None:
        """Give some of what is waited for; what is not given, runs rightly wait for."""
        for row in self._store.runs(status=("waiting",)):
            if row.id in self._simulation.forsaken:
                continue
            if self._simulation.scheduler.random.random() < 0.1:
                self._simulation.forsaken.add(row.id)
            elif "answer to" in row.waits:
                answer(self._simulation, self._store, row.id)
            elif "signal" in row.waits:
                send(self._simulation, self._store, row.id, self._simulation.scheduler.random)
