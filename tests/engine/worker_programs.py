"""Workers that tests start as processes of their own, and what they run."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import perdure
from tests.engine.programs import migration, note


@perdure.agent(dict)
def noting(run: perdure.Run[dict], folder: str, number: int) -> int:
    run.call(note, folder, str(number))
    return number


@perdure.step
async def fetch(page: int) -> int:
    await asyncio.sleep(0.01)
    return page * 10


@perdure.agent(dict)
async def fetching(run: perdure.AsyncRun[dict], pages: int) -> list[int]:
    return list(await asyncio.gather(*(fetch(page) for page in range(pages))))


FUNCTIONS: list[Callable[..., Any]] = [migration, noting, fetching]


def selling(version: str) -> Callable[..., Any]:
    """The program of a deploy: version 2 makes a call more, in front. Each takes its time, and
    gives the version that ended it."""

    @perdure.agent(dict, name="selling", version=version)
    def sell(run: perdure.Run[dict], folder: str) -> list[Any]:
        if version == "2":
            run.call(note, folder, "fee")
        run.call(note, folder, "price")
        run.wait_for("paid")
        return [version, os.getpid()]

    return sell


def work(folder: str, ttl_s: float, limit: int, version: str) -> None:
    """A worker process, until it is told to end. It says that it is ready by a file. With a
    version, it is of the program that has only that one."""

    def ready(event: perdure.types.WorkerEvent) -> None:
        with open(Path(folder) / f"events-{os.getpid()}", "a", encoding="utf-8") as file:
            file.write(f"{event.kind} {event.run}\n")

    with perdure.open(Path(folder) / "m.db", lease_ttl=timedelta(seconds=ttl_s)) as store:
        functions = [selling(version)] if version else FUNCTIONS
        perdure.Worker(store, functions, limit=limit, on_event=ready).run()
    assert threading.active_count() < 20
