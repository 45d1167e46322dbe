"""The least that a turn of a graph can cost with a saver in Python: commits in a straight line.

A checkpoint is what a `put` in a straight line is: the messages that are new by number, the
versions that changed, one transaction of three statements and its sync. The writes of tasks come
along with the next one, unless the channel is stored as deltas: then LangGraph waits for them, and
they are a commit by themselves. Nobody waits here for that next one; nothing is compared, looked
up, or read again. It begins with what our saver reads, and is good for one turn.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from bench.rows import langgraph_savers as lg
from bench.rows.langgraph_straight import APPEND, SET
from bench.rows.langgraph_straight_put import KEY
from bench.rows.straight import Line, writing
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.values import thread_names


class StraightSaver(BaseCheckpointSaver[Any]):
    """Safe to share between threads."""

    def __init__(self, ours: PerdureSaver, commit: Any, *, delta: bool) -> None:
        super().__init__()
        self._ours = ours
        self._delta = delta
        info = ours.store.find(lg.THREAD)
        assert info is not None
        last = ours.store.agent_of(info).commit(info.seq)
        self.line = Line(
            last, lambda at, _, head, body: commit(at, head, body, (KEY, (self._key, at)))
        )
        self._seq = self._at = last.seq
        self._key = ""
        self._mutex = threading.Lock()
        self._waiting: list[Any] = []
        self._written: Counter[str] = Counter()
        self._messages = 0
        self._versions: dict[str, Any] = {}
        self._seen: dict[str, Any] = {}

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = self._ours.get_tuple(config)
        assert found is not None
        checkpoint = found.checkpoint
        self._versions = dict(checkpoint["channel_versions"])
        self._seen = {node: dict(seen) for node, seen in checkpoint["versions_seen"].items()}
        self._messages = len(checkpoint["channel_values"].get("messages", ()))
        return found

    def get_delta_channel_history(self, **asked: Any) -> Any:
        return self._ours.get_delta_channel_history(**asked)

    def get_next_version(self, current: int | None, channel: None = None) -> int:
        return (current or 0) + 1

    def put(
        self, config: RunnableConfig, checkpoint: Any, metadata: Any, *_: Any
    ) -> RunnableConfig:
        with self._mutex:
            delta: list[Any] = []
            given = checkpoint["channel_values"].get("messages", ())
            if len(given) > self._messages:
                more = [_plain(one) for one in given[self._messages :]]
                delta.append([APPEND, ["values", "messages"], more])
                self._messages = len(given)
            for channel, version in checkpoint["channel_versions"].items():
                if self._versions.get(channel) != version:
                    delta.append([SET, ["versions", channel], version])
                    self._versions[channel] = version
            for node, seen in checkpoint["versions_seen"].items():
                if self._seen.get(node) != seen:
                    self._seen[node] = dict(seen)
                    delta.append([SET, ["seen", node], self._seen[node]])
            at = round(time.time() * 1_000_000)
            words = [metadata["source"], metadata["step"]]
            record = {"t": "lg", "p": self._at, "a": at, "u": True, "m": words}
            along, self._waiting = self._waiting, []
            key = thread_names.checkpoint_key("", checkpoint["id"], 1)
            self._append(delta, [record, *along], f"{words[0]}, step {words[1]}", key)
            self._at = self._seq
        return thread_names.config_of(lg.THREAD, "", checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        with self._mutex:
            record = {
                "t": "lg-writes",
                "on": self._at,
                "task": task_id,
                "path": task_path,
                "writes": [
                    [place, channel, [_plain(one) for one in value] if value else None]
                    for place, (channel, value) in enumerate(writes)
                ],
            }
            if not self._delta:
                self._waiting.append(record)
                return
            checkpoint_id = thread_names.checkpoint_id_of(config) or ""
            self._written[checkpoint_id] += 1
            key = thread_names.writes_key("", checkpoint_id, self._written[checkpoint_id])
            self._append([], [record], "writes to messages", key)

    def _append(self, delta: list[Any], records: list[Any], what: str, key: str) -> None:
        self._key = key
        self.line.append(delta, records, ["save", {"w": what, "k": key}])
        self._seq += 1


def _plain(message: BaseMessage) -> dict[str, Any]:
    return {"@": "HumanMessage", "content": message.content, "id": message.id}


@contextmanager
def straight(path: Path, *, delta: bool) -> Iterator[StraightSaver]:
    """A saver for one turn of the thread in a closed store of ours; its log is proved then."""
    with lg.ours(path) as ours, writing(path) as commit:
        saver = StraightSaver(ours, commit, delta=delta)
        yield saver
    with lg.ours(path) as ours:
        info = ours.store.find(lg.THREAD)
        assert info is not None
        saver.line.prove(ours.store.agent_of(info))
