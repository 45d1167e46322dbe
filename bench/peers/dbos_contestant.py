"""DBOS in the field; runs inside its own environment: `FOLDER [--wal | URL]`.

As shipped: nothing but its name, database and log level is configured; see `dbos_program`. Its
conversation is the results of the steps of one workflow.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path
from typing import ClassVar

from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found]

from bench.peers import dbos_signals
from bench.peers.contest import LISTED, Contestant, Pace, contend, message, timed, token
from bench.peers.serving import Answer, Missing, result

NAME = "conversation"

pace = Pace()
streamed: list[Answer] = []


async def _answer_soon(number: int) -> str:
    return result(number)


def _speak(number: int) -> str:
    pace.passed(number)
    return message(number)


answer = DBOS.step(name="answer")(result)
answer_soon = DBOS.step(name="answer_soon")(_answer_soon)
speak = DBOS.step(name="speak")(_speak)


def _work(steps: int) -> None:
    for number in range(steps):
        answer(number)


async def _work_soon(steps: int) -> None:
    for number in range(steps):
        await answer_soon(number)


def _converse() -> None:
    messages: list[str] = []
    while True:
        messages.append(speak(len(messages) + 1))


def _stream(count: int) -> None:
    texts = [token(number) for number in range(count)]
    with timed() as clock:
        for text in texts:
            DBOS.write_stream("answer", text)
    streamed.append(clock.answer(count))


work = DBOS.workflow(name="work")(_work)
work_soon = DBOS.workflow(name="work_soon")(_work_soon)
converse = DBOS.workflow(name="converse")(_converse)
stream = DBOS.workflow(name="stream")(_stream)


class Workflows(Contestant):
    package: ClassVar[str] = "dbos"

    def open(self) -> int:
        path = Path(self.folder) / "dbos.sqlite"
        url = next((option for option in self.options if "://" in option), f"sqlite:///{path}")
        if "--wal" in self.options and not path.exists():
            database = sqlite3.connect(path)
            database.execute("PRAGMA journal_mode = WAL")
            database.close()
        DBOS(
            config={
                "name": "field",
                "system_database_url": url,
                "log_level": "ERROR",
                "application_version": "1",
                "executor_id": "local",
            }
        )
        DBOS.launch()
        if DBOS.get_workflow_status(NAME) is None:
            with SetWorkflowID(NAME):
                DBOS.start_workflow(converse)
        return pace.arrived() - 1

    def close(self) -> None:
        DBOS.destroy()

    def say(self, count: int) -> Answer:
        return pace.go_on(count)

    def steps(self, count: int) -> Answer:
        with timed() as clock:
            work(count)
        return clock.answer(count)

    def tools(self, count: int) -> Answer:
        raise Missing("records outcomes only")

    def concurrent(self, runs: int, count: int) -> Answer:
        """Async workflows of async steps."""

        async def together() -> Answer:
            with timed() as clock:
                handles = [await DBOS.start_workflow_async(work_soon, count) for _ in range(runs)]
                for handle in handles:
                    await handle.get_result()
            return clock.answer(runs * count)

        return asyncio.run(together())

    def tokens(self, count: int) -> Answer:
        """To a stream, from inside a workflow."""
        stream(count)
        return streamed.pop()

    def fork(self, at: int) -> Answer:
        """Asked for, and copied; the workflow is taken up by its queue later."""
        with timed() as clock:
            handle = DBOS.fork_workflow(NAME, at + 1)
        DBOS.cancel_workflow(handle.workflow_id)
        return clock.answer(1)

    def recent(self) -> Answer:
        """It lists from the first, so the last page is asked for by its offset."""
        total = len(DBOS.list_workflow_steps(NAME, load_output=False))
        with timed() as clock:
            found = DBOS.list_workflow_steps(NAME, limit=LISTED, offset=max(total - LISTED, 0))
        assert found
        return clock.answer(1)

    def delete(self) -> Answer:
        """Cancelled before, as it runs."""
        DBOS.cancel_workflow(NAME)
        with timed() as clock:
            DBOS.delete_workflow(NAME)
        return clock.answer(1)

    def signals(self, count: int) -> Answer:
        return dbos_signals.signals(count)

    def idle(self) -> Answer:
        dbos_signals.wait_for_one()
        return {}


if __name__ == "__main__":
    folder, *options = sys.argv[1:]
    contend(Workflows(folder, *options))
