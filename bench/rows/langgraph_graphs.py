"""Whole LangGraph graphs. See `langgraph`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from bench.harness import Samples, interleave, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.rows.langgraph import OFFICIAL
from bench.workplace import Workplace

GRAPH_RATIO_MAX = 1.0

OFFICIAL_ASYNC = "AsyncSqliteSaver"

NONE = "no checkpointer"
MEMORY = "LangGraph's InMemorySaver"
BARE = "a bare commit for each checkpoint, and nothing else"
DURABILITIES = {"sync": "sync", "async": "async, LangGraph's default"}
"""What LangGraph waits for before the next step; on disk is what was waited for, in either."""


WIDE = 10
"""Nodes at once, in the graphs that have some."""

App = Callable[..., Any]
Run = Callable[[App, str, list[Any], str, int], None]


@row("langgraph-graph")
def graphs(workplace: Workplace) -> Iterator[Line]:
    """A LangGraph graph of 100 nodes that do nothing, from `invoke` to its result.

    Each run is a new thread; the nodes are in a row, and ten at once; the state is a number, and a
    number beside 200 messages. The note has the same graph without a checkpointer, and with two
    that show what is below any of them: one that writes nothing to a disk, and one that does
    nothing else.
    """
    from langgraph.checkpoint.memory import InMemorySaver

    from bench.rows import langgraph_savers as lg
    from bench.rows.langgraph_bare import bare

    folder = workplace.folder()
    with (
        lg.ours(folder / "ours.db") as mine,
        lg.official(folder / "theirs.db") as theirs,
        bare(folder / "bare.db") as least,
    ):
        savers: dict[str, Any] = {
            "ours": mine,
            OFFICIAL: theirs,
            NONE: None,
            MEMORY: InMemorySaver(),
            BARE: least,
        }

        def run(app: App, name: str, messages: list[Any], durability: str, number: int) -> None:
            app(f"{name} {number}", messages, durability)

        yield from _lines(workplace, "invoke", savers, lg.chain, run)


@row("langgraph-async-graph")
def async_graphs(workplace: Workplace) -> Iterator[Line]:
    """The same from `ainvoke`, with nodes that are coroutines: theirs is `AsyncSqliteSaver`."""
    from langgraph.checkpoint.memory import InMemorySaver

    from bench.rows import langgraph_savers as lg

    folder = workplace.folder()
    with (
        lg.ours(folder / "ours.db") as mine,
        asyncio.Runner() as loop,
        lg.official_async(folder / "theirs.db", loop) as theirs,
    ):
        savers: dict[str, Any] = {
            "ours": mine,
            OFFICIAL_ASYNC: theirs,
            NONE: None,
            MEMORY: InMemorySaver(),
        }

        def run(app: App, name: str, messages: list[Any], durability: str, number: int) -> None:
            loop.run(app(f"{name} {number}", messages, durability))

        yield from _lines(workplace, "ainvoke", savers, lg.async_chain, run)


def _lines(
    workplace: Workplace, how: str, savers: Mapping[str, Any], chain: Callable[..., App], run: Run
) -> Iterator[Line]:
    """Of each shape, state and durability one; the savers' first two are compared."""
    from bench.rows import langgraph_savers as lg

    nodes, count = workplace.sizes.langgraph_nodes, workplace.sizes.langgraph_graphs
    for at_once, size in ((1, 0), (WIDE, 0), (1, workplace.sizes.langgraph_graph_messages)):
        apps = {name: chain(nodes, saver, at_once) for name, saver in savers.items()}
        messages = lg.spoken(size)
        shape = f", {at_once} at once" if at_once > 1 else ""
        state = f", {size} messages" if size else ""
        for durability, readable in DURABILITIES.items():
            what = f"{how} of {nodes} nodes{shape}{state}, {readable}"
            runs = {
                name: partial(run, app, what, messages, durability) for name, app in apps.items()
            }
            yield _line(what, interleave(runs, count, turn=1, warm_up=1))


def _line(what: str, samples: Mapping[str, Samples]) -> Line:
    (_, mine), (official, theirs), *others = samples.items()
    note = [f"{name}: {Figure(found.median)}" for name, found in others]
    return Line(
        f"LangGraph: {what}, median",
        Figure(mine.median),
        Figure(theirs.median, name=official),
        ratio(mine, theirs),
        Target(GRAPH_RATIO_MAX),
        "; ".join(["ours over theirs", *note]),
        samples,
    )
