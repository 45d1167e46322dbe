"""A checkpoint, and writes, as a commit: delta, state, cause, records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from perdure.core.values.ops import Op
from perdure.core.values.plain_values import Plain
from perdure.integrations.langgraph.threads import state_changes
from perdure.integrations.langgraph.threads.counted_commits import Past
from perdure.integrations.langgraph.threads.log_view import Tip
from perdure.integrations.langgraph.threads.queued_writes import Request
from perdure.integrations.langgraph.threads.record import pack
from perdure.integrations.langgraph.threads.requests import Put, Slot
from perdure.integrations.langgraph.threads.state_changes import Sources
from perdure.integrations.langgraph.threads.write_records import WRITES
from perdure.integrations.langgraph.values import thread_names
from perdure.integrations.langgraph.values.rich_values import Coder
from perdure.model import Cause

STEP = "loop"
"""The source of checkpoints that a graph makes by itself; others come from people."""

Step = tuple[Sequence[Op], Plain, Cause, list[dict[str, Any]]]


def of_checkpoint(
    coder: Coder, put: Put, place: Slot, number: int, past: Past
) -> tuple[Step, Sources]:
    """A checkpoint that is put for the n-th time, and the objects that its state came from. The
    line that it makes longer is used up by this.

    Raises:
        Unstorable: a value cannot be stored; names its path.
    """
    base = place.base
    if base is None or not state_changes.is_state(base.held.state):
        delta, state, sources = state_changes.begin(coder, put.checkpoint)
    else:
        delta, state, sources = state_changes.advance(
            coder,
            base.held.state,
            base.sources,
            put.checkpoint,
            own=not place.new,
            exactly=put.metadata.get("source") != STEP,
        )
    key = thread_names.checkpoint_key(put.namespace, put.id, number)
    kind = "fork" if place.new else "save"
    record = pack(put.rest, put.metadata, place.parent or put.parent, place.late, delta)
    seq = place.after if base is None else base.held.seq
    cause = cause_of(put, key, kind, place.branch, seq)
    records = [record, *past.record()] if past.moved else [record]
    return (delta, state, cause, records), sources


def of_writes(
    tip: Tip, namespace: str, number: int, requests: Sequence[Request], state: Plain, past: Past
) -> Step:
    """The n-th writes for a checkpoint, on the line that ends with `tip`; they change no state."""
    channels = {channel for one in requests for _, channel, _ in one.write.writes}
    key = thread_names.writes_key(namespace, requests[0].id, number)
    what = f"writes to {', '.join(sorted(channels))}"[:200]
    cause = Cause("save", printable(what), key=key)
    records = records_of(tip, requests)
    return (), state, cause, records + past.record() if past.moved else records


def records_of(tip: Tip, requests: Sequence[Request]) -> list[dict[str, Any]]:
    """Writes as records of a commit on the line that ends with `tip`."""
    return [
        {
            "t": WRITES,
            "on": tip.at,
            "task": one.write.task,
            "path": one.write.path,
            "writes": [list(write) for write in one.write.writes],
            **({"brought": True} if one.write.brought else {}),
        }
        for one in requests
    ]


def late(tips: Iterable[Tip], checkpoint_id: str) -> int:
    """Returns the number of checkpoints, this one included, that came after one with a greater
    id."""
    most, newer = 0, False
    for tip in tips:
        most = max(most, tip.late)
        newer = newer or checkpoint_id < tip.id
    return most + newer


def cause_of(put: Put, key: str, kind: str, branch: str = "", base: int = 0) -> Cause:
    source, step = put.metadata.get("source"), put.metadata.get("step")
    words = [str(source or "checkpoint")] + ([f"step {step}"] if step is not None else [])
    if put.namespace:
        words.append(f"in {put.namespace}")
    if kind == "fork":
        return Cause(kind, printable(branch), key=key, refers=(base,))
    return Cause(kind, printable(", ".join(words)), key=key)


def printable(words: str) -> str:
    return words.encode("utf-8", "replace").decode()
