"""One kill, the starts after it, and what was seen: in the ledger, and from the processes."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import perdure
from bench.crash import card, company, nursery
from bench.crash.contestants import AGENTS, OURS, ROOT, Contestant
from bench.crash.talking import Talking

STARTS_MAX = 3
LIMIT_S = 60.0
"""How long a started process may take; one that is not through by then "stays"."""
IMPORT_S = 300.0
STAYS, FAILS = "stays", "fails"
PREVIEW = 300
REPORT = "report"


@dataclass(frozen=True, slots=True)
class Kill:
    """When: at a moment of `card.MOMENTS`, or in place of the k-th write after the company has
    charged, from 1; 0: not at all, the writes are only counted."""

    moment: str = ""
    write: int = 0

    def __str__(self) -> str:
        return self.moment or f"write {self.write}"


@dataclass(frozen=True, slots=True)
class Seen:
    """How a run stands, to be seen from outside.

    Attributes:
        charges: how often the card was charged, by the company's ledger.
        status: as the contestant reported it (`card.FINISHED`, `card.ASKS`, `card.DOUBTS`, or its
            own word), `STAYS` or `FAILS`.
        said: its result, or the beginning of its error.
    """

    charges: int
    status: str
    said: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one trial.

    Attributes:
        killed: whether the kill came before the process had told its result.
        starts: how often the agent's process was started after it.
        writes: what was counted after the company had charged; the last one did not happen.
        seen: at the end, without any help.
        settled: after a person, who was asked, had looked and answered.
    """

    contestant: str
    kill: Kill
    killed: bool
    starts: int
    writes: tuple[str, ...]
    seen: Seen
    settled: Seen | None = None


class Place:
    """Where the trials of one contestant are made: its nursery, and its card company.

    Args:
        world: what the agent's processes must know more, as environment variables.
    """

    def __init__(self, contestant: Contestant, folder: Path, world: Mapping[str, str]) -> None:
        self.contestant = contestant
        self.folder = folder
        self.ledger = folder / "ledger"
        folders = [str(ROOT)]
        if contestant.python == OURS:
            folders.append(str(Path(perdure.__file__).parents[1]))
        environment = {**os.environ, **world, "PYTHONPATH": os.pathsep.join(folders)}
        keys = ["--keys"] * contestant.keys
        with ExitStack() as stack:
            log, python = folder / "place.log", contestant.python
            self.desk = stack.enter_context(
                Talking(
                    [sys.executable, "-m", company.__name__, self.ledger, *keys], log, environment
                )
            )
            self.nursery = stack.enter_context(
                Talking(
                    [python, "-m", nursery.__name__, f"{AGENTS}.{contestant.program}"],
                    log,
                    environment,
                )
            )
            self.environment = {card.COMPANY: str(self.desk.hear()["port"])}
            self.nursery.hear(IMPORT_S)
            self._stack = stack.pop_all()

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def answering(self, whether: bool) -> None:
        """From now on the company answers those who charge, or lets them wait."""
        self.desk.tell(answer=whether)
        while "answering" not in self.desk.hear():
            pass  # of charges that nobody waited to hear of


class Trial:
    """One order of one customer, with a database of its own."""

    def __init__(self, place: Place, order: str) -> None:
        self._place, self._order = place, order
        self._folder = place.folder / order
        self._folder.mkdir()
        self._report, self._log = self._folder / REPORT, self._folder / "agent.log"

    def observe(self, kill: Kill) -> Outcome:
        """Kill the agent, start it until it tells how it stands, and look."""
        writes = self._die(kill) if kill.moment else self._trace(kill.write)
        report, starts = self._reported(), 0
        killed = report is None
        while report is None and starts < STARTS_MAX:
            starts += 1
            report = self._go_on()
        seen, settled = self._seen(report), None
        if seen.status == card.ASKS:
            settled = self._seen(self._go_on("--settle"))
        name = self._place.contestant.name
        return Outcome(name, kill, killed, starts, writes, seen, settled)

    def _die(self, kill: Kill) -> tuple[str, ...]:
        self._start({card.MOMENT: kill.moment})
        ended = self._ended()
        if ended["status"] != -signal.SIGKILL or ended["late"]:
            raise AssertionError(f"it did not die at “{kill.moment}”: {ended}, {self._words()}")
        return ()

    def _trace(self, kill_at: int) -> tuple[str, ...]:
        """What was written after the charge, up to the report that the run has ended."""
        desk, nursery = self._place.desk, self._place.nursery
        self._place.answering(False)
        self._start({})
        try:
            while desk.hear().get("charged") != self._order:  # then it waits for the answer
                pass
            nursery.tell(kill_at=kill_at)
            nursery.hear()
        finally:
            self._place.answering(True)
        writes: list[str] = nursery.hear(LIMIT_S)["writes"]
        told = next((n for n, write in enumerate(writes) if write.endswith(f" {REPORT}")), None)
        return tuple(writes if told is None else writes[: told + 1])

    def _go_on(self, *more: str) -> dict[str, Any] | None:
        """Start it; what it reports, None if it was killed by somebody else."""
        self._report.unlink(missing_ok=True)
        self._start({card.MOMENT: ""}, *more)
        ended = self._ended()
        report = self._reported()
        if report is None and ended["late"]:
            return {"status": STAYS, "said": f"not through after {LIMIT_S:.0f} s"}
        if report is None and ended["status"] != -signal.SIGKILL:
            return {"status": FAILS, "said": f"{ended['status']}: {self._words()}"}
        return report

    def _start(self, environment: Mapping[str, str], *more: str) -> None:
        options = self._place.contestant.options
        self._place.nursery.tell(
            arguments=[str(self._folder), self._order, *options, *more],
            log=str(self._log),
            environment={**self._place.environment, card.REPORT: str(self._report), **environment},
        )
        self._place.nursery.hear()

    def _ended(self) -> dict[str, Any]:
        self._place.nursery.tell(limit_s=LIMIT_S)
        return self._place.nursery.hear(2 * LIMIT_S)

    def _reported(self) -> dict[str, Any] | None:
        """What the process told; None if it was killed before that, or in the middle of it."""
        try:
            report: dict[str, Any] = json.loads(self._report.read_text("utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return report

    def _seen(self, report: dict[str, Any] | None) -> Seen:
        made = [made for made in company.read(self._place.ledger) if made["order"] == self._order]
        report = report or {"status": FAILS, "said": "killed again and again"}
        return Seen(len(made), report["status"], report["said"][:PREVIEW])

    def _words(self) -> str:
        return self._log.read_text("utf-8", "replace").strip()[-PREVIEW:]
