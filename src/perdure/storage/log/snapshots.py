"""Whole states as bytes: long lists are cut into sealed leaves that later snapshots share.

So a snapshot of a list of 10,000 messages writes a last leaf and a manifest. A snapshot is a
cache: losing one costs time, never data. Layout in docs/format.md ("Snapshots").
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from msgspec import Struct, field

from perdure.core.format import envelope
from perdure.core.values import codec
from perdure.core.values.ops import (
    Append,
    Delete,
    Increment,
    Move,
    Op,
    Set,
    SetAdd,
    SetRemove,
    Splice,
    TextSplice,
)
from perdure.core.values.plain_values import Path, Plain, look_up
from perdure.errors import Corrupt, UnsupportedFormat
from perdure.storage.appending import StoredSnapshot
from perdure.system import shell

VERSION = 1
LEAF_BYTES = 128 * 1024
LEAF_BYTES_MIN = 8 * 1024
"""The last items of a list are a leaf, too, from here on: else each snapshot would write them into
its manifest, time and again. What changes in a leaf costs the leaf, at the next snapshot."""

LEAF_ITEMS_MAX = 1024
SEAL_SIZE = 16
"""Bytes of SHA-256 in front of each manifest and leaf."""


ABSENT: Any = object()
"""The stand-in for an item that was not read; see `read_end`."""


class SealedList(Struct):
    """The sealed leaves at the front of one list. `skip` items of the first leaf were trimmed."""

    skip: int = 0
    leaves: list[tuple[int, int]] = field(default_factory=list)  # (leaf id, its items)

    def items(self) -> int:
        return sum(count for _, count in self.leaves) - self.skip


class Leaves:
    """The leaves that still hold what a state's lists hold, as ops are applied."""

    def __init__(self) -> None:
        self.lists: dict[Path, SealedList] = {}

    def note(self, delta: Iterable[Op]) -> None:
        """Drops the leaves that a delta invalidates. Costs O(leaves touched)."""
        if not self.lists:
            return
        for op in delta:
            at = op.path
            for path in list(self.lists):
                if at and path and at[0] != path[0]:  # most ops are elsewhere
                    continue
                if self._breaks(op, path):
                    del self.lists[path]

    def _breaks(self, op: Op, path: Path) -> bool:
        """True if nothing of the list at `path` can be kept; trims it if a part can."""
        at = op.path
        if at == path:
            match op:
                case Append():
                    return False
                case Splice(index=0, removed=removed, values=[]):
                    return not self._trim(path, removed)
                case Splice(index=index):
                    return not self._cut(path, index)
                case Move(source=source, target=target):
                    return not self._cut(path, min(source, target))
            return True
        if at[: len(path)] == path:  # inside one of its items
            return not self._cut(path, at[len(path)])
        if path[: len(at)] != at:
            return False
        match op:  # it stands inside what the op changed
            case Append() | SetAdd() | SetRemove() | Increment() | TextSplice():
                return False
            case Splice(index=index):
                return bool(path[len(at)] >= index)
            case Move(source=source, target=target):
                return bool(path[len(at)] >= min(source, target))
            case Set() | Delete():
                return True

    def _trim(self, path: Path, removed: int) -> bool:
        sealed = self.lists[path]
        if removed >= sealed.items():
            return False
        sealed.skip += removed
        while sealed.skip >= sealed.leaves[0][1]:
            sealed.skip -= sealed.leaves.pop(0)[1]
        return True

    def _cut(self, path: Path, index: int) -> bool:
        """Keeps the leaves before `index`."""
        sealed = self.lists[path]
        kept, end = 0, -sealed.skip
        for _, count in sealed.leaves:
            end += count
            if end > index:
                break
            kept += 1
        del sealed.leaves[kept:]
        return bool(sealed.leaves)


