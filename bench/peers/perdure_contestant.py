"""Perdure in the field: `FOLDER edit|run [URL]`.

`edit` keeps the conversation as the state of an agent, and each message is an edit of it. `run`
keeps it as the results of the steps of a run, as workflow engines do. All else is the same.
"""

from __future__ import annotations

import sys
import threading
import time
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import ClassVar

import perdure
from bench.peers.contest import (
    LISTED,
    Contestant,
    Pace,
    contend,
    message,
    timed,
    token,
)
from bench.peers.serving import Answer, Missing, result
from bench.ticket import Message, Ticket

NAME = "conversation"
CREATED = 1
"""The commit before the first message: the agent's creation."""

LATE = ("perdure.store", "zstandard", "pydantic.type_adapter")
"""What opening would import; with others that is done as they start."""

PAUSE_S = 0.02
"""Between two signals, so that the run has gone back to waiting."""

pace = Pace()
woken: list[float] = []


class Leaving(BaseException):
    """Leaves a run in the middle, as `SystemExit` would."""


@perdure.step
def answer(number: int) -> str:
    return result(number)


@perdure.step
async def answer_soon(number: int) -> str:
    return result(number)


@perdure.tool(on_crash="fail")
def act(number: int) -> str:
    return result(number)


@perdure.step
def speak(number: int) -> str:
    if not pace.passed(number):
        raise Leaving
    return message(number)


@perdure.agent(dict)
def answering(run: perdure.Run[dict[str, object]], steps: int) -> None:
    for number in range(steps):
        answer(number)


@perdure.agent(dict)
async def answering_soon(run: perdure.AsyncRun[dict[str, object]], steps: int) -> None:
    for number in range(steps):
        await answer_soon(number)


@perdure.agent(dict)
def acting(run: perdure.Run[dict[str, object]], calls: int) -> None:
    for number in range(calls):
        act(number)


@perdure.agent(dict)
def conversing(run: perdure.Run[dict[str, object]]) -> None:
    messages: list[str] = []
    while True:
        messages.append(speak(len(messages) + 1))


@perdure.agent(dict)
def listening(run: perdure.Run[dict[str, object]], signals: int) -> int:
    """One signal a turn, as an agent does that lives for long."""
    run.wait_for("ping")
    woken.append(time.monotonic())
    return run.again(signals - 1) if signals > 1 else 0


class Ours(Contestant):
    """What both ways do alike."""

    package: ClassVar[str] = "perdure"

    def __init__(self, folder: str, *options: str) -> None:
        super().__init__(folder, *options)
        self.url = options[0] if options else str(Path(folder) / "ours.db")
        self._workers: list[perdure.Worker] = []
        backend = "postgres" if options else "sqlite"
        for name in (f"perdure.storage.{backend}.backend", *LATE):
            import_module(name)

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self.store.close()

    def open(self) -> int:
        self.store = perdure.open(self.url)
        return self.take_up()

    def take_up(self) -> int:
        raise NotImplementedError

    def steps(self, count: int) -> Answer:
        with timed() as clock:
            self.store.run(answering, self.new_name(), count)
        return clock.answer(count)

    def tools(self, count: int) -> Answer:
        with timed() as clock:
            self.store.run(acting, self.new_name(), count)
        return clock.answer(count)

    def concurrent(self, runs: int, count: int) -> Answer:
        """Async runs of async steps."""
        import asyncio  # what its other commands do without

        names = [self.new_name() for _ in range(runs)]

        async def together() -> Answer:
            async with perdure.open_async(self.url) as store:
                with timed() as clock:
                    await asyncio.gather(
                        *(store.run(answering_soon, name, count) for name in names)
                    )
                return clock.answer(runs * count)

        return asyncio.run(together())

    def tokens(self, count: int) -> Answer:
        agent = self.store.agent(self.new_name(), Ticket, initial=Ticket(customer="c-7"))
        with agent.edit("an answer begins") as draft:
            draft.messages.append(Message(role="agent", content=""))
        texts = [token(number) for number in range(count)]
        with timed() as clock:
            for text in texts:
                with agent.edit("token") as draft:
                    draft.messages[-1].content += text
        return clock.answer(count)

    def recent(self) -> Answer:
        agent = self.store.agent(NAME)
        with timed() as clock:
            found = list(islice(agent.log(newest_first=True), LISTED))
        assert found
        return clock.answer(1)

    def delete(self) -> Answer:
        with timed() as clock:
            self.store.delete(NAME)
        return clock.answer(1)

    def signals(self, count: int) -> Answer:
        woken.clear()
        handle = self.idling(count)
        seconds = []
        for number in range(count):
            time.sleep(PAUSE_S)
            sent = time.monotonic()
            handle.signal("ping", number)
            while len(woken) <= number:
                time.sleep(0.0005)
            seconds.append(woken[number] - sent)
        return {"seconds": seconds}

    def idle(self) -> Answer:
        self.idling(1)
        return {}

    def idling(self, signals: int) -> perdure.RunHandle[int]:
        """A run that waits for signals, and a worker that loads it when they come."""
        handle = self.store.start(listening, self.new_name(), signals)
        worker = perdure.Worker(self.store, [listening])
        self._workers.append(worker)
        threading.Thread(target=worker.run, kwargs={"signals": False}, daemon=True).start()
        while handle.status != "waiting":
            time.sleep(0.001)
        return handle


class Edited(Ours):
    def take_up(self) -> int:
        self.agent = self.store.agent(NAME, Ticket, initial=Ticket(customer="c-7"))
        return len(self.agent.state.messages)

    def say(self, count: int) -> Answer:
        first = len(self.agent.state.messages) + 1
        said = [Message(role="user", content=message(first + number)) for number in range(count)]
        with timed() as clock:
            for one in said:
                with self.agent.edit("message added") as draft:
                    draft.messages.append(one)
        return clock.answer(count)

    def fork(self, at: int) -> Answer:
        name = self.new_name()
        with timed() as clock:
            branch = self.agent.fork(name, at=CREATED + at)
            with branch.edit("another way") as draft:
                draft.status = "forked"
        return clock.answer(1)

    def past(self, at: int) -> Answer:
        with timed() as clock:
            found = self.agent.at(CREATED + at).state
        assert len(found.messages) == at
        return clock.answer(1)


class Ran(Ours):
    def take_up(self) -> int:
        self._thread = threading.Thread(target=self._converse, daemon=True)
        self._thread.start()
        return pace.arrived() - 1

    def _converse(self) -> None:
        try:
            self.store.run(conversing, NAME)
        except Leaving:
            return
        finally:
            pace.leave()

    def say(self, count: int) -> Answer:
        return pace.go_on(count)

    def delete(self) -> Answer:
        raise Missing("a run that is under way is not deleted")

    def close(self) -> None:
        pace.leave()
        self._thread.join()
        super().close()


if __name__ == "__main__":
    folder, kind, *options = sys.argv[1:]
    contend({"edit": Edited, "run": Ran}[kind](folder, *options))
