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


@row("langgraph-graph")
def graphs(workplace: Workplace) -> Iterator[Line]:
    """A LangGraph graph of 100 nodes in a row that do nothing, from `invoke` to its result.

    Each run is a new thread; the state is a number, and a number beside 200 messages. The note has
    the same graph without a checkpointer, and with two that show what is below any of them: one
    that writes nothing to a disk, and one that does nothing else.
    """
    from langgraph.checkpoint.memory import InMemorySaver

    from bench.rows import langgraph_savers as lg
    from bench.rows.langgraph_bare import bare

    nodes, count = workplace.sizes.langgraph_nodes, workplace.sizes.langgraph_graphs
    folder = workplace.folder()
    with (
        lg.ours(folder / "ours.db") as mine, lg.official(folder / "theirs.db") as theirs,
        bare(folder / "bare.db") as least,
    ):  # fmt: skip
        savers: dict[str, Any] = {
            "ours": mine, OFFICIAL: theirs, NONE: None, MEMORY: InMemorySaver(), BARE: least
        }  # fmt: skip
        apps = {name: lg.chain(nodes, saver) for name, saver in savers.items()}
        for size in (0, workplace.sizes.langgraph_graph_messages):
            messages = lg.spoken(size)
            state = f"{size} messages" if size else "a small state"
            for durability, readable in DURABILITIES.items():
                runs = {
                    name: partial(_run, app, messages, durability) for name, app in apps.items()
                }
                samples = interleave(runs, count, turn=1, warm_up=1)
                yield _line(f"{nodes} nodes, {state}, {readable}", OFFICIAL, samples)


@row("langgraph-async-graph")
def async_graphs(workplace: Workplace) -> Iterator[Line]:
    """The same from `ainvoke`, with nodes that are coroutines: theirs is `AsyncSqliteSaver`."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    from bench.rows import langgraph_savers as lg

    nodes, count = workplace.sizes.langgraph_nodes, workplace.sizes.langgraph_graphs
    folder = workplace.folder()
    with lg.ours(folder / "ours.db") as mine, asyncio.Runner() as loop:
        opened = AsyncSqliteSaver.from_conn_string(str(folder / "theirs.db"))
        savers: dict[str, Any] = {
            "ours": mine, OFFICIAL_ASYNC: loop.run(opened.__aenter__()), NONE: None,
            MEMORY: InMemorySaver(),
        }  # fmt: skip
        apps = {name: lg.async_chain(nodes, saver) for name, saver in savers.items()}
        for size in (0, workplace.sizes.langgraph_graph_messages):
            messages = lg.spoken(size)
            state = f"{size} messages" if size else "a small state"
            for durability, readable in DURABILITIES.items():
                runs = {
                    name: partial(_run_in, loop, app, messages, durability)
                    for name, app in apps.items()
                }
                samples = interleave(runs, count, turn=1, warm_up=1)
                yield _line(f"{nodes} nodes, ainvoke, {state}, {readable}", OFFICIAL_ASYNC, samples)
        loop.run(opened.__aexit__(None, None, None))


def _line(what: str, official: str, samples: Mapping[str, Samples]) -> Line:
    mine, theirs = samples["ours"], samples[official]
    others = (
        f"{name}: {Figure(found.median)}" for name, found in samples.items()
        if found not in (mine, theirs)
    )  # fmt: skip
    return Line(
        f"LangGraph: {what}, median", Figure(mine.median), Figure(theirs.median, name=official),
        ratio(mine, theirs), Target(GRAPH_RATIO_MAX), "; ".join(["ours over theirs", *others]),
        samples,
    )  # fmt: skip


def _run(app: Callable[..., None], messages: list[Any], durability: str, number: int) -> None:
    app(f"{len(messages)}-{durability}-{number}", messages, durability)


def _run_in(
    loop: asyncio.Runner, app: Callable[..., Any], messages: list[Any], durability: str,
    number: int,
) -> None:  # fmt: skip
    loop.run(app(f"{len(messages)}-{durability}-{number}", messages, durability))