def write(
    state: Plain, known: Leaves, agent: str, incarnation: int, parent: int
) -> tuple[StoredSnapshot, Callable[[], None]]:
    """Encodes a state.

    Args:
        known: the leaves of earlier snapshots of this state that still hold.
        parent: seq of the parent of the commit whose state it is; binds the snapshot to its place.

    Returns:
        The snapshot, and a function to call once it is stored: it notes the new leaves in `known`.
    """
    fresh: dict[int, bytes] = {}
    lists: dict[Path, SealedList] = {}
    rest = _seal_lists(state, (), known.lists, lists, fresh)
    ids = [leaf_id for sealed in lists.values() for leaf_id, _ in sealed.leaves]
    layout = [
        [list(path), sealed.skip, [count for _, count in sealed.leaves]]
        for path, sealed in lists.items()
    ]
    body = codec.encode([VERSION, agent, incarnation, parent, layout, rest])
    snapshot = StoredSnapshot(_sealed(envelope.seal(body)), ids, fresh)

    def stored() -> None:
        known.lists = lists

    return snapshot, stored


def _seal_lists(
    node: Plain,
    path: Path,
    known: dict[Path, SealedList],
    lists: dict[Path, SealedList],
    fresh: dict[int, bytes],
) -> Plain:
    """Returns the node without its sealed items; the node itself if it has none."""
    kind = type(node)
    if kind is dict:
        changed: dict[Any, Any] | None = None
        for key, item in node.items():
            if type(item) is list or type(item) is dict:
                rest = _seal_lists(item, (*path, key), known, lists, fresh)
                if rest is not item:
                    changed = dict(node) if changed is None else changed
                    changed[key] = rest
        return node if changed is None else changed
    if kind is not list:
        return node
    sealed = _seal(node, known.get(path), fresh)
    start = sealed.items() if sealed else 0
    if sealed:
        lists[path] = sealed
    tail = [
        _seal_lists(item, (*path, index), known, lists, fresh)
        if type(item) is list or type(item) is dict
        else item
        for index, item in enumerate(node[start:], start)
    ]
    if start == 0 and all(a is b for a, b in zip(tail, node, strict=True)):
        return node
    return tail


def _seal(
    items: list[Plain], known: SealedList | None, fresh: dict[int, bytes]
) -> SealedList | None:
    sealed = SealedList(known.skip, list(known.leaves)) if known else SealedList()
    start = sealed.items()
    if start > len(items):  # cannot be, unless a delta was not noted: then seal anew
        sealed, start = SealedList(), 0
    chunk: list[bytes] = []
    size = 0
    last = len(items) - 1
    for index in range(start, len(items)):
        data = codec.encode(items[index])
        chunk.append(data)
        size += len(data)
        full = size >= LEAF_BYTES or len(chunk) >= LEAF_ITEMS_MAX
        if full or (index == last and size >= LEAF_BYTES_MIN):
            leaf_id = int.from_bytes(os.urandom(8), "big") >> 1
            fresh[leaf_id] = _sealed(envelope.seal(_array(chunk)))
            sealed.leaves.append((leaf_id, len(chunk)))
            chunk, size = [], 0
    return sealed if sealed.leaves else None


def _array(items: list[bytes]) -> bytes:
    """Returns a msgpack array of items that are encoded already."""
    return struct.pack(">BI", 0xDD, len(items)) + b"".join(items)


def read(
    stored: StoredSnapshot, target: str, agent: str, incarnation: int, parent: int
) -> tuple[Plain, Leaves]:
    """Returns the state of a snapshot, and its leaves for the next one.

    Raises:
        Corrupt: it is damaged, incomplete, or belongs to another commit.
    """
    with _damage(target, agent):
        layout, state = _open(stored, target, agent, incarnation, parent)
        leaves = Leaves()
        ids = iter(stored.leaf_ids)
        for path, skip, counts in layout:
            sealed = SealedList(skip, [(next(ids), count) for count in counts])
            items: list[Plain] = []
            for leaf_id, count in sealed.leaves:
                items += _read_leaf(stored.leaves.get(leaf_id), count, target)
            container = look_up(state, path)
            container[0:0] = items[skip:]
            leaves.lists[tuple(path)] = sealed
        return state, leaves


