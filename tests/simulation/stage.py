"""Puts the library's modules under a scheduler: their threads, clocks and chance are simulated."""

from __future__ import annotations

import concurrent.futures._base as futures
import concurrent.futures.thread as pools
import importlib
import logging
import pkgutil
import queue
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID

from perdure.core.format import envelope
from perdure.engine.dispatch import worker
from perdure.engine.functions import any_run
from perdure.engine.journal import call_identity
from perdure.storage import listeners
from perdure.storage.memory import backend
from perdure.system import locks
from tests.simulation.primitives import (
    Queue,
    System,
    Threading,
    Time,
    future_number,
    giving_way,
)
from tests.simulation.scheduler import Scheduler

DEATH_S = 0.25
"""How often idle workers look whether another one died: less often than they really do, or most of
a simulation would be that."""


@contextmanager
def staged(scheduler: Scheduler) -> Iterator[None]:
    """While it lasts, everything of the library belongs to the scheduler; nothing else runs."""
    _import_all()
    chance = Random(scheduler.random.getrandbits(64))
    simulated: dict[int, Any] = {
        id(threading): Threading(scheduler),
        id(queue): Queue(scheduler),
        id(time): Time(scheduler),
        id(sys.modules["os"]): System(chance),
        id(locks.Lock): giving_way(locks.Lock, scheduler),
        id(locks.ReentrantLock): giving_way(locks.ReentrantLock, scheduler),
    }
    kept = random.getstate()
    random.seed(chance.getrandbits(64))  # pauses between attempts, and `run.random`
    envelope.drop_drawn()
    disabled = logging.root.manager.disable
    logging.disable()  # what is expected here would fill a log
    with ExitStack() as patches:
        for module in _modules():
            for name, value in list(vars(module).items()):
                replacement = simulated.get(id(value))
                # One call at a time reaches the memory: no thread may be put back in there.
                if replacement is not None and module not in (backend, locks):
                    patches.enter_context(patch.object(module, name, replacement))
        _patch_names(patches, scheduler, chance)
        try:
            yield
        finally:
            logging.disable(disabled)
            random.setstate(kept)
            envelope.drop_drawn()


def _patch_names(patches: ExitStack, scheduler: Scheduler, chance: Random) -> None:
    """What modules have by its own name, or made when they were imported."""
    simulated = Threading(scheduler)

    def uuid4() -> UUID:
        return UUID(int=chance.getrandbits(128), version=4)

    for owner, name, value in (
        (listeners, "SimpleQueue", Queue(scheduler).SimpleQueue),
        (locks, "threading", simulated),
        (locks, "time", Time(scheduler)),
        (any_run, "uuid4", uuid4),
        # Tools of other tests have the names of these: a process with them looks at calls longer.
        (call_identity, "_homes", {}),
        (call_identity, "_shared", set()),
        (worker, "DEATH_S", DEATH_S),
        (pools, "threading", simulated),
        (pools, "queue", Queue(scheduler)),
        (pools, "_global_shutdown_lock", simulated.RLock()),
        (pools, "_threads_queues", {}),
        (futures, "threading", simulated),
        (futures, "time", Time(scheduler)),
    ):
        patches.enter_context(patch.object(owner, name, value))
    patches.enter_context(patch.object(futures, "id", future_number, create=True))


_imported = False


def _import_all() -> None:
    """A module that is imported in the middle of a simulation would miss it, in whatever room it
    is: one that did had threads and a clock of its own, and each simulation waited for it."""
    global _imported
    if _imported:
        return
    for name in ("core", "engine", "retention", "state", "system", "transfer", "verification"):
        package = importlib.import_module(f"perdure.{name}")
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(found.name)
    _imported = True


def _modules() -> list[Any]:
    left_out = ("perdure.storage.sqlite", "perdure.storage.postgres", "perdure.testing")
    return [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith("perdure.") and not name.startswith(left_out)
    ]
