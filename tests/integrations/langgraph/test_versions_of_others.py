"""Threads that came from another saver, whose versions are texts."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from typing_extensions import TypedDict

from perdure.integrations.langgraph import PerdureSaver
from tests.integrations.langgraph.checkpoints import config


class SaverOfTexts(PerdureSaver):
    """Counts as the savers of files and databases do."""

    def get_next_version(self, current: Any, channel: Any = None) -> str:
        return f"{int(str(current or 0).split('.')[0]) + 1:032}.0.25"


def joined(old: list[str] | None, writes: Sequence[list[str]]) -> list[str]:
    return [*(old or []), *(item for write in writes for item in write)]


class Notes(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(joined)]
    late: Annotated[list[str], DeltaChannel(joined)]
    plain: Annotated[list[str], operator.add]


def graph(saver: PerdureSaver) -> CompiledStateGraph[Any, Any, Any, Any]:
    made = StateGraph(Notes)
    made.add_node("work", lambda _: {"log": ["worked"]})
    made.add_node("more", lambda _: {"late": ["first"], "plain": ["p"]})
    made.add_edge(START, "work")
    made.add_edge("work", "more")
    return made.compile(checkpointer=saver)


def test_a_thread_with_texts_goes_back_to_before_a_channel_was_first_written(
    tmp_path: Path,
) -> None:
    """A thread was moved here from a file of LangGraph's. The first version of a channel is asked
    for without a thread: it was a number, beside the texts of all others, and LangGraph could not
    compare them. No replay of an older checkpoint ended, in that thread alone."""
    url = str(tmp_path / "a.db")
    whole = {"log": ["begin", "worked"], "late": ["first"], "plain": ["p"]}
    with SaverOfTexts.from_url(url) as saver:
        assert graph(saver).invoke({"log": ["begin"]}, config()) == whole
    with PerdureSaver.from_url(url) as saver:
        app = graph(saver)
        assert app.invoke({"log": ["begin"]}, config("new")) == whole
        for thread in ("t", "new", "t"):
            before = [s for s in app.get_state_history(config(thread)) if s.next == ("more",)]
            for state in before:
                assert app.invoke(None, state.config) == whole
                assert asyncio.run(app.ainvoke(None, state.config)) == whole
            kinds = {type(v) for one in saver.list(config(thread)) for v in versions(one)}
            assert kinds == {int if thread == "new" else str}


def versions(found: Any) -> list[Any]:
    return list(found.checkpoint["channel_versions"].values())
