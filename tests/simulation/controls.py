"""The library broken on purpose, in ways that a simulation must notice; or it is blind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from msgspec import Struct
from msgspec.structs import replace

from perdure.engine.execution.run_writer import RunWriter
from perdure.model import Lease
from perdure.retention import trimming
from perdure.storage.appending import Append, Appended, Outcome, Ref
from perdure.storage.capabilities import Sent
from perdure.storage.log.reader import SEQ_END
from perdure.storage.shortcuts import LOOKS
from tests.simulation.connection import Connection
from tests.simulation.simulation import Outcome as Simulated
from tests.simulation.simulation import Simulation, simulate
from tests.simulation.world import World


class Control(Struct, frozen=True):
    """One way of breaking it.

    Attributes:
        break_: changes what a process has of the store.
        around: changes code, while the simulation lasts.
        finds: words of a violation that must be among those that are found.
        rare: it takes many seeds to notice; `make simulate` does so.
    """

    finds: str
    break_: Callable[[Any, Simulation], Any] | None = None
    around: Callable[[], AbstractContextManager[object]] = nullcontext
    rare: bool = False


def _epochs_unchecked(connection: Connection, _: Simulation) -> Connection:
    append = connection._append

    def unchecked(batch: Sequence[Append]) -> list[Outcome]:
        for item in batch:
            ref = None if item.no is None else connection.backend.ref(item.no, item.branch)
            if ref is not None and (ref.held is not None or item.riders.holder is None):
                item.epoch, item.riders = ref.held, replace(item.riders, holder=None)
        return append(batch)

    connection._append = unchecked  # type: ignore[method-assign]
    return connection


def _signals_stay(connection: Connection, _: Simulation) -> Connection:
    append = connection._append

    def keep(batch: Sequence[Append]) -> list[Outcome]:
        signals = {message.no for message in connection.backend.inbox(kind="signal")}
        for item in batch:
            taken = [no for no in item.riders.consumed if no not in signals]
            item.riders = replace(item.riders, consumed=taken)
        return append(batch)

    connection._append = keep  # type: ignore[method-assign]
    return connection


def _appends_dropped(connection: Connection, simulation: Simulation) -> Connection:
    append = connection._append

    def drop(batch: Sequence[Append]) -> list[Outcome]:
        if batch[0].no is not None and simulation.scheduler.random.random() < 0.1:
            return [Appended(item.no or 0) for item in batch]
        return append(batch)

    connection._append = drop  # type: ignore[method-assign]
    return connection


def _keys_forgotten(connection: Connection, _: Simulation) -> Connection:
    append = connection._append

    def forget(batch: Sequence[Append]) -> list[Outcome]:
        for item in batch:
            item.riders = replace(item.riders, key=None)
        return append(batch)

    connection._append = forget  # type: ignore[method-assign]
    return connection


def _leases_shared(connection: Connection, simulation: Simulation) -> Connection:
    lease = connection.lease

    def share(no: int, branch: str, executor: str | None, **more: Any) -> Lease | Ref:
        answer = lease(no, branch, executor, **more)
        if isinstance(answer, Ref) and executor is not None and answer.held is not None:
            simulation.tape.leases.append((no, branch, answer.held, executor))
            return Lease(no, branch, executor, answer.held)
        return answer

    connection.lease = share  # type: ignore[method-assign]
    less = connection.backend.capabilities - {LOOKS}  # none goes with a commit
    connection.capabilities = less  # type: ignore[attr-defined]
    return connection


def _signals_lost(connection: Connection, simulation: Simulation) -> Connection:
    send = connection.send

    def lose(message: Any) -> Any:
        if message.kind == "signal" and simulation.scheduler.random.random() < 0.3:
            return Sent(message, fresh=True)
        return send(message)

    connection.send = lose  # type: ignore[method-assign]
    return connection


class _Forgetful:
    """A connection that does not tell of runs whose owner died."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def ready(self, now: int, limit: int) -> list[Any]:
        return [row for row in self._connection.ready(now, limit) if row.status != "running"]


@contextmanager
def _intents_late() -> Iterator[None]:
    """They join the commit of their outcome."""
    write = RunWriter.write

    def put_off(self: RunWriter, item: Any) -> None:
        if item.riders.records and item.riders.records[0].t == "intent":
            self.later(item.riders)
        else:
            write(self, item)

    with patch.object(RunWriter, "write", put_off):
        yield


def _fences_ignored() -> AbstractContextManager[object]:
    act = World.act

    def ignore(self: World, agent: str, op: str, key: str, token: int, *, keyed: bool) -> str:
        return act(self, agent, op, key, 2**62, keyed=keyed)

    return patch.object(World, "act", ignore)


def _runs_unheeded() -> AbstractContextManager[object]:
    return patch.object(trimming, "_held", lambda backend, reader: SEQ_END)


CONTROLS: Mapping[str, Control] = {
    "epochs are not checked": Control("not linearizable", _epochs_unchecked),
    "a signal is not taken out": Control("signal", _signals_stay),
    "an acknowledged append is dropped": Control("not linearizable", _appends_dropped),
    "idempotency keys are forgotten": Control("mark-", _keys_forgotten),
    "a lease is given to two": Control("(I4)", _leases_shared),
    "a signal that was sent is lost": Control("is lost", _signals_lost),
    "runs of the dead are not found": Control(
        "nobody goes on with it", lambda connection, _: _Forgetful(connection)
    ),
    "intents are recorded too late": Control("had its effect", around=_intents_late),
    "retention does not heed unfinished runs": Control(
        "removed by retention", around=_runs_unheeded
    ),
    "the world ignores fencing tokens": Control(
        "had its effect 2 times", around=_fences_ignored, rare=True
    ),
}


def found_by(name: str, seeds: Sequence[int]) -> Simulated | None:
    """The first of some simulations of something broken that says so; None: all are blind."""
    control = CONTROLS[name]
    for seed in seeds:
        with control.around():
            outcome = simulate(seed, control.break_)
        if any(control.finds in violation for violation in outcome.violations):
            return outcome
    return None
