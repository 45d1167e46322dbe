"""The side of the pipe that works: takes one command a line, and answers one line.

Used inside the environments of the peers, so it and what it imports need nothing but Python.

    → {"do": "steps", "count": 200}
    ← {"count": 200, "wall": 0.91, "cpu": 0.88}
    ← {"missing": "it has no forks"}         where there is nothing of the kind
    ← {"error": "…the traceback…"}           where the command failed
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from bench.corpus import texts

RESULT_SIZE = 500
RESULTS = 64

Answer = dict[str, Any]
Command = Callable[..., Answer]


class Missing(Exception):
    """This contestant has nothing of the kind; with what it has instead, in a few words."""


def result(number: int) -> str:
    """What the step of that number gives: 500 bytes."""
    return _results()[number % RESULTS]


@cache
def _results() -> list[str]:
    """Made when first asked for, which is before anything is timed: not as a program starts."""
    return texts(RESULTS, RESULT_SIZE, seed=5)


def serve(hello: Answer, commands: Mapping[str, Command]) -> None:
    """Say hello, and do what is asked until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # so that what a library prints is no answer
    _say(answers, hello)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = commands[asked.pop("do")](**asked)
        except Missing as missing:
            answer = {"missing": str(missing)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        _say(answers, answer)


def _say(answers: Any, answer: Answer) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def spent(work: Callable[[], int]) -> Answer:
    """Do some operations; how many, and the wall-clock and CPU seconds (user and system, all
    threads of this process) that they took."""
    cpu, wall = time.process_time(), time.perf_counter()
    count = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"count": count, "wall": wall, "cpu": cpu}


class Gate:
    """Where steps report that they are called, and where one may be made to wait for its end."""

    def __init__(self) -> None:
        self._closed_at: int | None = None
        self._first: tuple[int, float] | None = None
        self._called = threading.Event()

    def close_at(self, number: int) -> None:
        """From now on the step of that number waits until its process is killed."""
        self._closed_at = number
        self._forget()

    def open(self) -> None:
        """Let every step pass, and forget which was the first."""
        self._closed_at = None
        self._forget()

    def _forget(self) -> None:
        self._first = None
        self._called.clear()

    def passed(self, number: int) -> None:
        """To be called by each step as it begins."""
        if self._closed_at is None and self._first is None:
            self._first = (number, time.monotonic())
            self._called.set()
        if number == self._closed_at:
            self._first = (number, time.monotonic())
            self._called.set()
            threading.Event().wait()

    def first(self, timeout_s: float = 120.0) -> Answer:
        """Which step was called first since the gate was opened, or was stopped at it, and when
        (seconds of the clock that all processes of a machine share)."""
        if not self._called.wait(timeout_s) or self._first is None:
            raise TimeoutError(f"no step was called within {timeout_s} s")
        return {"number": self._first[0], "at": self._first[1]}
