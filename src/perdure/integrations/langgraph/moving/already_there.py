"""The part of a thread that the store has already, and the decision whether the rest can be
moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, CheckpointTuple
from msgspec import Struct, field

from perdure.integrations.langgraph.moving.comparison import Comparison
from perdure.integrations.langgraph.moving.source import CheckpointAddress
from perdure.integrations.langgraph.saver import PerdureSaver

Key = tuple[str, str]
"""Namespace and id of a checkpoint."""

OTHER = (
    "it came from another database, or was changed; import into another store, or delete the "
    "thread there first"
)
WENT_ON = (
    "both applications continued it: import into another store, or delete the thread there first"
)


class Bringer(PerdureSaver):
    """The saver that moves threads: it marks what it stores as brought, so that later data of the
    source may replace it; what an application wrote here may not be replaced."""

    _brings = True

    def every(self, name: str) -> Iterator[tuple[Key, CheckpointTuple]]:
        """The checkpoints that the store has of a thread."""
        for found in self.list(cast(RunnableConfig, {"configurable": {"thread_id": name}})):
            at = found.config["configurable"]
            yield (at["checkpoint_ns"], at["checkpoint_id"]), found

    def brought(self, name: str, key: Key) -> set[tuple[str, str]]:
        """Task and channel of those special writes for a checkpoint that were brought last."""
        thread, last = self._thread(name), dict[tuple[str, str], bool]()
        with thread.lock:
            found = thread.find(*key)
            for write in thread.writes_of(found, key[0]) if found is not None else ():
                for index, channel, _ in write.writes:
                    if index < 0:
                        last[write.task, channel] = write.brought
        return {place for place, brought in last.items() if brought}


class Refusal(Struct, frozen=True):
    """The reason why nothing of a thread may be added to what the store has of it."""

    address: CheckpointAddress
    words: str
    hint: str


class AlreadyThere(Struct):
    """The part of a thread that is in the store.

    Attributes:
        whole: checkpoints that are there and equal.
        partly: checkpoints that only lack writes, which a crash cut off, or which were made or
            replaced since; with the writes that are there.
        beside: children in the store of checkpoints of the source, which the source does not have.
    """

    whole: set[Key] = field(default_factory=set)
    partly: dict[Key, list[Any]] = field(default_factory=dict)
    beside: list[tuple[CheckpointAddress, str]] = field(default_factory=list)

    def refusal(self, left: Sequence[CheckpointAddress]) -> Refusal | None:
        """Returns the reason why the rest may not be moved; None if it may."""
        if not left or not self.beside:
            return None
        parent, child = self.beside[-1]
        return Refusal(
            parent,
            f"it went on in the store, to checkpoint {child}, which is not in the source, "
            "and in the source, too",
            WENT_ON,
        )


def look(
    saver: Bringer,
    name: str,
    wanted: Mapping[Key, CheckpointAddress],
    read: Callable[[CheckpointAddress], CheckpointTuple],
    comparison: Comparison,
    passed: Callable[[], None],
) -> AlreadyThere | Refusal:
    """Returns the part of a thread that the store has, or the reason why nothing may be added to
    it.

    Args:
        passed: called for each checkpoint that needs nothing more.
    """
    standing = AlreadyThere()
    for key, ours in saver.every(name):
        if key not in wanted:
            behind = ours.parent_config
            at = (key[0], behind["configurable"]["checkpoint_id"]) if behind else key
            if parent := wanted.get(at):
                standing.beside.append((parent, key[1]))
            continue
        theirs = read(wanted[key])
        if problem := comparison.of(theirs, ours):
            words = f"is in the store already, and differs: {problem}"
            return Refusal(wanted[key], words, OTHER)
        pending, here = list(theirs.pending_writes or ()), list(ours.pending_writes or ())
        if not comparison.writes(pending, here):
            standing.whole.add(key)
            passed()
        elif refusal := _refusal(comparison, pending, here, partial(saver.brought, name, key)):
            return Refusal(wanted[key], *refusal)
        else:
            standing.partly[key] = here
    return standing


def _refusal(
    comparison: Comparison,
    theirs: list[Any],
    ours: list[Any],
    brought: Callable[[], set[tuple[str, str]]],
) -> tuple[str, str] | None:
    """Returns None if the store has no write that the source lacks: the ordinary writes of the
    store are among those of the source, in the same order, and its special ones are the same, or
    were brought there before the source replaced them."""
    rest = iter(_sorted_out(theirs, special=False))
    for one in _sorted_out(ours, special=False):
        if all(comparison.writes([other], [one]) is not None for other in rest):
            words = comparison.writes(theirs, ours)
            return f"is in the store already, and differs: {words}", OTHER
    sources = {one[:2]: one for one in _sorted_out(theirs, special=True)}
    for one in _sorted_out(ours, special=True):
        source = sources.get(one[:2])
        words = comparison.writes([source] if source else [], [one])
        if words is None:
            continue
        if source is None:
            words = f"it has {one[1]} of task {one[0]}, which the source does not have"
        elif one[:2] in brought():
            continue
        return f"it went on in the store, or came there from another database: {words}", WENT_ON
    return None


def _sorted_out(writes: Sequence[Any], *, special: bool) -> list[Any]:
    """Returns the writes for which a task stopped (the last one counts), or the others."""
    return [one for one in writes if (one[1] in WRITES_IDX_MAP) is special]
