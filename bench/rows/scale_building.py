"""A store of very many agents, written by the committer as the library's own writers use it.

Each commit is a proposal: drafted, packed, linked to its log's end, checked and inserted by the
backend along with its branch's head and its run's row. What is left out is what has no part in the
file: the typed drafts of the states. Many agents propose at once, so that many commits share a
transaction, as they do under load.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import perdure
from bench.corpus import texts
from perdure.core.format import chain
from perdure.core.values import ops
from perdure.core.values.ops import Op
from perdure.engine.functions.orders import Order
from perdure.model import MAIN, Cause, RunInfo
from perdure.storage.appending import NOTHING, Riders
from perdure.storage.capabilities import Backend
from perdure.storage.locate import locate
from perdure.storage.log.committer import Committer
from perdure.storage.log.proposals import HERE, Committed, Proposal

COMMITS = 10
"""Of each agent: it is created, its run begins, messages come, the run ends or waits."""

TEXT_SIZE = 200
WAITING_EVERY = 10
"""Each tenth agent's run waits, for a time that is far away."""

AT_ONCE = 2000
"""Agents that are at work at the same time: their logs grow side by side."""

EXECUTOR = "0123456789ab"
FAR_US = 10 * 365 * 86_400 * 1_000_000
SCHEMA = perdure.Schema(dict)

Progress = Callable[[int], None]


@perdure.agent(dict)
def caring(run: perdure.Run[dict[str, Any]]) -> int:
    """The function of all the runs."""
    return len(run.state.get("messages", ()))


def agent_name(number: int) -> str:
    return f"agent-{number:08}"


def grow(path: Path, first: int, count: int, progress: Progress = lambda _: None) -> None:
    """Add agents, with all their commits and a run each, to a store, which is made if need be.

    Args:
        first: number of the first one.
        progress: called after each wave, with the number of agents that are there.
    """
    backend = locate(path, durability="os", create=True)
    committer = Committer(backend)
    try:
        for number in range(first, first + count, AT_ONCE):
            wave = range(number, min(number + AT_ONCE, first + count))
            _Wave(committer, backend, wave).write()
            progress(wave.stop)
    finally:
        committer.close()
        backend.close()


class _Wave:
    """Agents that are at work at the same time."""

    def __init__(self, committer: Committer, backend: Backend, numbers: Iterable[int]) -> None:
        self._committer = committer
        self._soon = backend.now() + FAR_US
        self._logs = [_Log(number) for number in numbers]

    def write(self) -> None:
        given = texts(1000, TEXT_SIZE)
        self._commit([log.create() for log in self._logs])
        self._commit([log.begin() for log in self._logs])
        for turn in range(COMMITS - 3):
            self._commit(
                [log.hear(given[(log.number + 7 * turn) % len(given)]) for log in self._logs]
            )
        self._commit([log.end(self._soon) for log in self._logs])

    def _commit(self, proposals: Sequence[Proposal]) -> None:
        """All of them, in as few transactions as the committer makes of it."""
        left = len(proposals)
        done = threading.Event()

        def settled() -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        for proposal in proposals:
            self._committer.submit_soon(proposal, settled)
        done.wait()
        for log, proposal in zip(self._logs, proposals, strict=True):
            log.take(proposal.outcome())


class _Log:
    """One agent's log, and what is proposed next for it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.no: int | None = None
        self.seq = 0
        self._name = agent_name(number)
        self._order = Order.of(caring, self._name, MAIN, (), {}, storable=True)
        self._row = RunInfo(
            f"{self._name}/{self._order.function}/{MAIN}",
            self._name,
            0,
            MAIN,
            self._order.function,
            MAIN,
            "running",
            HERE,
            args=self._order.args,
            turn_at=HERE,
            version=self._order.version,
            started_at_micros=HERE,
        )

    def take(self, committed: Committed) -> None:
        """Its latest proposal is in."""
        self.no, self.seq = committed.no, committed.seq
        if self._row.started == HERE and self.seq > 1:
            self._row = replace(
                self._row, started=self.seq, turn_at=self.seq, started_at_micros=committed.at_micros
            )

    def create(self) -> Proposal:
        state = {"customer": f"c-{self.number}", "status": "open", "turns": 0, "messages": []}
        return self._proposal(Cause("create"), [ops.Set((), state)])

    def begin(self) -> Proposal:
        record = {"t": "run-started", "run": self._row.id, **self._order.to_plain()}
        return self._of_run("run-started", record, {})

    def hear(self, text: str) -> Proposal:
        message = {"role": "user", "content": text}
        delta: list[Op] = [ops.Append(("messages",), [message]), ops.Increment(("turns",), 1)]
        return self._proposal(Cause("edit", "user message added"), delta)

    def end(self, wake_at: int) -> Proposal:
        """Every tenth waits; the others are done."""
        run = self._row.id
        if self.number % WAITING_EVERY == 0:
            record = {
                "t": "run-waiting",
                "run": run,
                "waits": "a time",
                "wake_at": wake_at,
                "seen": 0,
            }
            return self._of_run(
                "run-waiting",
                record,
                {
                    "status": "waiting",
                    "waits": "a time",
                    "wake_at_micros": wake_at,
                },
            )
        record = {"t": "run-finished", "run": run, "status": "done", "value": COMMITS}
        return self._of_run(
            "run-finished",
            record,
            {
                "status": "done",
                "ended": HERE,
                "result": COMMITS,
            },
        )

    def _of_run(self, kind: str, record: Mapping[str, Any], changed: Mapping[str, Any]) -> Proposal:
        row = replace(self._row, **changed)
        riders = Riders(records=[record], runs=[row])
        return self._proposal(Cause(kind, run=row.id), [], riders)

    def _proposal(self, cause: Cause, delta: Sequence[Op], riders: Riders = NOTHING) -> Proposal:
        draft = chain.Draft(
            self._name,
            1,
            MAIN,
            (self.seq,) if self.seq else (),
            SCHEMA.id,
            SCHEMA.version,
            EXECUTOR,
            0,
            cause,
            chain.pack_payload(delta, riders.records),
        )
        return Proposal(draft, self.no, self.seq or None, riders)
