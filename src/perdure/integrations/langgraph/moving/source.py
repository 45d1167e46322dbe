"""The interface of a database of another checkpointer, as the mover of threads sees it. One file
per kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from langgraph.checkpoint.base import CheckpointTuple, writes_sort_key
from msgspec import Struct

from perdure.errors import Corrupt, NotFound
from perdure.integrations.langgraph.values import thread_names

NAMES_SHOWN = 10
_WRITE_TYPES = (str, str, int, str)


class SourceThread(Struct, frozen=True):
    """A thread as its database counts it. `bytes`: of its checkpoints, metadata and writes."""

    name: str
    checkpoints: int
    bytes: int
    orphans: int = 0
    """Writes for checkpoints that are not there, which no saver ever shows."""


class CheckpointAddress(Struct, frozen=True):
    """The address of a checkpoint in a thread, and the id of its parent in the same namespace."""

    namespace: str
    id: str
    parent: str | None

    def __str__(self) -> str:
        return f"checkpoint {self.id}" + (f" of {self.namespace}" if self.namespace else "")


class WriteKey(Struct, frozen=True):
    """One pending write without its value. `index`: its place in the call that wrote it; negative
    for errors, interrupts and the like."""

    task: str
    path: str
    index: int
    channel: str


class Source(Protocol):
    """A database that is only read. All that is read of a thread, from `checkpoints` on, is as of
    one moment, and belongs together. For one thread of Python."""

    name: str
    """For people; no passwords in it."""

    file: str
    """The path of the file that it is; empty: it is on a server."""

    bytes: int
    """The bytes that it takes where it is stored, without what belongs to no thread."""

    def threads(self, only: Sequence[str] = ()) -> list[SourceThread]:
        """Returns the threads by name; `only`: restricted to these names.

        Raises:
            NotFound: one of `only` is not there.
        """

    def checkpoints(self, thread: str) -> list[CheckpointAddress]:
        """A thread's checkpoints in all namespaces, parents before children, else by their ids."""

    def read(self, thread: str, address: CheckpointAddress) -> CheckpointTuple:
        """A checkpoint as LangGraph's own saver gives it. In place of each value that cannot be
        had without running what the data names, there is an `Unread`."""

    @property
    def unread(self) -> bool:
        """True if what was read since the last call contained an `Unread`; reading the property
        resets it."""

    def write_keys(self, thread: str, address: CheckpointAddress) -> list[WriteKey]:
        """Returns the keys of the tuple's `pending_writes`, one by one."""

    def close(self) -> None: ...


# -- what every kind does alike ----------------------------------------------------------------


class ReadBySaver:
    """The common part of sources that are read by LangGraph's own saver."""

    _saver: Any
    _reader: Any

    def _said(self) -> AbstractContextManager[None]:
        """Returns a context manager around every access to the source, which turns its errors into
        ours."""
        raise NotImplementedError

    def read(self, thread: str, address: CheckpointAddress) -> CheckpointTuple:
        config = thread_names.config_of(thread, address.namespace, address.id)
        with self._said(), by_langgraph(f"{thread}, {address}"):
            found: CheckpointTuple | None = self._saver.get_tuple(config)
        if found is None:  # all is read as of one moment: so not because it was deleted since
            raise _not_theirs(f"{thread}, {address}", "its checkpoint is not found by its own id")
        return found

    @property
    def unread(self) -> bool:
        was: bool = self._reader.unread
        self._reader.unread = False
        return was


def no_such_thread(name: str, there: Sequence[str], target: str) -> NotFound:
    names = ", ".join(map(repr, there[:NAMES_SHOWN])) + (", …" if there[NAMES_SHOWN:] else "")
    return NotFound(f"there is no thread {name!r}", target=target, hint=f"there are: {names}")


def _not_theirs(target: str, why: str) -> Corrupt:
    return Corrupt(f"it was not written by LangGraph: {why}", target=target, hint="look at its row")


def in_write_order(rows: Iterable[Sequence[Any]]) -> list[WriteKey]:
    """Rows of task, path, index and channel, in the order of LangGraph's `pending_writes`."""
    keys = [WriteKey(*row) for row in rows]
    for key in keys:
        if tuple(map(type, (key.task, key.path, key.index, key.channel))) != _WRITE_TYPES:
            raise _not_theirs(
                f"task {key.task!r:.60}, channel {key.channel!r:.60}",
                "task, path and channel of a write are texts, its idx is a number",
            )
    return sorted(keys, key=lambda key: writes_sort_key(key.path, key.task, key.index))


@contextmanager
def by_langgraph(target: str) -> Iterator[None]:
    """Context manager for while LangGraph's own saver builds a checkpoint from its rows.

    Raises:
        Corrupt: it failed on their content.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        words = f"{type(error).__name__}: {error}"
        raise Corrupt(
            f"LangGraph's own saver cannot read it ({words})",
            target=target,
            hint="it is damaged, or was not written by LangGraph; look at its row",
        ) from error


def in_order(found: Sequence[CheckpointAddress]) -> list[CheckpointAddress]:
    """Returns parents before their children; otherwise by id, which is the order in which they were
    made.

    A parent that is missing (it was pruned) holds up none; in a loop (a checkpoint put again behind
    its descendant) the one with the least id comes first.

    Raises:
        Corrupt: an id is not a text.
    """
    for one in found:
        if type(one.id) is not str or type(one.namespace) is not str:
            raise _not_theirs(f"checkpoint {one.id!r:.60}", "namespaces and ids are texts")
    ordered = sorted(found, key=lambda one: (one.id, one.namespace))
    there = {(one.namespace, one.id): one for one in ordered}
    placed: dict[tuple[str, str], CheckpointAddress] = {}
    for one in ordered:
        ancestors: dict[tuple[str, str], CheckpointAddress] = {}
        at: CheckpointAddress | None = one
        while at is not None:
            key = at.namespace, at.id
            if key in placed or key in ancestors:
                break
            ancestors[key] = at
            at = None if at.parent is None else there.get((at.namespace, at.parent))
        line = list(ancestors.items())
        if at is not None and (at.namespace, at.id) in ancestors:  # a loop
            placed[one.namespace, one.id] = one
            line = line[1:]
        placed.update(reversed(line))
    return list(placed.values())
