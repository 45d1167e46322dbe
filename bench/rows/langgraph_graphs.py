"""Whole LangGraph graphs. See `langgraph`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench.harness import interleave, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.rows.langgraph import OFFICIAL
from bench.workplace import Workplace

GRAPH_RATIO_MAX = 1.0

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
                yield Line(
                    f"LangGraph: {nodes} nodes, {state}, {readable}, median",
                    Figure(samples["ours"].median),
                    Figure(samples[OFFICIAL].median, name=OFFICIAL),
                    ratio(samples["ours"], samples[OFFICIAL]), Target(GRAPH_RATIO_MAX),
                    "; ".join(["ours over theirs", *(
                        f"{name}: {Figure(samples[name].median)}" for name in (NONE, MEMORY, BARE)
                    )]), samples,
                )  # fmt: skip


def _run(app: Callable[..., None], messages: list[Any], durability: str, number: int) -> None:
    app(f"{len(messages)}-{durability}-{number}", messages, durability)
