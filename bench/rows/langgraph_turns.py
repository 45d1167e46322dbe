"""Turns of LangGraph threads that have messages already, in every way that they are run in.

One long `invoke` of a small state hides what most graphs do: short turns on a thread that grew,
with each durability, with channels stored whole or as deltas, from threads and from event loops.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from bench.harness import Samples, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.rows.langgraph import OFFICIAL
from bench.rows.langgraph_graphs import OFFICIAL_ASYNC
from bench.rows.straight import STRAIGHT
from bench.workplace import Workplace

if TYPE_CHECKING:
    from bench.rows.langgraph_shapes import Cell, Opened

TURN_RATIO_MAX = 1.0
ONE_TURN = ("in a row", "ten at once")
SPOKEN_MAX = 60
"""Messages that are said in one measured operation, at most."""


@row("langgraph-turns", long=True)
def turns(workplace: Workplace) -> Iterator[Line]:
    """Turns of a LangGraph thread of 10 to 5,000 messages: ours over SqliteSaver's, or over
    AsyncSqliteSaver's.

    Each operation has a copy of the thread's file, opened and looked at before; the look, by a new
    saver, is a line of its own: ``cold get_state``. In turns: ours, theirs, theirs, ours. The note
    has the same in CPU of the process; and, for the shapes that it can do, that of commits of our
    format in a straight line, which no saver in Python can go below.
    """
    from bench.rows import langgraph_shapes as shapes

    for kind, size in product(shapes.KINDS, workplace.sizes.langgraph_turn_messages):
        seeds = _seeds(workplace.folder(), kind, size)
        for waits in ("sync", "async"):
            cold = Taken()
            for shape, durability in product(shapes.SHAPES, shapes.DURABILITIES):
                cell = shapes.Cell(shape, kind, durability, waits == "async")
                taken = _measure(workplace, seeds, cell, size, cold)
                what = f"{shape}, {kind} channel, {waits}, durability {durability}"
                yield _line(f"{what}, at {size:,} messages", taken, waits)
            yield _line(
                f"cold get_state, {kind} channel, {waits}, at {size:,} messages", cold, waits
            )


@dataclass(slots=True)
class Taken:
    """Seconds of each contestant, by the clock and of CPU."""

    wall: dict[str, Samples] = field(default_factory=lambda: defaultdict(Samples))
    cpu: dict[str, Samples] = field(default_factory=lambda: defaultdict(Samples))

    def add(self, name: str, begun: tuple[float, float], ended: tuple[float, float]) -> None:
        self.wall[name].values.append(ended[0] - begun[0])
        self.cpu[name].values.append(ended[1] - begun[1])


def _now() -> tuple[float, float]:
    return perf_counter(), process_time()


def _line(what: str, taken: Taken, waits: str) -> Line:
    mine, theirs = taken.wall["ours"], taken.wall[OFFICIAL]
    name = OFFICIAL if waits == "sync" else OFFICIAL_ASYNC
    burnt = taken.cpu[OFFICIAL]
    note = f"CPU: {ratio(taken.cpu['ours'], burnt).value:.2f}"
    if STRAIGHT in taken.cpu:
        note += f"; in a straight line {ratio(taken.cpu[STRAIGHT], burnt).value:.2f}"
    return Line(
        f"LangGraph: {what}, median",
        Figure(mine.median),
        Figure(theirs.median, name=name),
        ratio(mine, theirs),
        Target(TURN_RATIO_MAX),
        note,
        samples=dict(taken.wall),
    )


def _seeds(folder: Path, kind: Any, size: int) -> dict[str, Path]:
    from bench.rows import langgraph_savers as lg
    from bench.rows import langgraph_shapes as shapes

    spoken = lg.spoken(size)
    seeds = {"ours": folder / "ours.db", OFFICIAL: folder / "theirs.db"}
    for name, opened in (("ours", shapes.ours), (OFFICIAL, shapes.official)):
        shapes.seed(seeds[name], opened, kind, spoken)
    return seeds


def _measure(
    workplace: Workplace, seeds: dict[str, Path], cell: Cell, size: int, cold: Taken
) -> Taken:
    """What a turn took, and, into `cold`, the look before it."""
    from bench.rows import langgraph_savers as lg
    from bench.rows import langgraph_shapes as shapes

    taken = Taken()
    spoken = lg.spoken(SPOKEN_MAX, seed=5)
    folder = workplace.folder()
    order = _contestants(cell)
    for number in range(workplace.sizes.langgraph_turns + 1):
        for name, opened in order:
            path = shapes.copied(seeds[OFFICIAL if name == OFFICIAL else "ours"], folder)
            with ExitStack() as stack:
                loop = stack.enter_context(asyncio.Runner()) if cell.waits else None
                saver = stack.enter_context(opened(path, loop))
                talk = shapes.Talk(saver, cell, loop, spoken)
                begun = _now()
                found = talk.look()
                looked = _now()
                assert found == size
                talk.turn()
                ended = _now()
            if number:  # the first one warms up
                if name != STRAIGHT:
                    cold.add(name, begun, looked)
                taken.add(name, looked, ended)
        order.reverse()
    return taken


def _contestants(cell: Cell) -> list[tuple[str, Opened]]:
    from bench.rows import langgraph_shapes as shapes
    from bench.rows.langgraph_straight_saver import straight

    found: list[tuple[str, Opened]] = [("ours", shapes.ours), (OFFICIAL, shapes.official)]
    if cell.shape in ONE_TURN and cell.durability == "sync" and not cell.waits:
        found.append((STRAIGHT, lambda path, loop: straight(path, delta=cell.kind == "delta")))
    return found
