"""DBOS doing what it is asked; runs inside its own environment: `FOLDER [--wal | URL]`.

As shipped: nothing but its name, database and log level is configured. With --wal the database
file is in WAL mode before DBOS opens it, which SQLite remembers in the file. With the URL of a
PostgreSQL database, its tables are there. OTLP is off as
shipped, and so is the version check: the application version is fixed, so that a restarted process
takes its workflows up whatever is edited here.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import sqlalchemy  # type: ignore[import-not-found]
from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found]

from bench.peers.dbos_signals import signals
from bench.peers.serving import Answer, Gate, result, serve, spent

gate = Gate()
entered: dict[str, float] = {}


def _answer(number: int) -> str:
    gate.passed(number)
    return result(number)


async def _answer_soon(number: int) -> str:
    return result(number)


answer = DBOS.step(name="answer")(_answer)
answer_soon = DBOS.step(name="answer_soon")(_answer_soon)


def _work(steps: int) -> int:
    entered[DBOS.workflow_id] = time.monotonic()
    return sum(len(answer(number)) for number in range(1, steps + 1))


async def _work_soon(steps: int) -> int:
    total = 0
    for number in range(1, steps + 1):
        total += len(await answer_soon(number))
    return total


work = DBOS.workflow(name="work")(_work)
work_soon = DBOS.workflow(name="work_soon")(_work_soon)


def steps(count: int) -> Answer:
    """One workflow of so many steps, one after the other."""

    def run() -> int:
        work(count)
        return count

    return spent(run)


def concurrent(runs: int, count: int) -> Answer:
    """So many async workflows at once, of so many steps each."""

    async def together() -> int:
        handles = [await DBOS.start_workflow_async(work_soon, count) for _ in range(runs)]
        for handle in handles:
            await handle.get_result()
        return runs * count

    return spent(lambda: asyncio.run(together()))


def stop_at(name: str, count: int, number: int) -> Answer:
    """Begin a workflow of `count` steps; answer when step `number` is called, which never ends."""
    gate.close_at(number)
    with SetWorkflowID(name):
        DBOS.start_workflow(work, count)
    return gate.first()


def keep(name: str, count: int) -> Answer:
    """A finished workflow of so many steps, for `replay`."""
    with SetWorkflowID(name):
        work(count)
    return {}


def replay(name: str, count: int) -> Answer:
    """Take a copy of the kept workflow up at its last step; from the moment in which the function
    is called to that in which the last step is: reading, and going over, the others."""
    gate.open()
    handle = DBOS.fork_workflow(name, count)
    handle.get_result()
    first = gate.first()
    if first["number"] != count:
        raise AssertionError(f"step {first['number']} was called, not only the last, {count}")
    return {"s": first["at"] - entered[handle.workflow_id]}


def _pragmas(instance: Any) -> Answer:
    engine = instance._sys_db.engine
    say, names = "PRAGMA", ["journal_mode", "synchronous"]
    if engine.dialect.name == "postgresql":
        say, names = "SHOW", ["server_version", "fsync", "synchronous_commit"]
    with engine.connect() as connection:
        return {
            name: connection.execute(sqlalchemy.text(f"{say} {name}")).scalar() for name in names
        }


def main(folder: str, *options: str) -> None:
    began = time.monotonic()
    path = Path(folder) / "dbos.sqlite"
    url = next((option for option in options if "://" in option), f"sqlite:///{path}")
    if "--wal" in options:
        database = sqlite3.connect(path)
        database.execute("PRAGMA journal_mode = WAL")
        database.close()
    instance = DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "log_level": "ERROR",
            "application_version": "1",
            "executor_id": "local",
        }
    )
    DBOS.launch()
    hello = {
        "name": "DBOS",
        "version": version("dbos"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **_pragmas(instance),
        "launched_s": time.monotonic() - began,
    }
    result(0)  # makes them all
    serve(
        hello,
        {
            "steps": steps,
            "concurrent": concurrent,
            "stop_at": stop_at,
            "first": gate.first,
            "keep": keep,
            "replay": replay,
            "signals": signals,
        },
    )
    os._exit(0)  # a step that waits for its end would keep the process


if __name__ == "__main__":
    main(*sys.argv[1:])
