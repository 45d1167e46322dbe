"""The kinds of programs that there are, and how one of each is tried."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from perdure.engine.execution import run_tasks
from tests.graphs import exits
from tests.graphs.checking import live, live_held_up
from tests.graphs.generate import Node, program
from tests.graphs.lives import Lives, children
from tests.graphs.loops import own_time
from tests.graphs.pointed import PlayingPointed, pointed_program
from tests.graphs.scoped import scoped_agent_of, scoped_program
from tests.graphs.threads import threads_agent_of, threads_program
from tests.graphs.timed import timed_agent_of, timed_program
from tests.graphs.told import told_agent_of, told_program
from tests.graphs.wide import kinds_of, wide_agent_of, wide_program

BOUNDARIES = 60
"""About as many as a program has: a kill behind the last finds that it has ended."""


class Kind(NamedTuple):
    """`share`: how many of it are tried, for each one of the main kind. `try_program` takes a
    seed, how many kills, and the kind of store, and returns how many kills came to pass."""

    share: float
    program: Callable[[int], Any]
    try_program: Callable[[int, int, str | None], int]


def try_exits(seed: int, kills: int = 0, store: str | None = None) -> int:
    """Play one in which something ends the program; it says itself where it is killed."""
    exits.try_program(seed)
    return 0


def try_program(seed: int, kills: int, store: str | None = None, *, depth: int = 3) -> int:
    """Run a program, and run it again for each kill; returns how many of these came to pass."""
    whole = program(seed, depth)
    return _try(seed, kills, lambda where, kill_at: live(whole, where, kill_at))


def try_timed(seed: int, kills: int, store: str | None = None, *, depth: int = 3) -> int:
    """As `try_program`, of one about time."""
    return _try_held_up(seed, kills, timed_agent_of(timed_program(seed, depth)))


def try_scoped(seed: int, kills: int, store: str | None = None, *, depth: int = 3) -> int:
    """As `try_timed`, of one with anyio's scopes, that looks at the clock."""
    return _try_held_up(seed, kills, scoped_agent_of(scoped_program(seed, depth)))


def try_told(seed: int, kills: int, store: str | None = None, *, depth: int = 3) -> int:
    """As `try_scoped`, of one in which much is cancelled more than once."""
    return _try_held_up(seed, kills, told_agent_of(told_program(seed, depth)))


def _try_held_up(seed: int, kills: int, function: Any) -> int:
    chance = random.Random(seed)
    return _try(seed, kills, lambda where, kill_at: live_held_up(function, where, chance, kill_at))


def try_wide(seed: int, kills: int, store: str | None = None) -> int:
    """Run one of all that tasks do, killed some times on its way, with people at it."""
    whole = wide_program(seed)
    return _try_lives(seed, kills, store, whole, wide_agent_of(whole), in_order=True)


def try_pointed(seed: int, kills: int, store: str | None = None) -> int:
    """As `try_wide`, of one of a few kinds; who meddles with it looks for its doubts."""
    whole = pointed_program(seed)
    function = wide_agent_of(whole, PlayingPointed)
    return _try_lives(seed, kills, store, whole, function, in_order=True, in_doubt=True)


def try_threads(seed: int, kills: int, store: str | None = None) -> int:
    """As `try_wide`, of one of a plain function and its threads."""
    whole = threads_program(seed)
    return _try_lives(seed, kills, store, whole, threads_agent_of(whole), in_order=False)


def _try_lives(
    seed: int,
    kills: int,
    store: str | None,
    whole: Node,
    function: Any,
    *,
    in_order: bool,
    in_doubt: bool = False,
) -> int:
    chance = random.Random(seed)
    held_up = chance if seed % 2 else None
    with _folder() as folder, own_time(held_up), _impatient():
        url = _url(store or ("sqlite", "memory")[seed % 3 == 0], folder)
        with children(url, "child" in kinds_of(whole)):
            lives = Lives(function, url, folder, chance, in_order=in_order, in_doubt=in_doubt)
            return lives.live(chance.randint(0, kills))


KINDS = {
    "exits": Kind(0.3, exits.program, try_exits),
    "tasks": Kind(1, program, try_program),
    "timed": Kind(1, timed_program, try_timed),
    "scoped": Kind(1, scoped_program, try_scoped),
    "told": Kind(0.5, told_program, try_told),
    "wide": Kind(1, wide_program, try_wide),
    "threads": Kind(1, threads_program, try_threads),
    "pointed": Kind(1, pointed_program, try_pointed),
}


def _try(seed: int, kills: int, live: Callable[[Path, int | None], str | None]) -> int:
    chance = random.Random(seed)
    at = [None, *(chance.randrange(BOUNDARIES) for _ in range(kills))]
    with _folder() as folder:
        killed = 0
        for number, kill_at in enumerate(at):
            where = folder / str(number)
            try:
                killed += live(where, kill_at) is not None
            except Exception as error:
                error.add_note(f"seed {seed}, killed at {kill_at}")
                raise
            shutil.rmtree(where)
    return killed


@contextmanager
def _impatient() -> Iterator[None]:
    """Whoever does not leave when he is to is told so again after a second."""
    before, run_tasks.LEAVE_S = run_tasks.LEAVE_S, 1.0
    try:
        yield
    finally:
        run_tasks.LEAVE_S = before


@contextmanager
def _folder() -> Iterator[Path]:
    quick = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
    with tempfile.TemporaryDirectory(prefix="perdure-graphs-", dir=quick) as folder:
        yield Path(folder)


def _url(store: str, folder: Path) -> str:
    if store == "postgres":
        from tests.postgres.server import shared

        return shared().new_url()
    return f"memory://{folder.name}" if store == "memory" else str(folder / "agents.db")
