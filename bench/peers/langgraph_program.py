"""LangGraph with a saver: `FOLDER sqlite|async|postgres|perdure|none [--delta] [URL]`.

A step is a superstep of a graph that loops, at LangGraph's durability "sync": its checkpoint is
written before the next one begins. All in one `invoke`, as an agent's loop does it, so what it
costs to load the thread is in taking it up, not in a step. `perdure` is our saver
in our environment, at the same version of LangGraph; `none` is LangGraph alone, which keeps
nothing.
"""

from __future__ import annotations

import asyncio
import sys
from bisect import bisect_left
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from bench.peers.contest import LISTED, Contestant, contend, in_threads, message, timed
from bench.peers.langgraph_graphs import results, said, saying, working
from bench.peers.serving import Answer, Missing

THREAD: Any = {"configurable": {"thread_id": "conversation"}}
POOL = 8
"""Connections: its documentation's way for threads."""


class Graphs(Contestant):
    """The synchronous savers."""

    package: ClassVar[str] = "langgraph"

    def __init__(self, folder: str, kind: str, *options: str) -> None:
        super().__init__(folder, *options)
        self.kind = kind
        self.delta = "--delta" in options
        self.url = next((option for option in options if "://" in option), "")
        self.opened = ExitStack()
        self._places: dict[int, Any] = {}
        if kind == "perdure":  # imported before anything is timed, and only where it is installed
            self.ours = import_module("perdure.integrations.langgraph")
            import_module("perdure.storage.sqlite.backend")

    def open(self) -> int:
        self.saver = self.new_saver()
        return self.take_up()

    def take_up(self) -> int:
        self.talk = saying(self.saver, delta=self.delta)
        self.work = working(self.saver)
        if self.saver is None:
            return 0
        self._said = len(self.state(THREAD).values.get("messages", []))
        return self._said

    def new_saver(self) -> Any:
        path = Path(self.folder) / "graph.db"
        match self.kind:
            case "sqlite":
                return self.opened.enter_context(SqliteSaver.from_conn_string(str(path)))
            case "postgres":
                return self._in_postgres()
            case "perdure":
                return self.opened.enter_context(self.ours.PerdureSaver.from_url(self.url or path))
            case _:
                return None

    def _in_postgres(self) -> Any:
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import ConnectionPool

        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        pool: Any = ConnectionPool(self.url, min_size=1, max_size=POOL, kwargs=settings, open=True)
        self.opened.enter_context(pool)
        saver = PostgresSaver(pool)
        saver.setup()
        return saver

    def close(self) -> None:
        self.opened.close()

    def invoke(self, graph: Any, thread: str, updates: list[Any]) -> Answer:
        turn, call = graph.begin(thread, updates)
        graph.app.invoke(**call)
        return turn.answer()  # type: ignore[no-any-return]

    def say(self, count: int) -> Answer:
        """The first superstep of a turn is not timed."""
        if self.saver is None:
            raise Missing("keeps nothing")
        first = self._said + 1
        self._said += count
        updates = [said(message(first + number)) for number in range(count)]
        return self.invoke(self.talk, "conversation", updates)

    def steps(self, count: int) -> Answer:
        return self.invoke(self.work, self.new_name(), results(count))

    def tools(self, count: int) -> Answer:
        raise Missing("records outcomes only, with their superstep")

    def tokens(self, count: int) -> Answer:
        raise Missing("streams tokens, and keeps none before their superstep ends")

    def concurrent(self, runs: int, count: int) -> Answer:
        def work(name: str) -> None:
            self.invoke(self.work, name, results(count - 1))

        names = [self.new_name() for _ in range(runs)]
        with timed() as clock:
            in_threads([partial(work, name) for name in names])
        return clock.answer(runs * count)

    def state(self, config: Any) -> Any:
        return self.talk.app.get_state(config)

    def change(self, config: Any, values: Any) -> None:
        self.talk.app.update_state(config, values, as_node="work")

    def newest(self, limit: int | None) -> list[Any]:
        if self.saver is None:
            raise Missing("keeps nothing")
        return list(self.saver.list(THREAD, limit=limit))

    def _at(self, messages: int) -> Any:
        """Where the conversation had so many messages, found among its supersteps by halves."""
        if messages not in self._places:
            looped = [one.config for one in self.newest(None) if one.metadata["source"] == "loop"]
            place = bisect_left(
                range(len(looped)),
                -messages,
                key=lambda number: -len(self.state(looped[number]).values["messages"]),
            )
            assert len(self.state(looped[place]).values["messages"]) == messages
            self._places[messages] = looped[place]
        return self._places[messages]

    def fork(self, at: int) -> Answer:
        where, update = self._at(at), {"messages": [said("another way")]}
        with timed() as clock:
            self.change(where, update)
        return clock.answer(1)

    def past(self, at: int) -> Answer:
        where = self._at(at)
        with timed() as clock:
            self.state(where)
        return clock.answer(1)

    def recent(self) -> Answer:
        with timed() as clock:
            found = self.newest(LISTED)
        assert found
        return clock.answer(1)

    def delete(self) -> Answer:
        if self.saver is None:
            raise Missing("keeps nothing")
        with timed() as clock:
            self.saver.delete_thread("conversation")
        return clock.answer(1)


class AsyncGraphs(Graphs):
    """The asynchronous one, in an event loop of its own."""

    def open(self) -> int:
        self.loop = asyncio.Runner()
        self.closing = AsyncExitStack()
        path = Path(self.folder) / "graph.db"
        self.saver = self.loop.run(
            self.closing.enter_async_context(AsyncSqliteSaver.from_conn_string(str(path)))
        )
        return self.take_up()

    def close(self) -> None:
        self.loop.run(self.closing.aclose())

    def invoke(self, graph: Any, thread: str, updates: list[Any]) -> Answer:
        turn, call = graph.begin(thread, updates)
        self.loop.run(graph.app.ainvoke(**call))
        return turn.answer()  # type: ignore[no-any-return]

    def concurrent(self, runs: int, count: int) -> Answer:
        calls = [self.work.begin(self.new_name(), results(count - 1))[1] for _ in range(runs)]

        async def together() -> None:
            await asyncio.gather(*(self.work.app.ainvoke(**call) for call in calls))

        with timed() as clock:
            self.loop.run(together())
        return clock.answer(runs * count)

    def state(self, config: Any) -> Any:
        return self.loop.run(self.talk.app.aget_state(config))

    def change(self, config: Any, values: Any) -> None:
        self.loop.run(self.talk.app.aupdate_state(config, values, as_node="work"))

    def newest(self, limit: int | None) -> list[Any]:
        async def listed() -> list[Any]:
            return [found async for found in self.saver.alist(THREAD, limit=limit)]

        return self.loop.run(listed())

    def delete(self) -> Answer:
        with timed() as clock:
            self.loop.run(self.saver.adelete_thread("conversation"))
        return clock.answer(1)


if __name__ == "__main__":
    folder, kind, *options = sys.argv[1:]
    contend((AsyncGraphs if kind == "async" else Graphs)(folder, kind, *options))
