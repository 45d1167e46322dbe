"""The checkpoints of a thread, newest first, a page at a time.

A page's states are computed together: folded at its oldest commit, then moved on commit by commit,
so that a page costs one state and its deltas, and its tuples share the messages that they have in
common. Each log is read once, from its end, and the same reading finds the writes of the
checkpoints, too; for a page further back, it is read from near where that begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from heapq import heappop, heappush, merge
from itertools import islice
from math import inf
from typing import Any

from langgraph.checkpoint.base import CheckpointMetadata, CheckpointTuple
from msgspec import Struct

from perdure.core.values.ops import Append
from perdure.core.values.plain_values import Plain
from perdure.integrations.langgraph.threads.log_view import View, parent_of, writes_seen
from perdure.integrations.langgraph.threads.reading import (
    checkpoint_of,
    metadata_of,
    pending_of,
    tuple_of,
)
from perdure.integrations.langgraph.threads.recent_commits import FAR, Window
from perdure.integrations.langgraph.threads.record import malformed, record_of
from perdure.integrations.langgraph.threads.removed import is_removed, removals_of
from perdure.integrations.langgraph.threads.thread import Thread
from perdure.integrations.langgraph.values import thread_names
from perdure.integrations.langgraph.values.rich_values import Built, Coder
from perdure.model import Commit

PAGE = 50
FIRST = 8
"""Of those who may want the newest one alone."""

WINDOW = 32
"""Checkpoints of several lines that writers of one moment may have put in another order than that
of their ids."""

STRETCH = 64
"""Commits among which a checkpoint is looked for one by one."""


class CheckpointFilter(Struct, frozen=True):
    """A selection of checkpoints; None: any. `before`: only those with a lesser id."""

    namespace: str | None = None
    id: str | None = None
    before: str | None = None
    filter: Mapping[str, Any] | None = None


class ThreadSnapshot(Struct):
    """A thread at one moment: if it is deleted or begun anew during a listing, the listing does not
    mix the two. `windows`: on the logs of its views, for this listing alone."""

    thread: str
    views: Sequence[View]
    windows: Sequence[Window]

    def having(self, places: Set[str]) -> ThreadSnapshot:
        """The same without the logs that have nothing of any of these checkpoints: of the many of a
        copy of a copy, and so on, each has some."""
        pairs = zip(self.views, self.windows, strict=True)
        kept = [pair for pair in pairs if not pair[1].lacks(places)]
        return ThreadSnapshot(
            self.thread, [view for view, _ in kept], [window for _, window in kept]
        )


class Spot(Struct):
    """The place of a checkpoint. `rank`: the index of its view."""

    seen: ThreadSnapshot
    rank: int
    commit: Commit
    namespace: str
    id: str

    @property
    def window(self) -> Window:
        return self.seen.windows[self.rank]

    def __lt__(self, other: Spot) -> bool:
        return (self.id, -self.rank, self.commit.seq) > (other.id, -other.rank, other.commit.seq)


class Listed(Struct):
    """A checkpoint that is wanted, without its state."""

    spot: Spot
    record: Plain
    metadata: CheckpointMetadata

    def __lt__(self, other: Listed) -> bool:
        return self.spot < other.spot


def entries(coder: Coder, thread: Thread, wanted: CheckpointFilter) -> Iterator[Listed]:
    """The wanted checkpoints of a thread, by descending id."""
    seen, removals, orders = _seen(thread, wanted)
    told: set[tuple[str, str]] = set()
    streams = [_spots(seen, rank, wanted, order) for rank, order in enumerate(orders)]
    for spot in merge(*streams):
        key = spot.namespace, spot.id
        if key in told:
            continue
        told.add(key)
        if is_removed(removals, spot.window.log, spot.namespace, spot.commit.seq):
            continue
        record = record_of(spot.commit)
        if not record:
            raise malformed(spot.commit)
        metadata = metadata_of(coder, record["metadata"])
        if not wanted.filter or _matches(metadata, wanted.filter):
            yield Listed(spot, record, metadata)


def _spots(
    seen: ThreadSnapshot, rank: int, wanted: CheckpointFilter, most: float
) -> Iterator[Spot]:
    """The checkpoints of one view, by descending id; one that was put again is there again.

    Args:
        most: how many to hold back.
    """
    heap: list[Spot] = []
    window = seen.windows[rank]
    for commit in _candidates(seen.views[rank], window, wanted):
        key = thread_names.read_checkpoint_key(commit.cause.key)
        # A damaged one that a line still has says so where its line is looked at.
        if key is None or commit.trimmed or commit.damaged or not _fits(wanted, *key):
            continue
        if window.past.gone(commit.seq) or seen.views[rank].has_lost(commit.seq):
            continue
        heappush(heap, Spot(seen, rank, commit, *key))
        if len(heap) > most:
            yield heappop(heap)
    while heap:
        yield heappop(heap)


def _candidates(view: View, window: Window, wanted: CheckpointFilter) -> Iterator[Commit]:
    """The commits among which are those that put what is wanted, newest first."""
    if wanted.id is None or wanted.namespace is None:
        return window.walk()
    puts = [*view.each_put(wanted.namespace, wanted.id)]
    return (window.commit(seq) for seq in reversed(puts))


def _seen(
    thread: Thread, wanted: CheckpointFilter
) -> tuple[ThreadSnapshot, dict[str, Any], list[float]]:
    """Returns a thread as it is now, its removals, and the `_disorder` of each view."""
    with thread.lock:
        views = list(thread.views())
        ends = [view.log.info.seq if view.until is None else view.until for view in views]
        if views:
            ends[0] = views[0].end
        orders = [_disorder(view, wanted.namespace) for view in views]
        windows = list[Window]()
        for view, end, most in zip(views, ends, orders, strict=True):
            last = _last_of(view, end, wanted, most)
            windows.append(Window(view.log, last, cut=last < end))
            windows[-1].past = view.past()
        return ThreadSnapshot(thread.name, views, windows), removals_of(views), orders


def _disorder(view: View, namespace: str | None) -> float:
    """Returns the number of checkpoints to hold back so that they come in the order of their ids.
    Each line says whether those of its namespace were put in that order; for several namespaces it
    is unknown."""
    spaces = view.namespaces() if namespace is None else [namespace]
    tips = [tip for space in spaces for tip in view.tips(space)]
    if len(spaces) > 1 or any(tip.late for tip in tips):
        return inf
    return WINDOW if len(tips) > 1 else 0


def _last_of(view: View, end: int, wanted: CheckpointFilter, most: float) -> int:
    """Returns a commit behind which there is no checkpoint from before the wanted one. Ids grow
    along the log, except for the `_disorder`: so half of what is left is passed over each time."""
    if wanted.before is None or most == inf:
        return end
    first, last = 1, end
    while last - first > STRETCH:
        middle = (first + last) // 2
        stretch = view.log.commits(
            max(first, middle - STRETCH), middle, newest_first=True, damaged_too=True
        )
        found = next(_puts_in(stretch, view, wanted.namespace), None)
        if found is None:
            break
        if found[1] < wanted.before:
            first = middle + 1
        else:
            last = found[0]
    if not most or last == end:
        return last
    behind = _puts_in(view.log.commits(last + 1, end, damaged_too=True), view, wanted.namespace)
    return max((seq for seq, _ in islice(behind, 2 * WINDOW)), default=last)


def _puts_in(
    commits: Iterator[Commit], view: View, namespace: str | None
) -> Iterator[tuple[int, str]]:
    """Yields seq and id of the checkpoints of a namespace that commits put; None: of any."""
    for commit in commits:
        key = thread_names.read_checkpoint_key(commit.cause.key)
        if key is None or commit.damaged or view.past().gone(commit.seq):
            continue
        if namespace is None or key[0] == namespace:
            yield commit.seq, key[1]


def _fits(wanted: CheckpointFilter, namespace: str, checkpoint_id: str) -> bool:
    return (
        (wanted.namespace is None or namespace == wanted.namespace)
        and (wanted.id is None or checkpoint_id == wanted.id)
        and (wanted.before is None or checkpoint_id < wanted.before)
    )


def _matches(metadata: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Returns True if metadata matches. A key with dots is a path unless there is a key of that
    exact name; keys are never part of a query."""
    return all(_at(metadata, key) == value for key, value in asked.items())


