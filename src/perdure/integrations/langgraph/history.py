"""The writes that lead to a channel's value, for channels that LangGraph stores as deltas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

from perdure.core.ops import Delete, Op, Set
from perdure.core.values import Plain
from perdure.errors import NotFound
from perdure.integrations.langgraph.changes import VALUES
from perdure.integrations.langgraph.reading import settled
from perdure.integrations.langgraph.record import record_of
from perdure.integrations.langgraph.requests import Found
from perdure.integrations.langgraph.thread import Thread
from perdure.integrations.langgraph.values import Coder
from perdure.integrations.langgraph.view import parent_of


def delta_history(
    coder: Coder, thread: Thread, namespace: str, checkpoint_id: str | None,
    channels: Sequence[str],
) -> Mapping[str, DeltaChannelHistory]:  # fmt: skip
    """Walk from a checkpoint's parent up, until each channel has a value to begin with.

    The checkpoint's own writes are for the next step, and not among them. `seed` is absent where
    no ancestor has a value.
    """
    found = thread.find(namespace, checkpoint_id) if channels else None
    writes: dict[str, list[list[PendingWrite]]] = {channel: [] for channel in channels}
    history: dict[str, DeltaChannelHistory] = {}
    left = dict.fromkeys(channels)
    presence = _Presence()
    while found is not None and left:
        parent = parent_of(found.view, record_of(found.view.log.commit(found.seq)))
        found = None if parent is None else thread.find_hidden(namespace, parent)
        if found is None:
            break
        if found.view.is_trimmed(found.seq):
            raise NotFound(
                "the writes that its value is made of were removed by retention",
                target=f"thread {thread.name!r}, channels {', '.join(left)}",
                hint="take the thread from a copy of the store from before that",
            )  # fmt: skip
        _collect(coder, thread, found, namespace, left, writes)
        values = presence.values_of(found, left)
        for channel in values:
            del left[channel]
            seed = coder.decode(values[channel], f"state.{channel}")
            history[channel] = {"writes": [], "seed": seed}
    for channel in channels:
        entry = history.setdefault(channel, {"writes": []})
        entry["writes"] = [one for step in reversed(writes[channel]) for one in step]
    return {channel: history[channel] for channel in channels}


def _collect(
    coder: Coder, thread: Thread, found: Found, namespace: str, left: Iterable[str],
    writes: dict[str, list[list[PendingWrite]]],
) -> None:  # fmt: skip
    standing = settled(thread.writes_of(found, namespace))
    for channel in left:
        step: list[PendingWrite] = [
            (task, name, coder.decode(value, f"writes of task {task}, {name}"))
            for task, name, value in standing
            if name == channel
        ]
        writes[channel].append(step)


class _Presence:
    """Which ancestors have a value of a channel, with one fold for each that has, not for each.

    Where no commit between two checkpoints sets or deletes a channel, both have it, or neither.
    """

    def __init__(self) -> None:
        self._below: Found | None = None

    def values_of(self, found: Found, channels: Iterable[str]) -> dict[str, Plain]:
        """The plain values that a checkpoint has; each is asked for from the newest one on."""
        below, self._below = self._below, found
        if below is not None and below.view is found.view and not self._touched(below, found):
            return {}  # those that the one below has not: it was looked at before
        values = found.view.log.at(found.seq).state[VALUES]
        return {channel: values[channel] for channel in channels if channel in values}

    @staticmethod
    def _touched(below: Found, above: Found) -> bool:
        seq = below.seq
        while seq > above.seq:
            commit = below.view.log.commit(seq)
            for op in commit.delta:
                if not op.path or op.path == (VALUES,) or _is_channel(op):
                    return True
            seq = commit.parent
        return seq != above.seq


def _is_channel(op: Op) -> bool:
    return isinstance(op, Set | Delete) and len(op.path) == 2 and op.path[0] == VALUES
