"""`PerdureStore`: LangGraph's long-term memory (`BaseStore`) in a Perdure store.

Every namespace that begins with the same label is kept by one agent, named ``store:`` and that
label. Each put is a commit of it: durable, chained, to be read with ``perdure log store:users``.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import datetime
from typing import Any, cast

from langgraph.store.base import BaseStore, IndexConfig, Op, Result, TTLConfig

import perdure
from perdure.adapters.on_each import on_each
from perdure.aio.unbuilt import in_own_thread
from perdure.core.arguments.checks import flag, mapping, number
from perdure.core.arguments.checks import function as callable_
from perdure.core.arguments.not_entered import ToEnter
from perdure.errors import Conflict, SchemaError, StoreUnavailable
from perdure.integrations.langgraph.lifetime import Ready
from perdure.integrations.langgraph.store.batch import Batch, Reading, Rules, minutes
from perdure.integrations.langgraph.store.items import agent_name, utc_now
from perdure.integrations.langgraph.store.shard import Change, Shard
from perdure.integrations.langgraph.store.sweeper import Sweeper
from perdure.integrations.langgraph.store.vectors import NOTHING, Embedded, Embedding
from perdure.model import AgentInfo, Durability
from perdure.store import Store
from perdure.system.locks import Lock

PREFIX = "store:"
PAGE = 1000
SHARDS_MAX = 4096
"""Labels whose items are kept in memory; beyond, the one that was not used for longest goes."""

SWEEP_MINUTES = 5.0


class PerdureStore(BaseStore):
    """LangGraph's `BaseStore` on Perdure, for ``compile(store=…)``, sync and async.

        with PerdureStore.from_url("agents.db") as store:
            store.put(("users", "17"), "prefs", {"theme": "dark"})

    A put or delete is durable when it returns (at the store's durability). The puts of one
    `batch` are atomic for each first label of their namespaces; reads in a batch come before its
    puts. Threads, event loops and processes may all write; the last put of an item wins, no
    other is lost. One `PerdureStore` may be used by all threads and event loops of a process.

    Searches without a query give the newest first; with one, the best score first, and items
    without a vector last. Items are copies.

    Args:
        store: an open `perdure.Store`; whoever opened it closes it.
        index: as LangGraph's `IndexConfig`: ``{"dims": 1536, "embed": fn, "fields": ["text"]}``.
            Vectors are stored with their items, and compared by cosine, or by
            ``"distance_type"``: ``"l2"``, ``"inner_product"``. ``"text_fields"`` are ``"fields"``.
        ttl: as LangGraph's `TTLConfig`, in minutes: ``default_ttl``, ``refresh_on_read`` (default:
            True), ``sweep_interval_minutes``, ``omit_expired`` (default: True; expired items are
            not shown, even before they are swept).
        prefix: prefix of the agents' names. Stores share items if the prefix of one begins with
            that of the other, as ``user-1`` and ``user-12`` do; ``user-1:`` and ``user-12:`` do
            not.
        clock: returns the current time, by which items are dated and expire, as an aware datetime.

    Every method that reads or writes raises:
        InvalidNamespaceError: an empty label, or one with a period or NUL.
        perdure.Unstorable: a value is not plain data, with the path in it; nothing is written.
        perdure.SchemaError: an agent of that name is not one of this store.
        perdure.StoreUnavailable: the store is closed, or storage fails; see its `outcome`.
    """

    supports_ttl = True

    def __init__(
        self,
        store: Store,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        prefix: str = PREFIX,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        if not isinstance(store, Store):
            raise TypeError(
                f"a PerdureStore is made of an open perdure.Store, not {store!r:.80}: "
                "PerdureStore(perdure.open(path)), also for async code, "
                "or PerdureStore.from_url(path)"
            )
        ttl = None if ttl is None else _checked_ttl(ttl)
        if index is not None:
            index = cast(
                IndexConfig, mapping(index, "index= is a mapping, as LangGraph's IndexConfig")
            )
        callable_(clock, "clock=")
        self.ttl_config = ttl
        self.index_config = index
        self._store = store
        self._embedding = None if index is None else Embedding(index)
        self._prefix = prefix
        self._clock = clock
        ttl = ttl or {}
        self._rules = Rules(
            refresh=self.ttl_config is not None,
            omit_expired=ttl.get("omit_expired", True),
            distance="cosine" if self._embedding is None else self._embedding.distance,
        )
        self._interval_minutes = ttl.get("sweep_interval_minutes")
        self._shards: OrderedDict[str, Shard] = OrderedDict()
        self._lock = Lock()
        self._sweeper: Sweeper | None = None

    @staticmethod
    def from_url(
        url: str | os.PathLike[str],
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        durability: Durability = "sync",
        prefix: str = PREFIX,
        clock: Callable[[], datetime] = utc_now,
    ) -> StoreOpening:
        """Opens a store of its own: ``with PerdureStore.from_url("agents.db") as store:``, or
        ``async with``; it is closed at the end of the block.

        Args:
            url, durability: as `perdure.open`.
            index, ttl, prefix, clock: as `PerdureStore`.

        Raises:
            As `perdure.open`, when the block begins.
        """

        def begin() -> PerdureStore:
            store = perdure.open(url, durability=durability)
            try:
                return PerdureStore(store, index=index, ttl=ttl, prefix=prefix, clock=clock)
            except BaseException:
                store.close()
                raise

        return StoreOpening(begin)

    def __repr__(self) -> str:
        return f"<PerdureStore on {self._store!r}>"

    @property
    def store(self) -> Store:
        """The Perdure store that it is kept in."""
        return self._store

    def setup(self) -> Ready:
        """Does nothing; see `PerdureSaver.setup`."""
        return Ready()

    # -- operations ------------------------------------------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: first all reads, then all puts; of two puts of an item, the last.

        Returns:
            The answer to each, in their order; None to a put.
        """
        batch = Batch.of(ops, self._embedding)
        embedded = NOTHING
        if self._embedding is not None:
            embedded = self._embedding.embed(batch.to_embed, batch.queries)
        return self._carry_out(batch, embedded)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Executes operations without blocking the event loop; see `batch`. If cancelled, work that
        has begun is awaited before the cancellation takes effect."""
        batch = Batch.of(ops, self._embedding)
        embedded = NOTHING
        if self._embedding is not None:
            embedded = await self._embedding.aembed(batch.to_embed, batch.queries)
        return await self._store.runner.context.in_thread(self._carry_out, batch, embedded)

    def _carry_out(self, batch: Batch, embedded: Embedded) -> list[Result]:
        now = self._clock()
        reading = Reading(self._looked, self._rules, now)
        answers = [reading.answer(op, batch, embedded) for op in batch.ops]
        refreshes = [one for place, one in reading.refreshes.items() if place not in batch.puts]
        if changes := [*batch.changes(embedded, now)]:
            self._write([*refreshes, *changes])
        elif refreshes:
            # What was read is the answer, also in a copy, or with the disk full: only its expiry
            # stays what it was.
            with suppress(StoreUnavailable, Conflict):
                self._write(refreshes)
        return answers

    def _write(self, changes: Iterable[Change]) -> int:
        """Makes one commit for each agent; returns the number of changes that changed anything."""
        by_agent: dict[str, list[Change]] = {}
        for change in changes:
            name = agent_name(self._prefix, change.namespace[0])
            by_agent.setdefault(name, []).append(change)
        return sum(self._shard(name).write(group) for name, group in by_agent.items())

    # -- the agents ------------------------------------------------------------------------

    def _looked(self, label: str | None) -> Sequence[Shard]:
        """The shards that may hold a label (None: any), as the store is now."""
        if label is None:
            return [shard for info in self._agents() if (shard := self._look(info)) is not None]
        info = self._store.find(agent_name(self._prefix, label))
        if info is None:
            return []
        shard = self._shard(info.name)
        shard.look(info)
        return [shard]

    def _look(self, info: AgentInfo) -> Shard | None:
        """Returns the shard of an agent, as it is now; None if it is not one of this store: a
        thread may have a name that begins like those of shards."""
        shard = self._shard(info.name)
        try:
            shard.look(info)
        except SchemaError:
            return None
        return shard

    def _agents(self) -> Iterator[AgentInfo]:
        after = ""
        while page := self._store.agents(self._prefix, after=after, limit=PAGE):
            yield from page
            after = page[-1].name

    def _shard(self, name: str) -> Shard:
        with self._lock:
            shard = self._shards.get(name)
            if shard is None:
                shard = self._shards[name] = Shard(self._store, name)
                # A shard that is still in use stays correct: it is a cache, and so is its
                # successor.
                while len(self._shards) > SHARDS_MAX:
                    self._shards.popitem(last=False)
            self._shards.move_to_end(name)
            return shard

    # -- expiry ----------------------------------------------------------------------------

    def sweep_ttl(self) -> int:
        """Removes expired items; one commit for each agent that has such items.

        Returns:
            The number of removed items.

        Raises:
            Corrupt, UnsupportedFormat, Conflict: an agent cannot be read, or other processes were
                faster in every attempt. All others are swept before.
        """
        now = self._clock()

        def sweep(info: AgentInfo) -> int:
            shard = self._look(info)
            return 0 if shard is None else shard.sweep(now)

        return sum(on_each(self._agents(), sweep))

    async def asweep_ttl(self) -> int:
        """Removes expired items; see `sweep_ttl`."""
        return await self._store.runner.context.in_thread(self.sweep_ttl)

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Sweep in intervals, on a thread of its own.

        Args:
            sweep_interval_minutes: default: that of the ttl configuration, else 5.

        Returns:
            A future that ends with the sweeper; cancelling it stops the sweeper. It is done at
            once where the store has no ttl configuration.
        """
        with self._lock:
            if self._sweeper is not None and self._sweeper.alive:
                return self._sweeper.future
            if self.ttl_config is None:
                future: Future[None] = Future()
                future.set_result(None)
                return future
            given = sweep_interval_minutes
            own = None if given is None else _interval(given, "sweep_interval_minutes")
            every = own or self._interval_minutes or SWEEP_MINUTES
            if self._sweeper is not None:
                self._sweeper.stop(0.0)  # one whose start was interrupted
            self._sweeper = Sweeper(self.sweep_ttl, every * 60)
            self._sweeper.start()
            return self._sweeper.future

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the sweeper, and wait for a sweep that is under way.

        Args:
            timeout: in seconds; None: as long as it takes.

        Returns:
            Whether none runs any more.
        """
        with self._lock:
            sweeper = self._sweeper
        return sweeper is None or sweeper.stop(timeout)


def _checked_ttl(ttl: TTLConfig) -> TTLConfig:
    """Returns the settings as plain values; refuses those that would only fail at a later put."""
    given: dict[str, Any] = mapping(
        cast(Mapping[str, Any], ttl), "ttl= is a mapping, as LangGraph's TTLConfig"
    )
    for name, value in given.items():
        if value is None:
            continue
        if name == "default_ttl":
            given[name] = minutes(value)
        elif name == "sweep_interval_minutes":
            given[name] = _interval(value, f"ttl[{name!r}]")
        elif name in ("refresh_on_read", "omit_expired"):
            given[name] = flag(value, f"ttl[{name!r}]")
    return cast(TTLConfig, given)


def _interval(value: float, of: str) -> float:
    """Returns the minutes between two sweeps; 0: the default's."""
    every = number(value, of)
    if every < 0:
        raise ValueError(f"{of} must not be negative: {every}")
    return every


class StoreOpening(ToEnter):
    """The result of `PerdureStore.from_url`, for use in a ``with`` or an ``async with``."""

    _entered = "with PerdureStore.from_url(…) as store: …"

    def __init__(self, begin: Callable[[], PerdureStore]) -> None:
        self._begin = begin
        self._made: PerdureStore | None = None

    def __enter__(self) -> PerdureStore:
        self._made = self._begin()
        return self._made

    def __exit__(self, *error: object) -> None:
        made, self._made = self._made, None
        if made is not None:
            made.stop_ttl_sweeper()
            made.store.close()

    async def __aenter__(self) -> PerdureStore:
        try:
            return await in_own_thread(self.__enter__)
        except asyncio.CancelledError:  # it may be open: nobody else would close it
            await in_own_thread(self.__exit__)
            raise

    async def __aexit__(self, *error: object) -> None:
        await in_own_thread(self.__exit__, *error)
