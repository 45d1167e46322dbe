"""Turns of LangGraph threads that have messages already, in every way that they are run in.

One long `invoke` of a small state hides what most graphs do: short turns on a thread that grew,
with each durability, with channels stored whole or as deltas, from threads and from event loops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench.harness import Samples, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.rows.langgraph import OFFICIAL
from bench.rows.langgraph_graphs import OFFICIAL_ASYNC
from bench.workplace import Workplace

if TYPE_CHECKING:
    from bench.rows.langgraph_shapes import Cell

TURN_RATIO_MAX = 1.0
SPOKEN_MAX = 60
"""Messages that are said in one measured operation, at most."""


@row("langgraph-turns", long=True)
def turns(workplace: Workplace) -> Iterator[Line]:
    """Turns of a LangGraph thread of 10 to 5,000 messages: ours over SqliteSaver's, or over
    AsyncSqliteSaver's.

    Each operation has a copy of the thread's file, opened and looked at before; the look, by a new
    saver, is a line of its own: ``cold get_state``. In turns: ours, theirs, theirs, ours.
    """
    from bench.rows import langgraph_shapes as shapes

    for kind, size in product(shapes.KINDS, workplace.sizes.langgraph_turn_messages):
        seeds = _seeds(workplace.folder(), kind, size)
        for waits in ("sync", "async"):
            cold = _both()
            for shape, durability in product(shapes.SHAPES, shapes.DURABILITIES):
                cell = shapes.Cell(shape, kind, durability, waits == "async")
                taken = _measure(workplace, seeds, cell, size, cold)
                what = f"{shape}, {kind} channel, {waits}, durability {durability}"
                yield _line(f"{what}, at {size:,} messages", taken, waits)
            yield _line(
                f"cold get_state, {kind} channel, {waits}, at {size:,} messages", cold, waits
            )


def _both() -> dict[str, Samples]:
    return {"ours": Samples(), OFFICIAL: Samples()}


def _line(what: str, samples: dict[str, Samples], waits: str) -> Line:
    mine, theirs = samples["ours"], samples[OFFICIAL]
    name = OFFICIAL if waits == "sync" else OFFICIAL_ASYNC
    return Line(
        f"LangGraph: {what}, median", Figure(mine.median), Figure(theirs.median, name=name),
        ratio(mine, theirs), Target(TURN_RATIO_MAX), samples=samples,
    )  # fmt: skip


def _seeds(folder: Path, kind: Any, size: int) -> dict[str, Path]:
    from bench.rows import langgraph_savers as lg
    from bench.rows import langgraph_shapes as shapes

    spoken = lg.spoken(size)
    seeds = {"ours": folder / "ours.db", OFFICIAL: folder / "theirs.db"}
    for name, opened in (("ours", shapes.ours), (OFFICIAL, shapes.official)):
        shapes.seed(seeds[name], opened, kind, spoken)
    return seeds


def _measure(
    workplace: Workplace, seeds: dict[str, Path], cell: Cell, size: int, cold: dict[str, Samples]
) -> dict[str, Samples]:
    """Seconds of a turn, and, into `cold`, of the look before it."""
    from bench.rows import langgraph_savers as lg
    from bench.rows import langgraph_shapes as shapes

    taken = _both()
    spoken = lg.spoken(SPOKEN_MAX, seed=5)
    folder = workplace.folder()
    order = [("ours", shapes.ours), (OFFICIAL, shapes.official)]
    for number in range(workplace.sizes.langgraph_turns + 1):
        for name, opened in order:
            path = shapes.copied(seeds[name], folder)
            with ExitStack() as stack:
                loop = stack.enter_context(asyncio.Runner()) if cell.waits else None
                saver = stack.enter_context(opened(path, loop))
                talk = shapes.Talk(saver, cell, loop, spoken)
                start = perf_counter()
                found = talk.look()
                looked = perf_counter()
                assert found == size
                talk.turn()
                ended = perf_counter()
            if number:  # the first one warms up
                cold[name].values.append(looked - start)
                taken[name].values.append(ended - looked)
        order.reverse()
    return taken