def read_end(
    stored: StoredSnapshot | None,
    fetch: Callable[[int], bytes | None],
    key: str,
    count: int,
    target: str,
    agent: str,
    incarnation: int,
    parent: int,
) -> Plain:
    """Returns a snapshot's state like `read`, but only with the last `count` items of the list at
    `key`: in place of other leaves there is `ABSENT` for each item.

    Args:
        stored: without its leaves; None: it is gone.
        fetch: returns the bytes of a leaf; None if it is gone.

    Raises:
        Corrupt: as `read`, for the parts that are read.
    """
    with _damage(target, agent):
        if stored is None:
            raise Corrupt("the snapshot is no longer there", target=target)
        layout, state = _open(stored, target, agent, incarnation, parent)
        ids = iter(stored.leaf_ids)
        for path, skip, lengths in layout:
            sealed = [(next(ids), length) for length in lengths]
            container = look_up(state, path)
            wanted = count - len(container) if path == [key] else 0
            if path[:1] == [key] and len(path) > 1:  # within one of the last items
                wanted = sum(lengths)
            front: list[Plain] = []
            for leaf_id, length in reversed(sealed):
                if len(front) < wanted:
                    front[0:0] = _read_leaf(fetch(leaf_id), length, target)
                else:
                    front[0:0] = [ABSENT] * length
            container[0:0] = front[skip:]
        return state


MALFORMED = (codec.UndecodableError, ValueError, TypeError, LookupError, StopIteration)


@contextmanager
def _damage(target: str, agent: str) -> Iterator[None]:
    """Turns any error of the block into `Corrupt`, with a hint that says how to heal the
    snapshot."""
    try:
        yield
    except MALFORMED as error:
        problem = f"the snapshot is malformed: {error}"
        raise Corrupt(problem, target=target, hint=hint_for(agent)) from error
    except Corrupt as error:
        error.hint = hint_for(agent)
        raise
    except UnsupportedFormat as error:
        error.target = error.target or target
        raise


def _open(
    stored: StoredSnapshot, target: str, agent: str, incarnation: int, parent: int
) -> tuple[Any, Plain]:
    """Returns the manifest's content: the layout, and the state without its sealed items."""
    body = envelope.open_envelope(_unsealed(stored.manifest, target), target)
    made = codec.decode(body)
    if type(made) is list and made and type(made[0]) is int and made[0] > VERSION:
        raise UnsupportedFormat(f"snapshot version {made[0]}", target=target, hint=codec.NEWER)
    version, name, number, at, layout, state = made
    if (version, name, number, at) != (VERSION, agent, incarnation, parent):
        raise Corrupt("the snapshot belongs to another commit", target=target)
    return layout, state


def _read_leaf(data: bytes | None, count: int, target: str) -> list[Plain]:
    if data is None:
        raise Corrupt("a leaf of the snapshot is missing", target=target)
    items = codec.decode(envelope.open_envelope(_unsealed(data, target), target))
    if type(items) is not list or len(items) != count:
        raise Corrupt("a leaf of the snapshot has another length", target=target)
    return items


def hint_for(agent: str) -> str:
    heal = shell.perdure("verify", agent, heal=True)
    return f"it is only a cache, and the log has the state: `{heal}` removes it"


def _sealed(data: bytes) -> bytes:
    return sha256(data).digest()[:SEAL_SIZE] + data


def _unsealed(data: bytes, target: str) -> bytes:
    body = data[SEAL_SIZE:]
    if sha256(body).digest()[:SEAL_SIZE] != data[:SEAL_SIZE]:
        raise Corrupt("the snapshot fails its checksum", target=target)
    return body
