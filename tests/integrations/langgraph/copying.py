"""Threads, copies of them and copies of those, beside LangGraph's own saver, in which a copy is a
copy of all rows: whatever is done to one of them, each of the others is what it was."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver
from msgspec import Struct, field

from perdure.integrations.langgraph import PerdureSaver
from tests.integrations.langgraph.checkpoints import checkpoint, config, id_of, lock_of
from tests.integrations.langgraph.conftest import Place

SPACES = ("", "sub:1")
CHANNELS = ("ch", "log")
SOURCES = ("loop", "input", "update")
Rows = dict[str, list[Any]]


class Known(Struct):
    """A thread.

    Attributes:
        moments: its rows when a commit of it was the newest.
        whole: nothing was removed of it, so that the ways in it are those of its rows.
    """

    name: str
    moments: dict[int, Rows] = field(default_factory=dict)
    whole: bool = True


class Copies:
    """What users do with threads and copies of them, at random."""

    def __init__(self, place: Place, seed: int) -> None:
        self._place, self._random = place, random.Random(seed)
        self._theirs = SqliteSaver(sqlite3.connect(":memory:", check_same_thread=False))
        self._theirs.setup()
        self._ours = [place.open(), place.open()]
        self._known = [Known("t")]
        self._ids: list[str] = []
        self._number = 0
        self._loop = asyncio.Runner()

    def close(self) -> None:
        self._loop.close()
        self._theirs.conn.close()

    def act(self) -> None:
        act: Callable[[Known], None] = self._random.choices(
            [
                self._go_on,
                self._write,
                self._put_again,
                self._copy,
                self._roll_back,
                self._remove,
                self._reopen,
                self.compare,
            ],
            [10, 9, 2, 3, 2, 0.5, 1, 3],
        )[0]
        act(self._random.choice(self._known))

    # -- what is done ----------------------------------------------------------------------

    def _mine(self) -> PerdureSaver:
        return self._random.choice(self._ours)

    def _any(self, thread: Known) -> tuple[str, str | None]:
        space = SPACES[self._random.random() < 0.25]
        made = [row[2] for row in self._rows(thread.name)["checkpoints"] if row[1] == space]
        if not made:
            return space, None
        return space, made[-1] if self._random.random() < 0.6 else self._random.choice(made)

    def _go_on(self, thread: Known) -> None:
        space, parent = self._any(thread)
        self._number += 1
        # Now and then one with a lesser id than others that are there.
        number = self._number if self._random.random() < 0.9 else self._number - 8
        at = f"c{number:05}-{self._number}"
        self._put(thread, space, at, parent)
        self._ids.append(at)

    def _put_again(self, thread: Known) -> None:
        """With other values, and the parent that it has."""
        space, at = self._any(thread)
        if at is None:
            return
        found = self._theirs.get_tuple(config(thread.name, at, space))
        if found is not None:
            parent = found.parent_config
            self._put(thread, space, at, None if parent is None else id_of(parent))

    def _put(self, thread: Known, space: str, at: str, parent: str | None) -> None:
        self._number += 1
        kinds: tuple[Any, ...] = (None, _DeltaSnapshot([self._number]), [self._number], "text")
        values: dict[str, Any] = {
            channel: self._random.choice(kinds)
            for channel in CHANNELS
            if self._random.random() < 0.2
        }
        made = checkpoint({"n": self._number, **values}, self._number, at)
        source = self._random.choice(SOURCES)
        metadata: Any = {"source": source, "step": self._number, "parents": {}}
        behind, mine = config(thread.name, parent, space), self._mine()
        if parent is not None and self._random.random() < 0.4:
            self._put_with_writes(mine, behind, made, metadata)
        else:
            mine.put(behind, made, metadata, {})
        self._theirs.put(behind, made, metadata, {})
        self._note(thread)

    def _put_with_writes(
        self, mine: PerdureSaver, at: RunnableConfig, made: Any, metadata: Any
    ) -> None:
        """In one commit, where that can be."""
        task, writes = f"along {self._number}", [("ch", self._number), ("else", 0)]
        thread = mine._thread(at["configurable"]["thread_id"])
        with lock_of(thread):
            writer = threading.Thread(target=mine.put_writes, args=(at, writes, task))
            writer.start()
            while not thread.queue.holds(at["configurable"]["checkpoint_ns"], id_of(at)):
                pass
            mine.put(at, made, metadata, {})
        writer.join()
        self._theirs.put_writes(at, writes, task)

    def _write(self, thread: Known) -> None:
        space, checkpoint_id = self._any(thread)
        if checkpoint_id is None:
            return
        at = config(thread.name, checkpoint_id, space)
        self._number += 1
        channels = self._random.choices((*CHANNELS, "__error__"), k=self._random.randint(1, 3))
        if "__error__" in channels:
            channels = ["__error__"]
        writes = [(channel, [self._number]) for channel in channels]
        task = f"task {self._random.randint(1, 3)}"
        path = self._random.choice(("", "~1", "~2"))
        self._mine().put_writes(at, writes, task, path)
        self._theirs.put_writes(at, writes, task, path)
        self._note(thread)

    def _copy(self, thread: Known) -> None:
        if not thread.moments:
            return
        name = f"copy {len(self._known)} of {thread.name}"
        saver = self._mine()
        if self._random.random() < 0.5:
            saver.copy_thread(thread.name, name)
        else:
            self._loop.run(saver.acopy_thread(thread.name, name))
        copied = Known(name, whole=thread.whole)
        self._known.append(copied)
        self._set_rows(name, self._rows(thread.name))
        self._note(thread)
        self._note(copied)
        self._compare(copied)

    def _roll_back(self, thread: Known) -> None:
        if not thread.moments:
            return
        to = self._random.choice(list(thread.moments))
        if to == 1 and thread.name != "t":  # the commit that only says whose copy it is
            return
        self._agent(thread).rollback(to)
        for saver in self._ours:  # what comes behind a line that was gone back from does not count
            saver.get_tuple(config(thread.name))
        self._set_rows(thread.name, thread.moments[to])
        self._note(thread)

    def _remove(self, thread: Known) -> None:
        if not thread.moments:
            return
        saver = self._mine()
        kept = {
            (space, found.checkpoint["id"])
            for space in SPACES
            if (found := saver.get_tuple(config(thread.name, ns=space)))
        }
        saver.prune([thread.name])
        rows = self._rows(thread.name)
        for table in rows:
            rows[table] = [row for row in rows[table] if (row[1], row[2]) in kept]
        self._set_rows(thread.name, rows)
        self._note(thread)
        thread.whole = False

    def _reopen(self, thread: Known) -> None:
        self._ours[self._random.randrange(2)] = self._place.open()

    # -- theirs ----------------------------------------------------------------------------

    def _agent(self, thread: Known) -> Any:
        store = self._ours[0].store
        info = store.find(thread.name)
        assert info is not None
        return store.agent_of(info)

    def _note(self, thread: Known) -> None:
        info = self._ours[0]._logs.look(thread.name)
        assert info is not None
        thread.moments[info.seq] = self._rows(thread.name)

    def _rows(self, thread: str) -> Rows:
        run = self._theirs.conn.execute
        return {
            table: run(
                f"SELECT * FROM {table} WHERE thread_id = ? ORDER BY rowid", (thread,)
            ).fetchall()
            for table in ("checkpoints", "writes")
        }

    def _set_rows(self, thread: str, rows: Rows) -> None:
        for table, found in rows.items():
            self._theirs.conn.execute(f"DELETE FROM {table} WHERE thread_id = ?", (thread,))
            for _, *row in found:
                marks = ",".join("?" * (len(row) + 1))
                self._theirs.conn.execute(f"INSERT INTO {table} VALUES ({marks})", (thread, *row))

    # -- comparing -------------------------------------------------------------------------

    def compare(self, thread: Known) -> None:
        self._compare(thread)

    def compare_all(self) -> None:
        for thread in self._known:
            self._compare(thread)

    def _compare(self, thread: Known) -> None:
        saver = self._mine() if self._random.random() < 0.7 else self._place.open()
        self._compare_lists(saver, thread, {"configurable": {"thread_id": thread.name}})
        for space in SPACES:
            self._compare_lists(saver, thread, config(thread.name, ns=space))
            for at in self._random.sample(self._ids, min(len(self._ids), 10)):
                self._compare_one(saver, thread, config(thread.name, at, space))
            latest = self._get(saver, config(thread.name, ns=space))
            if latest is not None:
                assert plain(latest) == plain(self._theirs.get_tuple(latest.config))
                assert latest == next(iter(saver.list(latest.config)))

    def _compare_lists(self, saver: PerdureSaver, thread: Known, at: RunnableConfig) -> None:
        asked: list[dict[str, Any]] = [{}, {"limit": 1}, {"limit": self._random.randint(2, 9)}]
        asked.append({"filter": {"source": self._random.choice(SOURCES)}})
        if self._ids:
            before = config(thread.name, self._random.choice(self._ids))
            asked += [{"before": before}, {"before": before, "limit": self._random.randint(1, 3)}]
        for more in asked:
            theirs = [plain(one) for one in self._theirs.list(at, **more)]
            found = [plain(one) for one in self._list(saver, at, **more)]
            assert found == theirs, more

    def _compare_one(self, saver: PerdureSaver, thread: Known, at: RunnableConfig) -> None:
        assert plain(self._get(saver, at)) == plain(self._theirs.get_tuple(at))
        if thread.whole and self._random.random() < 0.5:
            found = saver.get_delta_channel_history(config=at, channels=CHANNELS)
            same = self._theirs.get_delta_channel_history(config=at, channels=CHANNELS)
            assert found == same

    def _get(self, saver: PerdureSaver, at: RunnableConfig) -> CheckpointTuple | None:
        if self._random.random() < 0.7:
            return saver.get_tuple(at)
        return self._loop.run(saver.aget_tuple(at))

    def _list(self, saver: PerdureSaver, at: RunnableConfig, **more: Any) -> list[CheckpointTuple]:
        if self._random.random() < 0.7:
            return list(saver.list(at, **more))

        async def listed() -> list[CheckpointTuple]:
            return [one async for one in saver.alist(at, **more)]

        return self._loop.run(listed())


def plain(found: CheckpointTuple | None) -> Any:
    """In short, for what a failing comparison shows: the rest is made anew for each put."""
    if found is None:
        return None
    parent = found.parent_config
    return (
        found.config["configurable"]["checkpoint_ns"],
        found.checkpoint["id"],
        found.checkpoint["channel_values"],
        found.metadata,
        None if parent is None else id_of(parent),
        found.pending_writes,
    )
