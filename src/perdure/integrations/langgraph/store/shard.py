"""One agent of the store: all namespaces that begin with one label, with an index of them in
memory.

The index follows the log: a look at the store tells how long the log is, and only new commits are
folded in. The holder of the shard's lock reads or writes the log for all that wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from perdure.agents import Agent
from perdure.core.arguments.names import is_text
from perdure.core.schema.schema import Schema
from perdure.errors import Conflict, NotFound
from perdure.integrations.langgraph.store.items import (
    Namespace,
    StoredItem,
    read_time,
    space_of,
    space_text,
    time_text,
)
from perdure.model import AgentInfo, Commit
from perdure.store import Store
from perdure.system.backoff import CHANCES_MAX, chances
from perdure.system.locks import Lock

State = dict[str, dict[str, dict[str, Any]]]
Place = tuple[str, str]
SCHEMA: Schema[Any] = Schema(Any, id="langgraph-store")
COMBINED_MAX = 256
"""Waiting writes that share a commit."""


class PutItem(Struct, frozen=True):
    """PutItem an item, in its stored form without `created`."""

    namespace: Namespace
    key: str
    item: dict[str, Any]


class Remove(Struct, frozen=True):
    """Removes an item; with `expired_at`, only if it has expired by then."""

    namespace: Namespace
    key: str
    expired_at: datetime | None = None


class Refresh(Struct, frozen=True):
    """Lets an item live for its ttl from `now` on, if that version of it is still there."""

    namespace: Namespace
    key: str
    updated: datetime
    now: datetime


Change = PutItem | Remove | Refresh
VERBS = {PutItem: "put", Remove: "delete", Refresh: "refresh"}


class _Write:
    """The changes that one caller wants committed, and their outcome."""

    __slots__ = ("changes", "done", "error", "made")

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        self.done = False
        self.error: Exception | None = None
        self.made = 0


class Shard:
    """See the module. Safe to share between threads."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name
        self._lock = Lock()
        self._queue: deque[_Write] = deque()
        self._agent: Agent[State] | None = None
        self._seen = (0, 0)  # incarnation and seq of the log up to which all is in the index
        self._at = 0  # seq of the branch's commit that the index shows
        self._guard = Lock()  # of the index; held for moments only
        self._index: dict[Namespace, dict[str, StoredItem]] = {}

    # -- reading ---------------------------------------------------------------------------

    def look(self, info: AgentInfo | None) -> None:
        """Brings the index up to the length of the log that the store has just reported."""
        if info is not None and (info.incarnation, info.seq) > self._seen:
            with self._lock:
                self._catch_up(info)

    def get(self, namespace: Namespace, key: str) -> StoredItem | None:
        return self._index.get(namespace, {}).get(key)

    def entries(self, prefix: Namespace) -> list[StoredItem]:
        """The items of a namespace and of those below it."""
        depth = len(prefix)
        with self._guard:
            return [
                entry
                for namespace, entries in self._index.items()
                if namespace[:depth] == prefix
                for entry in entries.values()
            ]

    def spaces(self) -> list[tuple[Namespace, list[StoredItem]]]:
        """Returns each namespace with its items."""
        with self._guard:
            return [(space, list(entries.values())) for space, entries in self._index.items()]

    # -- following the log -----------------------------------------------------------------

    def _catch_up(self, info: AgentInfo) -> None:
        seen = (info.incarnation, info.seq)
        if seen <= self._seen:
            return
        if self._agent is not None and info.incarnation != self._seen[0]:
            self._forget()
        try:
            if not info.deleted:
                self._read()
            else:
                self._forget()
        except NotFound:  # deleted since; the next look sees it
            self._forget()
        self._seen = max(seen, (info.incarnation, self._at))

    def _read(self) -> None:
        if self._agent is None:
            self._agent = self._store.agent(self._name, SCHEMA, initial={})
            self._build()
            return
        # A write that was interrupted right after its commit left the index behind.
        behind = self._agent.seq != self._at
        newer = self._agent.follow()
        if newer is None or behind:
            self._build()
        else:
            self._fold(newer)

    def _forget(self) -> None:
        self._agent, self._at = None, 0
        with self._guard:
            self._index = {}

    def _build(self) -> None:
        assert self._agent is not None
        seq, state = self._agent.seq, self._agent.state
        index = {
            space_of(space): {key: StoredItem(space, key, item) for key, item in items.items()}
            for space, items in state.items()
        }
        with self._guard:
            self._index = index
        self._at = seq

    def _fold(self, commits: Iterable[Commit]) -> None:
        assert self._agent is not None
        paths = {op.path[:2] for commit in commits for op in commit.delta}
        state = self._agent.state
        if () in paths:
            self._build()
            return
        places = {path for path in paths if len(path) == 2}
        for (space,) in paths - places:  # a whole namespace came or went
            keys = {*state.get(space, ()), *self._index.get(space_of(space), ())}
            places.update((space, key) for key in keys)
        self._show(places)

    def _show(self, places: Iterable[Place]) -> None:
        """Updates the index from the state at some places."""
        assert self._agent is not None
        seq, state = self._agent.seq, self._agent.state
        found: list[tuple[Place, StoredItem | None]] = []
        for space, key in places:
            item = state.get(space, {}).get(key)
            found.append(((space, key), None if item is None else StoredItem(space, key, item)))
        with self._guard:
            for (space, key), entry in found:
                namespace = space_of(space)
                if entry is not None:
                    self._index.setdefault(namespace, {})[key] = entry
                elif namespace in self._index:
                    self._index[namespace].pop(key, None)
                    if not self._index[namespace]:
                        del self._index[namespace]
        self._at = seq

    # -- writing ---------------------------------------------------------------------------

    def write(self, changes: Sequence[Change]) -> int:
        """Makes changes in one commit, shared with other waiting callers; durable on return.

        Returns:
            The number of changes that changed anything.

        Raises:
            Conflict: other processes were faster in every attempt. StoreUnavailable: see its
                `outcome`.
        """
        write = _Write(changes)
        try:
            self._queue.append(write)
            with self._lock:
                while not write.done:
                    self._commit_waiting()
        finally:  # interrupted, its caller knows of nothing: it must not get in later
            self._drop(write)
        if write.error is not None:
            raise write.error
        return write.made

    def sweep(self, now: datetime) -> int:
        """Removes the items that have expired by then; returns their number. Raises as `write`."""
        expired = [entry for entry in self.entries(()) if entry.expired(now)]
        if not expired:
            return 0
        return self.write([Remove(entry.namespace, entry.key, now) for entry in expired])

    def _commit_waiting(self) -> None:
        # They stay in the queue until they are done: who waits is not to suffer where this call is
        # interrupted. Putting twice is putting once.
        together = [write for write in list(self._queue) if not write.done][:COMBINED_MAX]
        try:
            self._commit(together)
        except Exception as error:
            if len(together) == 1:
                together[0].error, together[0].done = error, True
            else:
                self._commit_alone(together)

    def _drop(self, write: _Write) -> None:
        with suppress(ValueError):
            self._queue.remove(write)

    def _commit_alone(self, writes: Sequence[_Write]) -> None:
        """Commits writes one by one, so that each fails only for its own reasons."""
        for write in writes:
            try:
                self._commit([write])
            except Exception as error:
                write.error, write.done = error, True

    def _commit(self, writes: Sequence[_Write]) -> None:
        for tried in chances():
            info = self._store.find(self._name)
            if info is not None:
                self._catch_up(info)
            agent = self._agent
            if agent is None:
                if not any(type(change) is PutItem for write in writes for change in write.changes):
                    break  # nothing is there to be taken away
                agent = self._agent = self._store.agent(self._name, SCHEMA, initial={})
            try:
                made = self._edit(agent, writes)
            except (Conflict, NotFound):
                if tried == CHANCES_MAX - 1:
                    raise
                if not self._at:
                    self._agent = None  # created meanwhile by somebody else
                continue
            for write, count in zip(writes, made, strict=True):
                write.made = count
            break
        for write in writes:
            write.done = True

    def _edit(self, agent: Agent[State], writes: Sequence[_Write]) -> list[int]:
        """Commits; returns, for each write, the number of changes that changed anything."""
        changes = [change for write in writes for change in write.changes]
        with agent.edit(_words(changes)) as draft:
            base = agent.seq
            plan = _ShardPlan(agent.state)
            made = [sum(map(plan.add, write.changes)) for write in writes]
            plan.carry_out(draft)
        if agent.seq != base:
            if base == self._at:
                self._show(plan.places)
            else:
                self._build()  # somebody was faster than our look, and was read anew
            if not self._seen[1]:
                info = self._store.find(self._name)
                self._seen = (info.incarnation if info else 0, self._at)
            else:
                self._seen = max(self._seen, (self._seen[0], self._at))
        return made


