"""Signals under DBOS; for the programs that run inside its environment."""

from __future__ import annotations

import threading
import time

from dbos import DBOS  # type: ignore[import-not-found]

from bench.peers.serving import Answer

GOLDEN = 0.6180339887
"""Multiples of it, modulo one, fill the interval evenly, however many they are."""

_woken: list[float] = []
_listening = threading.Event()


def _listen(signals: int) -> None:
    for _ in range(signals):
        _listening.set()
        DBOS.recv("go", timeout_seconds=3600)
        _woken.append(time.monotonic())


_workflow = DBOS.workflow(name="listen")(_listen)


def signals(count: int) -> Answer:
    """Seconds from `send` to the line behind `recv`, signal by signal; a waiting workflow."""
    _woken.clear()
    _listening.clear()
    handle = DBOS.start_workflow(_workflow, count)
    seconds = []
    for number in range(count):
        _listening.wait()
        _listening.clear()
        # DBOS looks once a second: signals spread evenly over that second are fair to it.
        time.sleep(0.05 + number * GOLDEN % 1.0)
        sent = time.monotonic()
        DBOS.send(handle.workflow_id, "yes", "go")
        while len(_woken) <= number:
            time.sleep(0.0005)
        seconds.append(_woken[number] - sent)
    handle.get_result()
    return {"seconds": seconds}


def wait_for_one() -> None:
    """A workflow waits for a signal; returns once it does."""
    _listening.clear()
    DBOS.start_workflow(_workflow, 1)
    _listening.wait()
