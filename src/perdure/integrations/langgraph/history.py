"""The writes that lead to a channel's value, for channels that LangGraph stores as deltas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from perdure.core.ops import Delete, Op, Set
from perdure.core.values import Plain
from perdure.errors import NotFound
from perdure.integrations.langgraph import names
from perdure.integrations.langgraph.changes import VALUES
from perdure.integrations.langgraph.finding import find_any
from perdure.integrations.langgraph.reading import settled
from perdure.integrations.langgraph.record import parent_in
from perdure.integrations.langgraph.requests import Found
from perdure.integrations.langgraph.thread import Thread
from perdure.integrations.langgraph.values import Coder
from perdure.integrations.langgraph.window import FAR
from perdure.model import Commit


def delta_history(
    coder: Coder, thread: Thread, namespace: str, checkpoint_id: str | None,
    channels: Sequence[str],
) -> Mapping[str, DeltaChannelHistory]:  # fmt: skip
    """Walk from a checkpoint's parent up, until each channel has a value to begin with.

    The checkpoint's own writes are for the next step, and not among them. `seed` is absent where
    no ancestor has a value.
    """
    thread.queue.alone.update(channels)
    found = thread.find(namespace, checkpoint_id) if channels else None
    writes: dict[str, list[list[PendingWrite]]] = {channel: [] for channel in channels}
    history: dict[str, DeltaChannelHistory] = {}
    left = dict.fromkeys(channels)
    presence = _Presence(thread, found, channels)
    steps: list[tuple[Found, list[str]]] = []
    for ancestor in _ancestors(thread, found, namespace):
        if ancestor.view.far()(ancestor.seq).trimmed:
            raise NotFound(
                "the writes that its value is made of were removed by retention",
                target=f"thread {thread.name!r}, channels {', '.join(left)}",
                hint="take the thread from a copy of the store from before that",
            )  # fmt: skip
        steps.append((ancestor, list(left)))
        for channel, value in presence.values_of(ancestor).items():
            del left[channel]
            history[channel] = {"writes": [], "seed": coder.decode(value, f"state.{channel}")}
        if not left:
            break
    _find_early(thread, steps, namespace)
    for ancestor, wanted in steps:
        _collect(coder, thread, ancestor, namespace, wanted, writes)
    for channel in channels:
        entry = history.setdefault(channel, {"writes": []})
        entry["writes"] = [one for step in reversed(writes[channel]) for one in step]
    return {channel: history[channel] for channel in channels}


def _ancestors(thread: Thread, found: Found | None, namespace: str) -> Iterator[Found]:
    """Nearest first, removed or not. One that was put again behind what came of it ends them."""
    told: set[str] = set()
    while found is not None and found.id not in told:
        told.add(found.id)
        found = _parent_of(thread, found, namespace)
        if found is not None and found.id not in told:
            yield found


def _parent_of(thread: Thread, found: Found, namespace: str) -> Found | None:
    """The checkpoint that one follows, removed or not, as it was put last."""
    commit_at = found.view.far()
    parent = parent_in(commit_at(found.seq))
    if type(parent) is int:
        key = names.read_key(commit_at(parent).cause.key)
        if key is None or key[0] != "c":
            return None
        place = key[2]
        _, parent = names.read_place(place)
    elif type(parent) is str:
        place = names.place_of(namespace, parent)
    else:
        return None
    views = thread.seen
    seq = views[0].recent().put_of(place)
    if seq is not None:
        return Found(views[0], seq, parent)
    return find_any(views, namespace, parent)


def delta_channels(checkpoint: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterable[str]:
    """Channels that LangGraph stores as deltas, as far as a checkpoint tells: its metadata counts
    the steps since the last snapshot of each."""
    yield from metadata.get("counters_since_delta_snapshot") or ()
    for channel, value in checkpoint["channel_values"].items():
        if type(value) is _DeltaSnapshot:
            yield channel


def _find_early(
    thread: Thread, steps: Sequence[tuple[Found, list[str]]], namespace: str
) -> None:  # fmt: skip
    """Find the writes that came before their checkpoints in one go: most checkpoints have none, and
    to look for those of each takes as long as to read it."""
    if not steps:
        return
    own = thread.seen[0]
    places = [names.place_of(namespace, one.id) for one, _ in steps if one.view is own]
    own.recent().find_early(places)


def _collect(
    coder: Coder, thread: Thread, found: Found, namespace: str, left: Iterable[str],
    writes: dict[str, list[list[PendingWrite]]],
) -> None:  # fmt: skip
    written = thread.writes_of(found, namespace, FAR)
    standing = settled(written) if written else ()
    for channel in left if written else ():
        step: list[PendingWrite] = [
            (task, name, coder.decode(value, f"writes of task {task}, {name}"))
            for task, name, value in standing
            if name == channel
        ]
        writes[channel].append(step)


class _Presence:
    """Which ancestors have a value of a channel, told by the ops on the way: no state is folded but
    where these do not say it, and there once.

    Of the checkpoint that is asked for, the last op on a channel tells it, wherever that is above.

    An op says what there was before it. A channel that is deleted, or changed inside, was there;
    whether one that is set was, nobody knows.
    """

    def __init__(self, thread: Thread, target: Found | None, channels: Iterable[str]) -> None:
        self._below = target
        state = None if target is None else thread.state_at_hand(target)
        self._there: dict[str, bool | None] = {
            channel: None if state is None else channel in state[VALUES] for channel in channels
        }
        if target is not None and state is None:
            self._tell(target)

    def _tell(self, target: Found) -> None:
        """What the last op on each channel says, if that is not too far up."""
        commit_at, seq = target.view.far(), target.seq
        while None in self._there.values() and seq > max(0, target.seq - FAR):
            commit = commit_at(seq)
            if commit.trimmed:
                return
            for op in reversed(commit.delta):
                if not self._tell_by(op):
                    return
            seq = commit.parent

    def _tell_by(self, op: Op) -> bool:
        """False: it changes all channels, and does not say how."""
        there, path = self._there, op.path
        if len(path) > 1:
            if path[0] == VALUES and there.get(path[1], False) is None:
                there[path[1]] = len(path) > 2 or type(op) is not Delete
        elif not path and type(op) is Set:
            for channel, known in there.items():
                there[channel] = channel in op.value[VALUES] if known is None else known
        elif not path or path[0] == VALUES:
            return False
        return True

    def values_of(self, found: Found) -> dict[str, Plain]:
        """The plain values that a checkpoint has, of the channels that none below it had."""
        self._go_up(found)
        there = self._there
        values: Plain = None
        if None in there.values():
            values = found.view.log.at(found.seq).state[VALUES]
            for channel, known in there.items():
                there[channel] = channel in values if known is None else known
        has = [channel for channel, known in there.items() if known]
        if has and values is None:
            values = _set_at(found.view.far()(found.seq), has)
        if has and values is None:
            values = found.view.log.at(found.seq).state[VALUES]
        for channel in has:
            del there[channel]
        return {channel: values[channel] for channel in has}

    def _go_up(self, found: Found) -> None:
        below, self._below = self._below, found
        seq = 0
        if below is not None and below.view is found.view:
            seq = below.seq
            commit_at = found.view.far()
            while seq > found.seq:
                commit = commit_at(seq)
                for op in reversed(commit.delta):
                    self._undo(op)
                seq = commit.parent
        if seq != found.seq:  # it is not what the one below was made of
            self._there = dict.fromkeys(self._there)

    def _undo(self, op: Op) -> None:
        path = op.path
        if len(path) < 2:
            if not path or path[0] == VALUES:
                self._there = dict.fromkeys(self._there)
        elif path[0] == VALUES and path[1] in self._there:
            self._there[path[1]] = None if len(path) == 2 and type(op) is Set else True


def _set_at(commit: Commit, channels: Sequence[str]) -> Mapping[str, Plain] | None:
    """The values of channels that a commit sets, each by one op; None: it does not."""
    found: dict[str, Plain] = {}
    for op in commit.delta:
        path = op.path
        if path and (path[0] != VALUES or (len(path) > 1 and path[1] not in channels)):
            continue
        if type(op) is Set and not path and len(commit.delta) == 1:
            found = op.value[VALUES]
        elif type(op) is Set and len(path) == 2 and path[1] not in found:
            found[path[1]] = op.value
        else:
            return None
    return found if found.keys() >= set(channels) else None
