"""The processes that get killed: executors of two kinds, and the people who answer and settle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import perdure
import perdure.aio  # before the forks, and not again in each process
import perdure.engine.dispatch.async_drive
import perdure.engine.execution.async_performer
from perdure.engine.dispatch.worker import Worker
from perdure.engine.functions.other_versions import UNKNOWN
from perdure.model import Durability, RunInfo
from perdure.store import Store
from perdure.types import WorkerEvent
from tests.chaos import agents
from tests.chaos.agents import ASYNC, FUNCTIONS, SIGNALS

LOOK_S = 0.05
AWAY_MAX_S = 60.0
SCENARIOS = tuple(name for name in FUNCTIONS if name != "child")


@dataclass(frozen=True, slots=True)
class Site:
    """One round's place.

    Attributes:
        copies: how many agents there are of each kind.
        rounds: how much each has to do.
        url: of the store; "": a file in the folder.
    """

    folder: Path
    copies: int
    rounds: int
    durability: Durability = "os"
    lease_ttl_s: float = 0.5
    url: str = ""

    @property
    def finished(self) -> Path:
        """There once all runs are finished."""
        return self.folder / "finished"

    @property
    def where(self) -> str:
        return self.url or str(self.folder / "s.db")

    def open(self) -> Store:
        until = time.monotonic() + AWAY_MAX_S
        while True:
            try:
                return perdure.open(
                    self.where,
                    durability=self.durability,
                    lease_ttl=timedelta(seconds=self.lease_ttl_s),
                )
            except perdure.StoreUnavailable:  # its server was killed, too
                if not self.url or time.monotonic() > until:
                    raise
            time.sleep(LOOK_S)

    def orders(self) -> list[tuple[str, str]]:
        """What is to be run: names of functions and agents."""
        return [(name, f"{name}-{n}") for name in SCENARIOS for n in range(self.copies)]

    def note(self, file: str, text: str) -> None:
        """For whoever looks at it afterwards."""
        descriptor = os.open(self.folder / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"[{os.getpid()}] {text}\n".encode())
        os.close(descriptor)


def spawn(site: Site, main: Callable[[Site], None]) -> int:
    """Fork a process that does `main`; its id. This process has no threads and no open store."""
    conductor = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        errors = os.open(site.folder / "errors", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(errors, 2)
        agents.come(site.folder)
        threading.Thread(target=_end_with, args=(conductor,), daemon=True).start()
        main(site)
    except BaseException as error:
        # A server that is away for long is said, and nothing odd: somebody starts the next process.
        away = site.url and isinstance(error, perdure.StoreUnavailable)
        site.note("told" if away else "odd", traceback.format_exc())
        os._exit(1)
    os._exit(0)


def _end_with(conductor: int) -> None:
    while os.getppid() == conductor:
        time.sleep(1)
    os._exit(0)


# -- executors -----------------------------------------------------------------------------------


def work_old(site: Site) -> None:
    """A worker, as users have them, of the program before a deploy."""
    _work(site, "1")


def work_new(site: Site) -> None:
    """One of the program that is deployed."""
    _work(site, "2")


def _work(site: Site, version: str) -> None:
    agents.is_of_version(version)
    with site.open() as store:

        def on_event(event: WorkerEvent) -> None:
            if event.kind == "ready":
                site.note("ready", "work")

        worker = Worker(store, FUNCTIONS.values(), limit=6, on_event=on_event)

        def watch() -> None:
            while not site.finished.exists():
                time.sleep(LOOK_S)
            worker.stop()

        threading.Thread(target=watch, daemon=True).start()
        worker.run(signals=False)


def stand_by(site: Site) -> None:
    """All runs at once, by `run`: what another executor has is stood by for."""
    if random.random() < 0.5:
        asyncio.run(_stand_by_async(site))
        return
    with site.open() as store:
        threads: dict[str, threading.Thread] = {}
        while not site.finished.exists():
            for info in store.runs(unfinished=True):
                going = threads.get(info.id)
                if info.function in ASYNC or info.status == "needs_attention":
                    continue
                if going is None or not going.is_alive():
                    threads[info.id] = threading.Thread(
                        target=_run, args=(site, store, info), daemon=True
                    )
                    threads[info.id].start()
            time.sleep(LOOK_S)


def _run(site: Site, store: Store, info: RunInfo) -> None:
    try:
        store.run(FUNCTIONS[info.function], info.agent, site.rounds)
    except perdure.PerdureError as error:
        _note_unless_expected(site, error)
    except BaseException:
        site.note("odd", traceback.format_exc())


async def _stand_by_async(site: Site) -> None:
    async with perdure.open_async(
        site.where,
        durability=site.durability,
        lease_ttl=timedelta(seconds=site.lease_ttl_s),
    ) as store:

        async def run(info: RunInfo) -> None:
            try:
                await store.run(FUNCTIONS[info.function], info.agent, site.rounds)
            except perdure.PerdureError as error:
                _note_unless_expected(site, error)
            except Exception:
                site.note("odd", traceback.format_exc())

        tasks: dict[str, asyncio.Task[None]] = {}
        while not site.finished.exists():
            for info in await store.runs(unfinished=True):
                if info.function not in ASYNC or info.status == "needs_attention":
                    continue
                if info.id not in tasks or tasks[info.id].done():
                    tasks[info.id] = asyncio.create_task(run(info))
            await asyncio.sleep(LOOK_S)
        for task in tasks.values():
            task.cancel()


EXPECTED = (perdure.NeedsAttention, perdure.StoreUnavailable, perdure.Conflict)


def _note_unless_expected(site: Site, error: perdure.PerdureError) -> None:
    site.note("told", f"{type(error).__name__}: {error}")
    if not isinstance(error, EXPECTED):
        site.note("odd", "".join(traceback.format_exception(error)))


# -- people --------------------------------------------------------------------------------------


def care(site: Site) -> None:
    """Asks for the runs, sends signals, answers questions, settles what is in doubt; and says when
    all are finished. Killed and begun anew, too."""
    with site.open() as store:
        for name, agent in site.orders():
            store.start(FUNCTIONS[name], agent, site.rounds)
        while True:
            unfinished = store.runs(unfinished=True)
            failed = store.runs(function="returning", status=["failed"])
            if not unfinished and not failed:
                site.finished.touch()
                return
            for info in unfinished:
                with contextlib.suppress(perdure.Conflict):  # it goes on meanwhile
                    _care_for(site, store, info)
            for info in failed:
                with contextlib.suppress(perdure.Conflict):
                    _set_back(store, info)
            time.sleep(LOOK_S)


def _set_back(store: Store, info: RunInfo) -> None:
    """To any step that it came to, now that its code is mended."""
    handle = store.handle(info.id)
    agents.world.mend(info.agent)
    events = [event for event in handle.report().events if event.kind in ("step", "tool", "edit")]
    handle.retry(random.choice(events).place, effects=random.choice(("ask", "reuse")))


def _care_for(site: Site, store: Store, info: RunInfo) -> None:
    handle = store.handle(info.id)
    if info.function.startswith("listening"):
        for number in range(site.rounds):
            for place, name in enumerate(_ticks(info.function, number)):
                if random.random() < 0.7:
                    handle.signal(name, number * SIGNALS + place, key=f"{name}-{place}")
                else:
                    break  # in order: the next comes another time
        for question in handle.questions():
            handle.answer(True, to=question, by="chaos")
    if info.function == "returning":
        for name in ("broken", "mended"):
            handle.signal(name, key="once")
    if info.status != "needs_attention":
        return
    doubtful = [effect for effect in handle.effects() if effect.open]
    for effect in doubtful:
        op = effect.preview.partition("op='")[2].partition("'")[0]
        if effect.state == "made before":  # it had done all that it had to
            handle.settle(effect.place, done=op, by="chaos")
            continue
        (branch,) = store.agent(info.agent).branches()
        if branch.holder is not None and store.alive(branch.holder):
            return  # somebody tries it again
        # Whoever had it under this epoch or an older one does nothing any more, once this has
        # looked: the next owner's is newer.
        if agents.world.look(info.agent, effect.key, branch.epoch + 1):
            handle.settle(effect.place, done=op, by="chaos")
        else:
            handle.settle(effect.place, not_done=True, by="chaos")
    if not doubtful and UNKNOWN not in (info.problem or ""):  # else it goes on by itself
        site.note("attention", f"{info.id}: {info.problem}")
        handle.resume()


def _ticks(function: str, number: int) -> list[str]:
    """Names of the signals of a round, in the order in which they are sent."""
    if function == "listening":
        return [f"tick-{number}"] * SIGNALS
    return [f"tick-{number}-{place // 2}" for place in range(SIGNALS)]


def heard(rounds: int) -> list[int]:
    """What one that listens has heard in the end: each signal once, in order."""
    return list(range(rounds * SIGNALS))


def look(check: Callable[[Site, Store], Any]) -> Callable[[Site], None]:
    """A process that opens the store and checks it."""

    def main(site: Site) -> None:
        with site.open() as store:
            check(site, store)

    return main
