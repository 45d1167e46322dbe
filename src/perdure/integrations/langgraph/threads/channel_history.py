"""The writes that lead to a channel's value, for channels that LangGraph stores as deltas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from perdure.core.values.ops import Delete, Op, Set
from perdure.core.values.plain_values import Plain
from perdure.errors import NotFound, SchemaError
from perdure.integrations.langgraph.threads.delta_trail import Trail, Way
from perdure.integrations.langgraph.threads.finding import find_any
from perdure.integrations.langgraph.threads.log_view import View
from perdure.integrations.langgraph.threads.reading import settled
from perdure.integrations.langgraph.threads.recent_commits import FAR
from perdure.integrations.langgraph.threads.record import parent_in
from perdure.integrations.langgraph.threads.requests import Found
from perdure.integrations.langgraph.threads.state_changes import VALUES, VERSIONS
from perdure.integrations.langgraph.threads.thread import Thread
from perdure.integrations.langgraph.threads.write_records import Write
from perdure.integrations.langgraph.values import thread_names
from perdure.integrations.langgraph.values.rich_values import Coder
from perdure.model import Commit


def delta_history(
    coder: Coder,
    thread: Thread,
    namespace: str,
    checkpoint_id: str | None,
    channels: Sequence[str],
) -> Mapping[str, DeltaChannelHistory]:
    """Walk from a checkpoint's parent up, until each channel has a value to begin with, or until
    an ancestor of which it is known what led to it.

    The checkpoint's own writes are for the next step, and not among them. `seed` is absent where
    no ancestor has a value.
    """
    thread.queue.alone.update(channels)
    found = thread.find(namespace, checkpoint_id) if channels else None
    if found is None:
        return {channel: {"writes": []} for channel in channels}
    window = None  # of a thread whose checkpoints are all in one log
    if len(thread.seen) == 1 and found.view is thread.seen[0]:
        window = found.view.telling()
    known = None if window is None else window.trails.take(namespace, channels)
    trail = _AncestorWalk(thread, found, namespace, channels).walk(known)
    if window is not None:
        window.trails.keep(namespace, channels, trail)
    return {channel: _told(coder, channel, trail.ways[channel]) for channel in channels}


def _told(coder: Coder, channel: str, way: Way) -> DeltaChannelHistory:
    """Returns a fresh history: LangGraph changes what it gets in place."""
    try:
        values = coder.decode([value for _, _, value in way.writes], "writes")
    except SchemaError:  # say of which task, and of which channel
        values = [
            coder.decode(value, f"writes of task {task}, {name}")
            for task, name, value in way.writes
        ]
    writes: list[PendingWrite] = [
        (task, name, value) for (task, name, _), value in zip(way.writes, values, strict=True)
    ]
    if not way.found:
        return {"writes": writes}
    return {"writes": writes, "seed": coder.decode(way.seed, f"state.{channel}")}


class _AncestorWalk:
    """One walk from a checkpoint to its ancestors."""

    def __init__(
        self, thread: Thread, target: Found, namespace: str, channels: Sequence[str]
    ) -> None:
        self._thread, self._target, self._namespace = thread, target, namespace
        self._recent = thread.seen[0].telling()
        self._commits = _Commits()
        self._left = dict.fromkeys(channels)
        self._ways = {channel: Way(False, None, []) for channel in channels}

    def walk(self, known: Trail | None) -> Trail:
        """The trail of the target. `known` goes on as a part of it, where it leads there."""
        if known is not None and known.target == self._target.seq:
            return known
        place = self._place_of(self._target)
        steps = self._steps(known)
        self._find_early(steps)
        trail = Trail(self._target.seq, place, self._ways, set(), set())
        if known is not None and self._left and self._joins(known, steps):
            trail.places, trail.seqs = known.places, known.seqs
            for channel in self._left:
                self._ways[channel] = known.ways[channel]
        for ancestor, wanted in reversed(steps):
            trail.places.add(self._place_of(ancestor))
            trail.seqs.add(ancestor.seq)
            self._collect(ancestor, wanted)
        return trail

    def _place_of(self, found: Found) -> str:
        return thread_names.place_of(self._namespace, found.id)

    def _steps(self, known: Trail | None) -> list[tuple[Found, list[str]]]:
        """Returns the needed ancestors, nearest first, with the channels that each is needed for;
        without those behind the target of the known trail."""
        left, steps = self._left, list[tuple[Found, list[str]]]()
        presence = _Presence(self._thread, self._target, left, self._commits)
        for ancestor in self._ancestors():
            trimmed = self._commits.of(ancestor.view)(ancestor.seq).trimmed
            if trimmed or ancestor.view.has_lost(ancestor.seq):
                self._end_at(steps[-1][0] if steps else self._target)
                break
            steps.append((ancestor, list(left)))
            for channel, value in presence.values_of(ancestor).items():
                del left[channel]
                self._ways[channel] = Way(True, value, [])
            if not left or (known is not None and self._joins(known, steps)):
                break
        return steps

    def _end_at(self, child: Found) -> None:
        """Ends the walk where retention removed the ancestors. A channel that the last checkpoint
        has no version of was never written to before: nothing of it is lost.

        Raises:
            NotFound: writes of another channel may be lost.
        """
        versions = child.view.at(child.seq).state[VERSIONS]
        gone = [channel for channel in self._left if channel in versions]
        if gone:
            raise NotFound(
                "the writes that its value is made of were removed by retention",
                target=f"thread {self._thread.name!r}, channels {', '.join(gone)}",
                hint="take the thread from a copy of the store from before that",
            )

    def _joins(self, known: Trail, steps: Sequence[tuple[Found, list[str]]]) -> bool:
        """Returns True if the known trail continues at the last of these steps. It must not lead
        over any of them, as one does that was put again behind its own descendant."""
        if not steps or steps[-1][0].seq != known.target:
            return False
        return known.places.isdisjoint(
            self._place_of(found) for found in (self._target, *(one for one, _ in steps))
        )

    def _ancestors(self) -> Iterator[Found]:
        """Nearest first, removed or not. One that was put again behind what came of it ends
        them."""
        told: set[str] = set()
        found: Found | None = self._target
        while found is not None and found.id not in told:
            told.add(found.id)
            found = self._parent_of(found)
            if found is not None and found.id not in told:
                yield found

    def _parent_of(self, found: Found) -> Found | None:
        """The checkpoint that one follows, removed or not, as it was put last."""
        commit_at = self._commits.of(found.view)
        parent = parent_in(commit_at(found.seq))
        if type(parent) is int:
            key = thread_names.read_key(commit_at(parent).cause.key)
            if key is None or key[0] != "c":
                return None
            place = key[2]
            _, parent = thread_names.read_place(place)
        elif type(parent) is str:
            place = thread_names.place_of(self._namespace, parent)
        else:
            return None
        views = self._thread.seen
        seq = self._recent.put_of(place)
        if seq is not None:
            return Found(views[0], seq, parent)
        return find_any(views, self._namespace, parent)

    def _find_early(self, steps: Sequence[tuple[Found, list[str]]]) -> None:
        """Find the writes that came before their checkpoints in one go: most checkpoints have none,
        and to look for those of each takes as long as to read it."""
        own = self._thread.seen[0]
        places = [self._place_of(one) for one, _ in steps if one.view is own]
        if places:
            self._recent.find_early(places)

    def _collect(self, found: Found, wanted: Sequence[str]) -> None:
        for one in settled(self._writes_of(found)):
            if one[1] in wanted:
                self._ways[one[1]].writes.append(one)

    def _writes_of(self, found: Found) -> list[Write]:
        views = self._thread.seen
        if len(views) == 1:
            recent = self._recent.writes(self._place_of(found))
            if recent is not None:
                return recent[0]
        return self._thread.writes_of(found, self._namespace, FAR)


class _Commits:
    """The commits of views, for callers that read most of the range between."""

    def __init__(self) -> None:
        self._known: dict[View, Callable[[int], Commit]] = {}

    def of(self, view: View) -> Callable[[int], Commit]:
        found = self._known.get(view)
        if found is None:
            found = self._known[view] = view.far()
        return found


def delta_channels(checkpoint: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterable[str]:
    """Channels that LangGraph stores as deltas, as far as a checkpoint tells: its metadata counts
    the steps since the last snapshot of each."""
    yield from metadata.get("counters_since_delta_snapshot") or ()
    for channel, value in checkpoint["channel_values"].items():
        if type(value) is _DeltaSnapshot:
            yield channel


class _Presence:
    """Tells which ancestors have a value of a channel, from the ops on the way: a state is folded
    only where these do not tell, and once.

    For the requested checkpoint, the last op on a channel tells it, however far above that is.

    An op also tells about the state before it. A channel that is deleted, or changed inside, was
    there; a channel that is set may or may not have been.
    """

    def __init__(
        self, thread: Thread, target: Found, channels: Iterable[str], commits: _Commits
    ) -> None:
        self._below, self._commits = target, commits
        state = thread.state_at_hand(target)
        self._there: dict[str, bool | None] = {
            channel: None if state is None else channel in state[VALUES] for channel in channels
        }
        if state is None:
            self._tell(target)

    def _tell(self, target: Found) -> None:
        """Decides channels by the last op on each, if that is not too far up."""
        commit_at, seq = self._commits.of(target.view), target.seq
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
            values = found.view.at(found.seq).state[VALUES]
            for channel, known in there.items():
                there[channel] = channel in values if known is None else known
        has = [channel for channel, known in there.items() if known]
        if has and values is None:
            values = _set_at(self._commits.of(found.view)(found.seq), has)
        if has and values is None:
            values = found.view.at(found.seq).state[VALUES]
        for channel in has:
            del there[channel]
        return {channel: values[channel] for channel in has}

    def _go_up(self, found: Found) -> None:
        below, self._below = self._below, found
        seq = 0
        if below.view is found.view:
            seq = below.seq
            commit_at = self._commits.of(found.view)
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
