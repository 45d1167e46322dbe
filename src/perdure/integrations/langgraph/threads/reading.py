"""Checkpoints as LangGraph takes them: built from a state, the commit's record, and the writes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    writes_sort_key,
)

from perdure.core.values.plain_values import Plain
from perdure.errors import SchemaError
from perdure.integrations.langgraph.threads import state_changes
from perdure.integrations.langgraph.threads.write_records import Write
from perdure.integrations.langgraph.values import thread_names
from perdure.integrations.langgraph.values.rich_values import Built, Coder
from perdure.model import from_micros, to_micros


def checkpoint_of(
    coder: Coder, checkpoint_id: str, state: Plain, rest: Plain, built: Built | None = None
) -> Checkpoint:
    """Builds a checkpoint; `state`, and the `rest` of its record, are only read.

    Raises:
        SchemaError: a value cannot be rebuilt (names its path); or it is not the state of a
            checkpoint.
    """
    try:
        rest = coder.decode(rest, "checkpoint")
        checkpoint: dict[str, Any] = {
            "v": rest.pop("v"),
            "id": checkpoint_id,
            "ts": unpacked_time(rest.pop("ts")),
            "channel_values": coder.decode_items(state[state_changes.VALUES], "state", built),
            "channel_versions": coder.decode_items(
                state[state_changes.VERSIONS], "channel_versions"
            ),
            "versions_seen": {
                node: coder.decode_items(seen, f"versions_seen[{node!r}]")
                for node, seen in state[state_changes.SEEN].items()
            },
            **rest,
        }
    except (LookupError, TypeError, AttributeError, OverflowError) as error:
        raise SchemaError(
            f"the state is not that of a thread: {error!r}",
            target=f"checkpoint {checkpoint_id}",
            hint="it was not written by PerdureSaver; look at it with `perdure state`",
        ) from error
    return cast(Checkpoint, checkpoint)


def packed_time(text: Any) -> Any:
    """Returns a time as LangGraph writes it as microseconds since 1970; text that these would not
    restore is returned as it is."""
    if type(text) is int:  # it would come back as the time that this number stands for
        raise TypeError(
            f"a checkpoint's ts is a text, as datetime.isoformat() gives it, not {text!r:.60}"
        )
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return text
    if moment.tzinfo is not UTC or moment.isoformat() != text:
        return text  # it would come back in other words
    return to_micros(moment)


def unpacked_time(packed: Any) -> Any:
    return from_micros(packed).isoformat() if type(packed) is int else packed


def metadata_of(coder: Coder, metadata: Plain) -> CheckpointMetadata:
    return cast(CheckpointMetadata, coder.decode_items(metadata, "metadata"))


def tuple_of(
    thread_id: str,
    namespace: str,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    parent: str | None,
    writes: list[PendingWrite],
) -> CheckpointTuple:
    def config(checkpoint_id: str) -> RunnableConfig:
        return thread_names.config_of(thread_id, namespace, checkpoint_id)

    return CheckpointTuple(
        config(checkpoint["id"]),
        checkpoint,
        metadata,
        None if parent is None else config(parent),
        writes,
    )


def settled(writes: Iterable[Write]) -> list[tuple[str, str, Plain]]:
    """Returns the writes for one checkpoint that count, in the order in which a superstep applies
    them.

    A task's ordinary write counts once: the first one. Of its special ones (negative indexes: an
    error, an interrupt), the last does.
    """
    standing: dict[tuple[str, int], tuple[str, str, Plain]] = {}
    for write in writes:
        for index, channel, value in write.writes:
            if index < 0 or (write.task, index) not in standing:
                standing[write.task, index] = write.path, channel, value
    ordered = sorted(standing, key=lambda key: writes_sort_key(standing[key][0], *key))
    return [(task, *standing[task, index][1:]) for task, index in ordered]


def pending_of(coder: Coder, writes: Iterable[Write]) -> list[PendingWrite]:
    """Writes as LangGraph takes them."""
    return [
        (task, channel, coder.decode(value, f"writes of task {task}, {channel}"))
        for task, channel, value in settled(writes)
    ]
