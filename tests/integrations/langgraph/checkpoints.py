"""Checkpoints as LangGraph makes them, for tests that call a saver directly."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple
from langgraph.checkpoint.base.id import uuid6

from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.threads.thread import Thread
from perdure.system.locks import ReentrantLock


def config(thread: Any = "t", checkpoint_id: str | None = None, ns: str = "") -> RunnableConfig:
    found: dict[str, Any] = {"thread_id": thread, "checkpoint_ns": ns}
    if checkpoint_id is not None:
        found["checkpoint_id"] = checkpoint_id
    return {"configurable": found}


def checkpoint(values: Mapping[str, Any], version: int = 1, id: str | None = None) -> Checkpoint:
    return Checkpoint(
        v=4,
        id=id or str(uuid6(clock_seq=version)),
        ts=datetime.now(UTC).isoformat(),
        channel_values=dict(values),
        channel_versions=dict.fromkeys(values, version),
        versions_seen={"node": dict.fromkeys(values, version)},
        updated_channels=list(values),
    )


def put(
    saver: PerdureSaver,
    values: Mapping[str, Any],
    at: RunnableConfig | None = None,
    version: int = 1,
    id: str | None = None,
    **metadata: Any,
) -> RunnableConfig:
    made: Any = {"source": "loop", "step": version, "parents": {}, **metadata}
    return saver.put(at or config(), checkpoint(values, version, id), made, {})


def line(saver: PerdureSaver, count: int, at: RunnableConfig | None = None) -> list[RunnableConfig]:
    """So many checkpoints, each the child of the one before; `n` counts."""
    made: list[RunnableConfig] = []
    for number in range(count):
        at = put(saver, {"n": number, "log": list(range(number))}, at, number + 1)
        made.append(at)
    return made


def lock_of(thread: Thread) -> ReentrantLock:
    """A thread's lock, which lets who holds it call the saver, too: others' calls queue up."""
    thread.lock = lock = ReentrantLock()
    return lock


def id_of(at: RunnableConfig) -> str:
    return str(at["configurable"]["checkpoint_id"])


def get(saver: PerdureSaver, at: RunnableConfig | None = None) -> CheckpointTuple:
    found = saver.get_tuple(at or config())
    assert found is not None
    return found


def values_of(saver: PerdureSaver, at: RunnableConfig | None = None) -> dict[str, Any]:
    return get(saver, at).checkpoint["channel_values"]