def _at(metadata: Mapping[str, Any], key: str) -> Any:
    if key in metadata or "." not in key:
        return metadata.get(key)
    found: Any = metadata
    for part in key.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


class Teller:
    """Builds the tuples of one page. States move on in it, in place."""

    def __init__(self, coder: Coder) -> None:
        self._coder = coder
        self._built = Built()
        self._states: dict[tuple[int, int], Plain] = {}
        self._having: dict[int, ThreadSnapshot] = {}

    def tell(self, page: list[Listed]) -> list[CheckpointTuple]:
        """The page's tuples, in its order."""
        told: dict[int, CheckpointTuple] = {}
        self._find_early(page)
        for entry in sorted(page, key=lambda one: (id(one.spot.window), one.spot.commit.seq)):
            state = self._state(entry.spot.window, entry.spot.commit)
            told[id(entry)] = self._tuple(entry, state)
        return [told[id(entry)] for entry in page]

    def _find_early(self, page: list[Listed]) -> None:
        """Looks for the writes that came before their checkpoints in one go; and, of each thread,
        for the logs that have something of the page at all."""
        places: dict[int, tuple[Window, list[str]]] = {}
        asked: dict[int, tuple[ThreadSnapshot, set[str]]] = {}
        for entry in page:
            spot = entry.spot
            _, found = places.setdefault(id(spot.window), (spot.window, []))
            found.append(thread_names.place_of(spot.namespace, spot.id))
            asked.setdefault(id(spot.seen), (spot.seen, set()))[1].add(found[-1])
        for window, found in places.values():
            window.find_early(found)
        self._having = {key: seen.having(ids) for key, (seen, ids) in asked.items()}

    def _tuple(self, entry: Listed, state: Plain) -> CheckpointTuple:
        spot = entry.spot
        checkpoint = checkpoint_of(self._coder, spot.id, state, entry.record["rest"], self._built)
        seen = self._having[id(spot.seen)]
        writes = writes_seen(seen.views, seen.windows, spot.namespace, spot.id)
        return tuple_of(
            seen.thread,
            spot.namespace,
            checkpoint,
            entry.metadata,
            parent_of(spot.window, entry.record),
            pending_of(self._coder, writes),
        )

    def _state(self, window: Window, commit: Commit) -> Plain:
        """The state at a commit: from that of a near ancestor, if we have one."""
        no = window.log.info.no
        path = [commit]
        state: Plain = None
        known = any(number == no for number, _ in self._states)
        while known and len(path) <= PAGE:
            state = self._states.pop((no, path[-1].parent), None)
            if state is not None or path[-1].parent == 0:
                break
            path.append(window.commit(path[-1].parent))
            if path[-1].trimmed:  # from there on nobody knows what changed
                break
        if state is None:
            state, path = window.at(commit.seq).state, []
        for one in reversed(path):
            for op in one.delta:
                # An append to a list leaves what was built from it valid.
                self._forget(state, op.path[:-1] if isinstance(op, Append) else op.path)
            state = window.log.spend(state, window.spend(one.seq))
        self._states[no, commit.seq] = state
        return state

    def _forget(self, state: Plain, path: tuple[Any, ...]) -> None:
        """Forgets what was built from values that an op is about to change in place."""
        self._built.forget(state)
        for key in path:
            try:
                state = state[key]
            except (LookupError, TypeError):
                return
            self._built.forget(state)


def pages(coder: Coder, found: Iterator[Listed], limit: int | None) -> Iterator[CheckpointTuple]:
    """Tuples of entries, as they are asked for. No lock is held while one is looked at."""
    left = limit
    size = FIRST if limit is None else PAGE  # a limit says how many are looked at
    while left is None or left > 0:
        page: list[Listed] = []
        for entry in found:
            page.append(entry)
            if len(page) == (size if left is None else min(size, left)):
                break
        if not page:
            return
        yield from Teller(coder).tell(page)
        for entry in page:
            entry.spot.window.drop_above(entry.spot.commit.seq + FAR)
        left = None if left is None else left - len(page)
        size = PAGE
