"""A batch of operations: checked as a whole before anything is done, then read, then written."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)
from msgspec import Struct, field

from perdure.core.arguments import exact_types
from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import shown
from perdure.core.values.plain_values import copy
from perdure.integrations.langgraph.store.filters import Test, compile_filter, matches
from perdure.integrations.langgraph.store.items import Namespace, StoredItem, take_value, time_text
from perdure.integrations.langgraph.store.shard import Change, PutItem, Refresh, Remove, Shard
from perdure.integrations.langgraph.store.vectors import (
    NOTHING,
    Distance,
    Embedded,
    Embedding,
    scores,
)

REFRESH_SHARE = 0.01
"""A read writes a new expiry only where that moves it by this share of the ttl, or more: an item
that is read all the time is not to fill the log."""


class Rules(Struct, frozen=True):
    """The rules of a store: whether reads extend the life of items, whether expired items are
    hidden, and how vectors are compared."""

    refresh: bool
    omit_expired: bool
    distance: Distance = "cosine"


class Batch(Struct):
    """The requested operations, checked so that nothing in them can be refused later.

    Attributes:
        puts: the last one for each item, with a copy of its value.
        texts: the texts to embed of each item that is put, by path.
        queries: the texts that are searched for by meaning.
        filters: the filters of searches, by the id of the operation.
    """

    ops: list[Op]
    puts: dict[tuple[Namespace, str], tuple[PutOp, dict[str, Any] | None]] = field(
        default_factory=dict
    )
    texts: dict[tuple[Namespace, str], dict[str, str]] = field(default_factory=dict)
    queries: list[str] = field(default_factory=list)
    filters: dict[int, Test] = field(default_factory=dict)

    @staticmethod
    def of(ops: Iterable[Op], embedding: Embedding | None) -> Batch:
        """Checks operations, and returns them as a batch.

        Raises:
            InvalidNamespaceError: an empty label, one with a period or NUL, or no namespace.
            Unstorable: a value is not plain data; names the path in it.
            ValueError, TypeError: another argument is invalid.
        """
        batch = Batch(list(ops))
        for op in batch.ops:
            if not isinstance(op, GetOp | SearchOp | PutOp | ListNamespacesOp):
                raise ValueError(f"Unknown operation type: {type(op)}")
            if isinstance(op, PutOp):
                op = _plainly_placed(op)
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                batch._put(op, embedding)
            elif isinstance(op, SearchOp | ListNamespacesOp):
                if op.limit < 0 or op.offset < 0:
                    raise ValueError(f"limit {op.limit} and offset {op.offset} are 0 or more")
                if isinstance(op, SearchOp):
                    if op.filter:
                        batch.filters[id(op)] = compile_filter(op.filter)
                    if op.query and embedding is not None and op.query not in batch.queries:
                        batch.queries.append(op.query)
                else:
                    for condition in op.match_conditions or ():
                        matches((), [condition])  # refuses one of an unknown type
        return batch

    def _put(self, op: PutOp, embedding: Embedding | None) -> None:
        if not op.namespace:
            raise InvalidNamespaceError("Namespace cannot be empty.")
        if not isinstance(op.key, str):
            raise TypeError(f"the key of an item is a str, not {op.key!r:.60}")
        place = (tuple(op.namespace), op.key)
        self.texts.pop(place, None)
        if op.value is None:
            self.puts[place] = (op, None)
            return
        value = take_value(op.value)
        self.puts[place] = (op._replace(ttl=minutes(op.ttl)), value)
        if embedding is not None:
            self.texts[place] = embedding.texts(value, op.index)

    @property
    def to_embed(self) -> list[str]:
        """Each text to embed, once."""
        return list(dict.fromkeys(text for texts in self.texts.values() for text in texts.values()))

    def changes(self, embedded: Embedded, now: datetime) -> Iterator[Change]:
        """Yields the changes that the puts and deletions make."""
        for (namespace, key), (op, value) in self.puts.items():
            if value is None:
                yield Remove(namespace, key)
                continue
            item: dict[str, Any] = {"value": value, "updated": time_text(now)}
            if op.ttl is not None:
                item["ttl"] = op.ttl
                item["expires"] = time_text(now + timedelta(minutes=op.ttl))
            texts = self.texts.get((namespace, key))
            if texts:
                item["vectors"] = {path: embedded.texts[text] for path, text in texts.items()}
            yield PutItem(namespace, key, item)


def _plainly_placed(op: PutOp) -> PutOp:
    """Returns the operation with labels and key as they are stored: plain texts, whatever a
    subclass of str says; and refuses one text in place of several labels, of which each letter
    would be one."""
    key = exact_types.text(op.key) if is_a(op.key, str) else op.key
    if type(op.namespace) is tuple and all(type(label) is str for label in op.namespace):
        return op if key is op.key else op._replace(key=key)
    given: object = op.namespace
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidNamespaceError(f"a namespace is a tuple of str, not {shown(op.namespace)}")
    labels = tuple(exact_types.text(one) if is_a(one, str) else one for one in given)
    return op._replace(namespace=labels, key=key)


def minutes(ttl: float | None) -> float | None:
    """Returns a ttl as the plain number that is stored.

    Raises:
        TypeError: it is no number. ValueError: it is out of bounds.
    """
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, int | float):
        raise TypeError(f"a ttl is a number of minutes, not {ttl!r:.60}")
    if not (math.isfinite(ttl) and 0 <= ttl <= 1e9):
        raise ValueError(f"a ttl is 0 to 1e9 minutes, not {ttl!r:.60}; None: for ever")
    return int(ttl) if isinstance(ttl, int) else float(ttl)


class Reading:
    """Answers the reads of one batch, each shard as of one look at the store.

    Args:
        shards: the shards with a label in front, brought up to date; all, without one.
    """

    def __init__(
        self, shards: Callable[[str | None], Sequence[Shard]], rules: Rules, now: datetime
    ) -> None:
        self._shards = shards
        self._looked: dict[str | None, Sequence[Shard]] = {}
        self._rules = rules
        self._now = now
        self.refreshes: dict[tuple[Namespace, str], Refresh] = {}

    def answer(self, op: Op, batch: Batch, embedded: Embedded) -> Result:
        if isinstance(op, GetOp):
            return self._get(op)
        if isinstance(op, SearchOp):
            query = embedded.queries.get(op.query) if op.query else None
            return self._search(op, batch.filters.get(id(op)), query)
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        return None

    def _with(self, label: str | None) -> Sequence[Shard]:
        if label not in self._looked:
            self._looked[label] = self._shards(label)
        return self._looked[label]

    def _shown(self, entry: StoredItem) -> bool:
        return not (self._rules.omit_expired and entry.expired(self._now))

    def _get(self, op: GetOp) -> Item | None:
        namespace = tuple(op.namespace)
        if not namespace:
            return None
        for shard in self._with(namespace[0]):
            entry = shard.get(namespace, op.key)
            if entry is not None and self._shown(entry):
                self._note_read(entry, refresh=op.refresh_ttl)
                return Item(
                    value=copy(entry.value),
                    key=entry.key,
                    namespace=entry.namespace,
                    created_at=entry.created,
                    updated_at=entry.updated,
                )
        return None

    def _search(
        self, op: SearchOp, accepts: Test | None, query: Sequence[float] | None
    ) -> list[SearchItem]:
        prefix = tuple(op.namespace_prefix)
        candidates = [
            entry
            for shard in self._with(prefix[0] if prefix else None)
            for entry in shard.entries(prefix)
            if (entry.expires is None or self._shown(entry))
            and (accepts is None or accepts(entry.value))
        ]
        end = op.offset + op.limit
        ranked: list[tuple[float | None, StoredItem]]
        if query is None:
            newest = heapq.nsmallest(end, candidates, key=_by_time)
            ranked = [(None, entry) for entry in newest]
        else:
            scored = zip(scores(query, candidates, self._rules.distance), candidates, strict=True)
            ranked = heapq.nsmallest(end, scored, key=_by_score)
        found = ranked[op.offset : end]
        for _, entry in found:
            self._note_read(entry, refresh=op.refresh_ttl)
        return [
            SearchItem(
                entry.namespace, entry.key, copy(entry.value), entry.created, entry.updated, score
            )
            for score, entry in found
        ]

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        firsts = {one.path[0] for one in conditions if one.match_type == "prefix" and one.path}
        label = next(iter(firsts - {"*"}), None)
        found = {
            namespace[: op.max_depth]
            for shard in self._with(label)
            for namespace, entries in shard.spaces()
            if any(map(self._shown, entries)) and matches(namespace, conditions)
        }
        return sorted(found)[op.offset : op.offset + op.limit]

    def _note_read(self, entry: StoredItem, *, refresh: bool) -> None:
        if not (refresh and self._rules.refresh) or entry.ttl is None or entry.expires is None:
            return
        life = timedelta(minutes=entry.ttl)
        if self._now + life - entry.expires >= max(life * REFRESH_SHARE, timedelta.resolution):
            self.refreshes[entry.namespace, entry.key] = Refresh(
                entry.namespace, entry.key, entry.updated, self._now
            )


_by_time = attrgetter("order")


def _by_score(scored: tuple[float | None, StoredItem]) -> Any:
    """Sorts the best first, and entries that have no vector last."""
    score, entry = scored
    return (1, 0.0, entry.order) if score is None else (0, -score, entry.order)


__all__ = ["NOTHING", "Batch", "Reading", "Rules"]