class _ShardPlan:
    """The combined effect of several changes, one after the other, on a state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._items: dict[Place, dict[str, Any] | None] = {}
        self._expiries: dict[Place, str] = {}

    @property
    def places(self) -> set[Place]:
        return {*self._items, *self._expiries}

    def add(self, change: Change) -> bool:
        """Adds a change; returns True if it changes anything."""
        place = (space_text(change.namespace), change.key)
        old = self._items.get(place) if place in self._items else self._stored(place)
        match change:
            case PutItem(item=item):
                self._expiries.pop(place, None)
                self._items[place] = {
                    "value": item["value"],
                    "created": _created(old, item["updated"]),
                    **item,
                }
                return True
            case Remove(expired_at=moment):
                if old is None or (moment is not None and not self._expired(place, old, moment)):
                    return False
                self._expiries.pop(place, None)
                self._items[place] = None
                return True
            case Refresh(updated=updated, now=now):
                if old is None or old["updated"] != time_text(updated) or "ttl" not in old:
                    return False
                expires = time_text(now + timedelta(minutes=old["ttl"]))
                if expires <= self._expiries.get(place, old["expires"]):
                    return False
                if place in self._items:
                    self._items[place] = {**old, "expires": expires}
                else:
                    self._expiries[place] = expires
                return True

    def _stored(self, place: Place) -> dict[str, Any] | None:
        return self._state.get(place[0], {}).get(place[1])

    def _expired(self, place: Place, item: dict[str, Any], moment: datetime) -> bool:
        expires = self._expiries.get(place, item.get("expires"))
        return expires is not None and read_time(expires) <= moment

    def carry_out(self, draft: Any) -> None:
        for (space, key), expires in self._expiries.items():
            draft[space][key]["expires"] = expires
        for (space, key), item in self._items.items():
            if item is not None:
                if space not in draft:
                    draft[space] = {}
                draft[space][key] = item
            elif space in draft and key in draft[space]:
                del draft[space][key]
        for space in {space for (space, _), item in self._items.items() if item is None}:
            if space in draft and not draft[space]:
                del draft[space]


def _created(old: dict[str, Any] | None, now: str) -> str:
    """Returns when an item that is put now was created: one that had expired is gone, and begins
    anew."""
    if old is None:
        return now
    expires: str | None = old.get("expires")
    created: str = old["created"]
    return created if expires is None or expires > now else now


def _words(changes: Sequence[Change]) -> str:
    """Returns the description of a commit, for readers of the log."""
    first = changes[0]
    text = f"{VERBS[type(first)]} {space_text(first.namespace)} {first.key}"
    if not is_text(text):
        text = text.encode("utf-8", "replace").decode()
    more = f" and {len(changes) - 1} more" if len(changes) > 1 else ""
    return (text if len(text) <= 120 else text[:119] + "…") + more
