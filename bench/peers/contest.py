"""What a contestant of the field is asked to do, whatever it is made of.

A program of this package subclasses `Contestant` and ends in `contend`. It has one conversation,
which lives in the folder or database that it is given, whatever becomes of its process; all else is
done beside it, under new names. Used inside the environments of the peers, so it and what it
imports need nothing but Python.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from itertools import count
from typing import ClassVar

from bench.corpus import texts
from bench.peers.serving import Answer, Missing, serve

TEXT_SIZE = 500
LISTED = 50
"""How many of the newest steps a list shows."""

MADE_BEFORE = 512
"""Messages that a process keeps, so that none is made while a step is timed."""


@lru_cache(MADE_BEFORE)
def message(number: int) -> str:
    """The text of that message, from 1: 500 bytes, and no two alike."""
    return texts(1, TEXT_SIZE, seed=number)[0]


def token(number: int) -> str:
    return _tokens()[number % len(_tokens())] + " "


@cache
def _tokens() -> list[str]:
    return texts(1, 5000, seed=9)[0].split()


def answer_of(count: int, wall: float, cpu: float) -> Answer:
    return {"count": count, "wall": wall, "cpu": cpu}


class Contestant:
    """Each method is one command; what a contestant has not raises `Missing`.

    An answer of `answer_of` is how many operations were timed, and the wall-clock and CPU seconds
    that they took together. Inputs are made before the clock starts.
    """

    package: ClassVar[str] = ""
    """Whose version is told."""

    def __init__(self, folder: str, *options: str) -> None:
        self.folder = folder
        self.options = options
        self._names = count(1)

    def new_name(self) -> str:
        """One that no process before had, either."""
        return f"n{os.getpid()}-{next(self._names)}"

    def about(self) -> Answer:
        """What this is; asked for apart, as looking it up takes time that no start needs."""
        import platform
        from importlib.metadata import version

        return {"version": version(self.package), "python": platform.python_version()}

    def open(self) -> int:
        """Take the conversation up to where its next step can begin: how many messages it has."""
        raise NotImplementedError

    def close(self) -> None:
        """End orderly, so that the files are at rest."""

    def say(self, count: int) -> Answer:
        """Add so many messages, each in a step of its own."""
        raise NotImplementedError

    def steps(self, count: int) -> Answer:
        """So many steps of a new run, each with a result of 500 B that nothing gathers."""
        raise NotImplementedError

    def tools(self, count: int) -> Answer:
        """So many tool calls, whose intents are on disk before they are made."""
        raise Missing("records no intents")

    def concurrent(self, runs: int, count: int) -> Answer:
        """As `steps`, in so many runs at once; counted over all of them."""
        raise NotImplementedError

    def tokens(self, count: int) -> Answer:
        """So many tokens of a message in the making, each durable before the next."""
        raise Missing("keeps no part of a step")

    def fork(self, at: int) -> Answer:
        """Go on, under another name, from where the conversation had `at` messages."""
        raise Missing("has no forks")

    def past(self, at: int) -> Answer:
        """Read the conversation as it was when it had `at` messages."""
        raise Missing("has no past states")

    def recent(self) -> Answer:
        """List the newest 50 steps of the conversation."""
        raise Missing("lists no steps")

    def delete(self) -> Answer:
        """Delete the conversation."""
        raise Missing("deletes nothing")

    def signals(self, count: int) -> Answer:
        """Seconds from sending each signal to the line behind the wait for it."""
        raise Missing("nothing waits: its caller calls again")

    def idle(self) -> Answer:
        """Have one run that waits for a signal, and whatever stands by for it."""
        raise Missing("nothing stands by")


def contend(contestant: Contestant) -> None:
    """Serve the contestant's commands until nobody asks any more, then leave at once."""

    def opened() -> Answer:
        start = time.perf_counter()
        messages = contestant.open()
        took = time.perf_counter() - start
        return {"messages": messages, "s": took, "at": time.monotonic()}

    def closed() -> Answer:
        contestant.close()
        return {}

    names = (
        "about",
        "say",
        "steps",
        "tools",
        "concurrent",
        "tokens",
        "fork",
        "past",
        "recent",
        "delete",
        "signals",
        "idle",
    )
    commands = {name: getattr(contestant, name) for name in names}
    serve({}, {**commands, "open": opened, "close": closed})
    os._exit(0)  # what waits for its end would keep the process


class Clock:
    """Times a block, wall-clock and CPU (all threads); see `timed`."""

    wall = 0.0
    cpu = 0.0

    def answer(self, count: int) -> Answer:
        return answer_of(count, self.wall, self.cpu)


@contextmanager
def timed() -> Iterator[Clock]:
    clock = Clock()
    cpu, wall = time.process_time(), time.perf_counter()
    yield clock
    clock.wall, clock.cpu = time.perf_counter() - wall, time.process_time() - cpu


class Pace:
    """Lets a run's steps pass up to a number, and knows when the one behind it is called.

    For contestants whose conversation is a function that runs: the first step that is called after
    a start is where it goes on.
    """

    def __init__(self) -> None:
        self._allowed = 0
        self._called = 0
        self._changed = threading.Condition()
        self.leaving = False

    def passed(self, number: int) -> bool:
        """To be called by each step as it begins: waits for its turn. False: the run is to be
        left."""
        with self._changed:
            self._called = number
            self._changed.notify_all()
            while number > self._allowed and not self.leaving:
                self._changed.wait()
            return not self.leaving

    def arrived(self) -> int:
        """Wait until some step is called; its number."""
        with self._changed:
            while not self._called:
                if self.leaving:
                    raise RuntimeError("the conversation has ended")
                self._changed.wait()
            return self._called

    def go_on(self, count: int) -> Answer:
        """Let so many steps pass, from the one that waits, until the next one waits."""
        first = self.arrived()
        last = first + count
        for number in range(max(first, last - MADE_BEFORE), last):
            message(number)
        with timed() as clock, self._changed:
            self._allowed = last - 1
            self._changed.notify_all()
            while self._called < last:
                if self.leaving:
                    raise RuntimeError("the conversation has ended")
                self._changed.wait()
        return clock.answer(count)

    def leave(self) -> None:
        with self._changed:
            self.leaving = True
            self._changed.notify_all()


def in_threads(works: Sequence[Callable[[], object]]) -> None:
    """All of them at once, to the end of the last.

    Raises:
        what the first of them raised that did.
    """
    from concurrent.futures import ThreadPoolExecutor  # what no start needs

    with ThreadPoolExecutor(len(works)) as pool:
        begun = [pool.submit(work) for work in works]
    for one in begun:
        one.result()
