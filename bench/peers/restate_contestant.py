"""Restate in the field; runs inside its own environment: `FOLDER INGRESS ADMIN PORT`.

This process is the service, on that port of loopback, and the caller. The server, which has the
journal, is another process, and lives on when this one is killed. Its conversation is the results
of the steps of one invocation.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar

import hypercorn.asyncio  # type: ignore[import-not-found]
import hypercorn.config  # type: ignore[import-not-found]
import restate  # type: ignore[import-not-found]

from bench.peers.contest import LISTED, Contestant, Pace, contend, in_threads, message, timed
from bench.peers.serving import Answer, Missing, result

NAME = "conversation"
LONG = timedelta(days=1)
LOOK_S = 0.01
PAUSE_S = 0.02
"""Between two signals, as we have it."""

JOURNAL = (
    "SELECT index, entry_type, name, appended_at FROM sys_journal "
    "WHERE id = '{}' ORDER BY index DESC LIMIT {}"
)

pace = Pace()
waiting: SimpleQueue[str] = SimpleQueue()
"""The awakeables that a handler waits for."""

woken: list[float] = []

# A step of the conversation waits for its turn for as long as others take theirs: with the
# shipped minute Restate would take the handler for stalled, unload it, and replay it.
talk = restate.Service("Talk", inactivity_timeout=LONG, abort_timeout=LONG)
field = restate.Service("Field")


def _speak(number: int) -> str:
    pace.passed(number)
    return message(number)


async def _answer_soon(number: int) -> str:
    return result(number)


async def _converse(ctx: restate.Context) -> None:
    messages: list[str] = []
    while True:
        messages.append(await ctx.run_typed("speak", _speak, number=len(messages) + 1))


async def _work(ctx: restate.Context, steps: int) -> None:
    for number in range(steps):
        await ctx.run_typed("answer", _answer_soon, number=number)


async def _listen(ctx: restate.Context, signals: int) -> None:
    for _ in range(signals):
        name, signal = ctx.awakeable(type_hint=str)
        waiting.put(name)
        await signal
        woken.append(time.monotonic())


talk.handler(name="converse")(_converse)
field.handler(name="work")(_work)
field.handler(name="listen")(_listen)


class Refused(Exception):
    """The server's answer is no success; with its status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Caller:
    """Calls one of the server's addresses; a connection that stays, for one thread."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._connection = http.client.HTTPConnection(host, int(port))

    def __call__(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Ask, and what is answered, from JSON.

        Raises:
            Refused: with what is not a success.
        """
        sent = b"" if body is None else json.dumps(body).encode()
        asked = {"accept": "application/json", **headers}
        if sent:
            asked["content-type"] = "application/json"
        self._connection.request(method, path, sent, asked)
        response = self._connection.getresponse()
        text = response.read()
        if response.status >= http.client.MULTIPLE_CHOICES:
            raise Refused(response.status, text.decode("utf-8", "replace"))
        return json.loads(text) if text else None


class Service:
    """The process's own side: serves the handlers, in an event loop and thread of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._ended = asyncio.Event()
        threading.Thread(
            target=self._loop.run_until_complete, args=(self._serve(),), daemon=True
        ).start()
        self._up.wait()

    async def _serve(self) -> None:
        config = hypercorn.config.Config()
        config.bind = [f"127.0.0.1:{self._port}"]
        config.graceful_timeout, config.loglevel = 0.0, "ERROR"
        wait: Callable[[], Awaitable[object]] = self._ended.wait
        serving = asyncio.create_task(
            hypercorn.asyncio.serve(restate.app([talk, field]), config, shutdown_trigger=wait)
        )
        while not await self._listens() and not serving.done():
            await asyncio.sleep(LOOK_S)
        self._up.set()
        await serving

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except ConnectionRefusedError:
            return False
        writer.close()
        return True


class Invocations(Contestant):
    package: ClassVar[str] = "restate-sdk"

    def __init__(self, folder: str, ingress: str, admin: str, port: str) -> None:
        super().__init__(folder)
        self.ingress = ingress
        self.call, self.manage = Caller(ingress), Caller(admin)
        self.port = int(port)

    def open(self) -> int:
        """Where the server waits before it tries again, it is asked not to."""
        Service(self.port)
        if not self.manage("GET", "/deployments")["deployments"]:
            self.manage("POST", "/deployments", {"uri": f"http://127.0.0.1:{self.port}"})
        begun = self.call("POST", "/Talk/converse/send", **{"idempotency-key": NAME})
        self.id = begun["invocationId"]
        if begun["status"] != "Accepted":
            self._resume()
        return pace.arrived() - 1

    def _resume(self) -> None:
        try:
            self.manage("PATCH", f"/invocations/{self.id}/resume")
        except Refused as refused:
            if refused.status != http.client.CONFLICT:  # it runs already
                raise

    def say(self, count: int) -> Answer:
        return pace.go_on(count)

    def steps(self, count: int) -> Answer:
        with timed() as clock:
            self.call("POST", "/Field/work", count)
        return clock.answer(count)

    def tools(self, count: int) -> Answer:
        raise Missing("records outcomes only")

    def concurrent(self, runs: int, count: int) -> Answer:
        callers = [Caller(self.ingress) for _ in range(runs)]
        works = [partial(caller, "POST", "/Field/work", count) for caller in callers]
        with timed() as clock:
            in_threads(works)
        return clock.answer(runs * count)

    def fork(self, at: int) -> Answer:
        raise Missing("restarts at a step only what has ended")

    def recent(self) -> Answer:
        """By a query of its journal, which is how its own command-line tool does it."""
        query = {"query": JOURNAL.format(self.id, LISTED)}
        with timed() as clock:
            found = self.manage("POST", "/query", query)["rows"]
        assert len(found) == LISTED or found
        return clock.answer(1)

    def delete(self) -> Answer:
        """Killed before, as it runs."""
        self.manage("PATCH", f"/invocations/{self.id}/kill")
        self._until_ended()
        with timed() as clock:
            self.manage("PATCH", f"/invocations/{self.id}/purge")
        return clock.answer(1)

    def _until_ended(self) -> None:
        query = {"query": f"SELECT status FROM sys_invocation WHERE id = '{self.id}'"}
        while self.manage("POST", "/query", query)["rows"] != [{"status": "completed"}]:
            time.sleep(LOOK_S)

    def signals(self, count: int) -> Answer:
        woken.clear()
        self.call("POST", "/Field/listen/send", count)
        seconds = []
        for number in range(count):
            name = waiting.get()
            time.sleep(PAUSE_S)
            sent = time.monotonic()
            self.call("POST", f"/restate/awakeables/{name}/resolve", "yes")
            while len(woken) <= number:
                time.sleep(0.0005)
            seconds.append(woken[number] - sent)
        return {"seconds": seconds}

    def idle(self) -> Answer:
        self.call("POST", "/Field/listen/send", 1)
        waiting.get()
        return {}


def main(arguments: Sequence[str]) -> None:
    folder, ingress, admin, port = arguments
    contend(Invocations(folder, ingress, admin, port))


if __name__ == "__main__":
    main(sys.argv[1:])
