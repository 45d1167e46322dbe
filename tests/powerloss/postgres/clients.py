"""`python -m tests.powerloss.postgres.clients URL FOLDER DURABILITY`: agents at work on a server
whose machine may lose its power. This is another machine, which has its own, but may be killed.

What is acknowledged is noted in the folder before anything else is asked for; what was asked for
and not acknowledged is asked for again. Once the folder has a file ``stop``, all come to an end.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct

import perdure
from perdure.engine.control.run_handle import RunHandle
from perdure.engine.dispatch.worker import Worker
from perdure.model import Durability
from perdure.store import Store
from tests.chaos import agents

WRITERS = 3
EDITS = 40
"""Of one agent; then a writer goes on with the next one."""

SIGNALS = 12
"""That one run waits for."""

Kind = Literal["edit", "signal", "start", "done"]
LEASE_TTL = timedelta(seconds=3)
AGAIN_S = 0.1


class Acknowledged(Struct, frozen=True):
    """That something was done. `at_ns`: by the monotonic clock."""

    at_ns: int
    kind: Kind
    which: int
    number: int


class Notes:
    """What was acknowledged, kept outside of all stores."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "acknowledged"
        self._stop = folder / "stop"

    def note(self, kind: Kind, which: int, number: int) -> None:
        line = f"{time.monotonic_ns()} {kind} {which} {number}\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, line.encode())  # one write: whole, or not there
        os.close(file)

    def all(self) -> list[Acknowledged]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [
            Acknowledged(int(at), cast(Kind, kind), int(which), int(number))
            for at, kind, which, number in map(str.split, lines)
        ]

    def next(self, kind: Kind, which: int) -> int:
        """What comes after the last that was acknowledged."""
        found = [one.number for one in self.all() if (one.kind, one.which) == (kind, which)]
        return max(found, default=-1) + 1

    @property
    def stopping(self) -> bool:
        return self._stop.exists()

    def stop(self) -> None:
        self._stop.touch()


def writer(which: int, number: int) -> str:
    """The agent that has a writer's edit of that number."""
    return f"writer-{which}-{number // EDITS}"


def listener(number: int) -> str:
    """The agent whose run waits for the signal of that number."""
    return f"listener-{number // SIGNALS}"


def payer(number: int) -> str:
    return f"payer-{number}"


# -- what they do ----------------------------------------------------------------------------------

PAYMENTS = ("again", "probed", "settled")
"""The operations of one payer: the first may be repeated."""


@perdure.agent(dict, name="powerloss-listen")
def listen(run: perdure.Run[dict[str, Any]]) -> list[int]:
    for _ in range(SIGNALS):
        heard = run.wait_for("tick", schema=int)
        with run.edit("heard") as draft:
            draft.setdefault("heard", []).append(heard)
    return list(run.state["heard"])


@perdure.agent(dict, name="powerloss-pay")
def pay(run: perdure.Run[dict[str, Any]]) -> list[str]:
    done = []
    for number, way in enumerate((agents.again, agents.probed, agents.settled)):
        agents.think(number)
        done.append(way(run.agent, PAYMENTS[number]))
        with run.edit(f"paid {number}") as draft:
            draft["paid"] = number + 1
    return done


def _put(number: int, draft: Any) -> None:
    draft["done"].append(number)


class Clients:
    """One process of them."""

    def __init__(self, store: Store, notes: Notes, durability: Durability) -> None:
        self._store = store
        self._durability = durability
        self._notes = notes
        self._failed = False

    def work(self) -> bool:
        """Until they are told to stop; whether all went well."""
        worker = Worker(self._store, [listen, pay])
        tasks: list[Callable[[], None]] = [partial(self._write, which) for which in range(WRITERS)]
        if self._durability == "sync":  # else these would sync the edits, too
            tasks += [self._signal, self._order]
        threads = [threading.Thread(target=self._try, args=(task,)) for task in tasks]

        def await_end() -> None:
            for thread in threads:
                thread.join()
            worker.stop()

        for thread in [*threads, threading.Thread(target=await_end)]:
            thread.start()
        worker.run(signals=False)
        return not self._failed

    def _try(self, task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException:
            traceback.print_exc()
            self._failed = True
            os._exit(1)  # nobody waits for the others

    def _insist(self, ask: Callable[[], Any]) -> Any:
        """Until it is answered: each call has a key, and is done once."""
        while True:
            try:
                return ask()
            except perdure.StoreUnavailable:
                time.sleep(AGAIN_S)

    def _write(self, which: int) -> None:
        number, agent = self._notes.next("edit", which), None
        while not self._notes.stopping:
            name = writer(which, number)
            if agent is None or agent.id != name:
                initial: dict[str, Any] = {"done": []}
                agent = self._insist(partial(self._store.agent, name, initial=initial))
            self._insist(partial(agent.update, partial(_put, number), key=f"k{number}"))
            self._notes.note("edit", which, number)
            number += 1

    def _signal(self) -> None:
        number = self._notes.next("signal", 0)
        while True:
            if number % SIGNALS == 0:
                if number:
                    self._insist(self._listening(number - 1).result)
                if self._notes.stopping:
                    return
            handle = self._listening(number)
            try:
                self._insist(partial(handle.signal, "tick", number, key=f"t{number}"))
            except perdure.Conflict:
                # The run has ended: it was heard, and whoever sent it was killed before it knew.
                if number not in self._insist(handle.result):
                    raise
            self._notes.note("signal", 0, number)
            number += 1

    def _listening(self, number: int) -> RunHandle[Any]:
        """The run that waits for the signal of that number."""
        found: RunHandle[Any] = self._insist(partial(self._store.start, listen, listener(number)))
        return found

    def _order(self) -> None:
        number = self._notes.next("done", 0)
        while not self._notes.stopping or number < self._notes.next("start", 0):
            handle = self._insist(partial(self._store.start, pay, payer(number)))
            self._notes.note("start", 0, number)
            self._insist(handle.result)
            self._notes.note("done", 0, number)
            number += 1


def main(url: str, folder: str, durability: str) -> int:
    agents.come(Path(folder))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    asked = cast(Durability, durability)
    with perdure.open(url, durability=asked, lease_ttl=LEASE_TTL) as store:
        return 0 if Clients(store, Notes(Path(folder)), asked).work() else 1


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
