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


def work(folder: str, ttl_s: float, limit: int) -> None:
    """A worker process, until it is told to end. It says that it is ready by a file."""

    def ready(event: perdure.types.WorkerEvent) -> None:
        with open(Path(folder) / f"events-{os.getpid()}", "a", encoding="utf-8") as file:
            file.write(f"{event.kind} {event.run}\n")

    with perdure.open(Path(folder) / "m.db", lease_ttl=timedelta(seconds=ttl_s)) as store:
        perdure.Worker(store, FUNCTIONS, limit=limit, on_event=ready).run()
    assert threading.active_count() < 20
