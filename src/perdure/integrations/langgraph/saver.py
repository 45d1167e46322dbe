"""`PerdureSaver`: LangGraph's checkpointer on a Perdure store."""

from __future__ import annotations

import builtins
import copy
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from heapq import merge
from itertools import islice
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde._msgpack import STRICT_MSGPACK_ENABLED
from langgraph.checkpoint.serde.base import SerializerProtocol, maybe_add_typed_methods
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from perdure.adapters import Trimmed, Where, foreign_logs
from perdure.adapters.on_each import on_each
from perdure.core.arguments.checks import flag
from perdure.core.arguments.names import words_of
from perdure.integrations.langgraph.gc_pause import Calm
from perdure.integrations.langgraph.lifetime import Lifetime
from perdure.integrations.langgraph.metadata import SECRETS, metadata_to_store, warn_of_secrets
from perdure.integrations.langgraph.threads.channel_history import delta_channels, delta_history
from perdure.integrations.langgraph.threads.channel_versions import next_version, noted
from perdure.integrations.langgraph.threads.listing import CheckpointFilter, Listed, entries, pages
from perdure.integrations.langgraph.threads.reading import (
    checkpoint_of,
    metadata_of,
    packed_time,
    pending_of,
    tuple_of,
)
from perdure.integrations.langgraph.threads.removal import and_later, keep_latest, remove_runs
from perdure.integrations.langgraph.threads.requested_checkpoints import Requested
from perdure.integrations.langgraph.threads.requests import Put
from perdure.integrations.langgraph.threads.state_changes import sources_of
from perdure.integrations.langgraph.threads.task_writes import request_of, settle, settle_in_loop
from perdure.integrations.langgraph.threads.thread import OnRace, Thread
from perdure.integrations.langgraph.threads.thread_copies import copy_thread
from perdure.integrations.langgraph.threads.thread_deletion import Remover
from perdure.integrations.langgraph.threads.thread_trimming import trim_threads
from perdure.integrations.langgraph.values import thread_names
from perdure.integrations.langgraph.values.built_in_kinds import BUILT_IN
from perdure.integrations.langgraph.values.foreign_serializers import usable
from perdure.integrations.langgraph.values.rich_values import Coder
from perdure.store import Store
from perdure.system.locks import Lock

THREADS_KEPT = 64
"""Threads of which something is in memory; the least recently used one is forgotten."""

Writes = Sequence[tuple[str, Any]]

CHUNK = 16


class PerdureSaver(Lifetime, BaseCheckpointSaver[Any]):
    """Keeps the threads of LangGraph graphs in a Perdure store: ``compile(checkpointer=saver)``.

    A thread is an agent of the thread's name: ``perdure log``, ``diff``, ``fork``, ``verify`` and
    ``stats`` work on it. A `put` costs as much as it changes, whatever the thread's size.

    Safe to share between Python's threads and between event loops; the async methods read and
    write on the store's own threads. Several processes may have the same store open.

    Args:
        store: an open store, which the caller closes; see also `from_url`.
        types: names for classes of values: pydantic models, dataclasses, enums, named tuples. A
            mapping names them for the log (``{"ticket": Ticket}``); give a renamed class under its
            old name, too. Others are stored under their own name, and become instances of their
            class again if it is loaded; otherwise their data is returned, with a warning.
        strict: refuse values of classes that are not in `types`, nor declared by the graph where
            LangGraph does so (it does with ``LANGGRAPH_STRICT_MSGPACK=true``, the default here).
        serde: LangGraph's serializer for values of other types; without one they are refused. What
            it stores is opaque to `perdure diff`. Its pickle fallback must be off, and it must not
            encrypt: it would not be asked about most values.
        on_race: what becomes of a second child of one parent, if its writer did not ask for an
            older checkpoint: ``"branch"``, a sibling that `list` and `perdure branches` show, or
            ``"conflict"``: its writer gets `Conflict`, and nothing is written.
        keep: keys of `configurable` that are always stored as metadata. Other keys are if their
            value is a text or number, and neither looks like a secret.
        keep_deleted: leave the logs of deleted threads in the store, for `perdure log --all`.
        secrets: more parts of names that mark metadata keys that are never stored.

    Raises:
        ValueError: two types have one name; the serializer would unpickle, or encrypt.
        TypeError: a type cannot be taken apart into fields.
    """

    _brings = False
    """True if what it stores was written elsewhere (see `Write.brought`)."""

    def __init__(
        self,
        store: Store,
        *,
        types: Iterable[type] | Mapping[str, type] = (),
        serde: SerializerProtocol | None = None,
        strict: bool | None = None,
        on_race: OnRace = "branch",
        keep: Collection[str] = (),
        secrets: Collection[str] = (),
        keep_deleted: bool = False,
    ) -> None:
        if on_race not in ("branch", "conflict"):
            raise ValueError(f'on_race is "branch" or "conflict", not {on_race!r}')
        if not isinstance(store, Store):
            raise TypeError(
                f"a PerdureSaver is made of an open perdure.Store, not {store!r:.80}: "
                "PerdureSaver(perdure.open(path)), also for async code, "
                "or PerdureSaver.from_url(path)"
            )
        if strict is not None:
            flag(strict, "strict=")
        flag(keep_deleted, "keep_deleted=")
        self._serde: SerializerProtocol | None = None
        if serde is not None:
            self.serde = serde
        self.store = store
        self._owns = False
        self._coder = Coder(
            BUILT_IN.with_types(types),
            self._serde,
            strict=STRICT_MSGPACK_ENABLED if strict is None else strict,
        )
        self._on_race: OnRace = on_race
        self._keep = words_of(keep, "keep=")
        self._secrets = (*SECRETS, *(name.lower() for name in words_of(secrets, "secrets=")))
        self._logs = foreign_logs(store, thread_names.SCHEMA_ID, thread_names.SCHEMA_VERSION)
        self._threads: OrderedDict[str, Thread] = OrderedDict()
        self._remover = Remover(store, self._logs, keep=keep_deleted)
        self._asked = Requested()
        self._mutex = Lock()

    @property
    def serde(self) -> Any:
        """LangGraph's serializer for values of no kind of ours."""
        return self._serde or BaseCheckpointSaver.serde

    @serde.setter
    def serde(self, serde: Any) -> None:
        """Raises: ValueError: as `PerdureSaver`; one that encrypts would not be asked."""
        self._serde = usable(maybe_add_typed_methods(serde))
        if hasattr(self, "_coder"):  # given later, as it can be to LangGraph's own
            self._coder = Coder(self._coder.kinds, self._serde, strict=self._coder.strict)

    def _thread(self, thread_id: str) -> Thread:
        with self._mutex:
            thread = self._threads.get(thread_id)
            if thread is None:
                thread = self._threads[thread_id] = Thread(
                    self._logs, thread_id, self._asked, self._remover.begins
                )
            self._threads.move_to_end(thread_id)
            while len(self._threads) > THREADS_KEPT:
                self._threads.popitem(last=False)
            return thread

    # -- writing ---------------------------------------------------------------------------

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # two lines, for the limit of the file  # fmt: skip
        """Stores a checkpoint behind the one that `config` names, in one commit; durable when this
        returns, and so are the writes for its parent that were handed in before.

        Put again as it was, it changes nothing; with other values, the later one counts.

        Raises:
            Unstorable: a value is of a type that is not registered; names its path.
            Conflict: with ``on_race="conflict"``, its parent has a child already.
            NotFound: the thread was deleted since its parent was put.
            ValueError: the config names no thread, or one that cannot be.
            StoreUnavailable: see its `outcome`.
        """
        thread, put = self._asked_to_put(config, checkpoint, metadata)
        with thread.queue.coming(put.namespace, put.parent):
            return self._put(thread, put)

    def _asked_to_put(self, config: Any, checkpoint: Any, metadata: Any) -> tuple[Thread, Put]:
        thread_id, namespace, parent = thread_names.address_of(config)
        thread = self._thread(thread_id)
        thread.queue.alone.update(delta_channels(checkpoint, metadata))
        checkpoint_id = thread_names.text_of(checkpoint["id"] or "", "checkpoint_id")
        checkpoint = thread_names.plainly_named(checkpoint)
        rest = {name: value for name, value in checkpoint.items() if name not in _STATE}
        rest["ts"] = packed_time(rest.get("ts"))
        stored = metadata_to_store(config, metadata, keep=self._keep, secrets=self._secrets)
        kept = self._coder.encode_items(stored, (), "metadata")
        more = self._coder.encode(rest, (), "checkpoint")
        return thread, Put(namespace, checkpoint_id, parent, checkpoint, kept, more)

    def _put(self, thread: Thread, put: Put) -> RunnableConfig:
        with thread.lock:
            thread.put(self._coder, put, self._on_race)
        return thread_names.config_of(thread.name, put.namespace, put.id)

    def put_writes(
        self, config: RunnableConfig, writes: Writes, task_id: str, task_path: str = ""
    ) -> None:
        """Stores what a task wrote at a checkpoint; durable when this returns.

        They may come before their checkpoint. Of a task's ordinary writes the first of each place
        counts, of its special ones (an error, an interrupt) the last.

        Raises:
            Unstorable, ValueError, StoreUnavailable: as `put`.
            NotFound: the thread was deleted since that checkpoint.
        """
        thread_id, namespace, at = thread_names.address_of(config)
        thread = self._thread(thread_id)
        request = request_of(self._coder, namespace, at, writes, task_id, task_path)
        if request is not None:
            request.write.brought = self._brings
            settle(thread, request)
        else:
            self._logs.look(thread.name)

    # -- reading ---------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Returns the checkpoint that `config` names, or the latest of its thread and namespace:
        that with the greatest id. None if there is none. O(state).

        Raises:
            SchemaError: a value cannot be rebuilt; names its path, and what to register.
            ValueError: the config names no thread.
            Corrupt: stored bytes are not what was written.
        """
        thread = self._thread(thread_names.thread_id_of(config))
        thread.queue.looked()
        return noted(self._get_tuple(thread, config))

    def _get_tuple(self, thread: Thread, config: RunnableConfig) -> CheckpointTuple | None:
        namespace = thread_names.namespace_of(config)
        with thread.lock, Calm():
            found = thread.find(namespace, thread_names.checkpoint_id_of(config))
            if found is None:
                return None
            told, writes = thread.told(found, namespace)
            state, given = thread.state_of(found)
            checkpoint = checkpoint_of(self._coder, found.id, state, told.rest)
            given(sources_of(checkpoint["channel_values"]))
        metadata = metadata_of(self._coder, told.metadata)
        pending = pending_of(self._coder, writes)
        return tuple_of(thread.name, namespace, checkpoint, metadata, told.parent, pending)

    def list(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None, limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:  # two lines, for the limit of the file  # fmt: skip
        """Yields checkpoints, newest first (by descending id), read as they are requested.

        Tuples of one page share messages: do not change these in place.

        Args:
            config: names the thread and, optionally, namespace or checkpoint. None: all threads.
            filter: metadata that each must have; a key with dots is a path if no key is named so.
            before: only checkpoints with a lesser id than this config's.

        Raises:
            As `get_tuple`.
        """
        if filter:
            warn_of_secrets(filter, keep=self._keep, secrets=self._secrets)
        space = thread_names.namespace_of(config) if thread_names.has_namespace(config) else None
        ids = thread_names.checkpoint_id_of(config), thread_names.checkpoint_id_of(before)
        wanted = CheckpointFilter(space, *ids, filter)
        found: Iterator[Listed]
        if config is None:
            streams = [entries(self._coder, thread, wanted) for thread in self._all()]
            found = merge(*streams)
        else:
            found = entries(self._coder, self._thread(thread_names.thread_id_of(config)), wanted)
        return pages(self._coder, found, limit)

    def _all(self) -> Iterator[Thread]:
        return (self._thread(info.name) for info in self._logs.all())

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Returns the writes to each channel on the way to a checkpoint, from its nearest ancestor
        with a value of the channel on. Includes removed checkpoints: pruning cuts nothing off.

        Raises:
            As `get_tuple`.
        """
        thread = self._thread(thread_names.thread_id_of(config))
        place = thread_names.namespace_of(config), thread_names.checkpoint_id_of(config)
        with thread.lock, Calm():
            return delta_history(self._coder, thread, *place, channels)

    # -- threads ---------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        """Deletes a thread in one commit, whatever its size. No error if there is none.

        No late write brings it back; a new thread of that id begins empty. The space of the old one
        is used again, except for its last commit: removal begins here, and continues when threads
        begin or are deleted, or with `perdure purge`, if it takes longer than a moment. Data that
        its copies read stays until they are deleted. With ``keep_deleted=True`` all of it stays.

        Raises:
            ValueError: it is not a valid thread id.
            SchemaError: the agent of that name is not a thread.
        """
        self._remover.delete(
            self._thread(thread_names.checked(thread_names.said(thread_id, "thread_id")))
        )

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Removes the checkpoints, and their writes, whose metadata names one of these runs: one
        commit for each thread. Reads the logs of all threads.

        Raises:
            Corrupt, UnsupportedFormat: one cannot be read. All others are done before.
        """
        wanted = frozenset(
            thread_names.said(one, "a run_id") for one in thread_names.several(run_ids, "run_ids")
        )
        if wanted:
            on_each(and_later(self._all), lambda thread: remove_runs(self._coder, thread, wanted))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Makes a thread with all that another holds now: one commit, which refers to the other.

        The first checkpoint that continues it stores the state whole, once.

        Raises:
            NotFound: there is no such thread to copy.
            Conflict: the target is there already.
        """
        copy_thread(
            self._logs,
            self._thread(
                thread_names.checked(thread_names.said(source_thread_id, "source_thread_id"))
            ),
            thread_names.checked(thread_names.said(target_thread_id, "target_thread_id")),
        )

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Removes checkpoints: ``"keep_latest"`` all but the latest of each namespace, in one
        commit per thread, ``"delete"`` the threads. Missing threads are not an error.

        Removed checkpoints are not shown any more; the log keeps them (see
        `get_delta_channel_history`).

        Raises:
            ValueError: another strategy.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f'a strategy is "keep_latest" or "delete", not {strategy!r}')
        for thread_id in builtins.list(thread_names.several(thread_ids, "thread_ids")):
            if strategy == "delete":
                self.delete_thread(thread_id)
            else:
                keep_latest(
                    self._thread(thread_names.checked(thread_names.said(thread_id, "thread_id")))
                )

    def trim(
        self,
        before: Where | timedelta,
        thread_ids: Iterable[str] | None = None,
        *,
        passing: Collection[str] = (),
    ) -> builtins.list[Trimmed]:
        """Removes the history of threads for good, like `perdure.Agent.trim`: checkpoints before a
        moment or of an age, but the latest of each line of each namespace, with the writes for it.

        Args:
            thread_ids: of these threads; None: of all.
            passing: channels of yours in which no value stays between steps (`EphemeralValue`).

        Raises:
            Conflict: a copy reads a thread; or a channel of it is stored as deltas.
            Corrupt, UnsupportedFormat: one cannot be read. All others are trimmed before.
        """
        threads = self._all()
        if thread_ids is not None:
            ids = [
                thread_names.checked(thread_names.said(one, "thread_id"))
                for one in thread_names.several(thread_ids, "thread_ids=")
            ]
            threads = map(self._thread, ids)
        return trim_threads(builtins.list(threads), before, passing)

    def get_next_version(self, current: Any, channel: Any = None) -> Any:
        """The version after `current`, of the same type; see `versions.next_version`."""
        return next_version(current)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> PerdureSaver:
        """Returns this saver, with more types: those of these (module, name) that are loaded.
        A copy that shares all else with it, unless it has all of them. Nothing is imported.
        """
        exotic = self._serde
        if isinstance(exotic, JsonPlusSerializer):
            exotic = exotic.with_msgpack_allowlist(extra_allowlist)
        coder = self._coder.allowing(extra_allowlist, exotic)
        if coder is self._coder:
            return self
        clone = copy.copy(self)
        clone._serde, clone._coder = exotic, coder
        return clone

    # -- async -----------------------------------------------------------------------------

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # two lines, for the limit of the file  # fmt: skip
        """Stores a checkpoint; see `put`. Once begun, it completes before a cancellation."""
        thread, put = self._asked_to_put(config, checkpoint, metadata)
        with thread.queue.coming(put.namespace, put.parent):  # as soon as the loop knows it
            async with thread.turns.next():
                return await self._logs.in_thread(self._put, thread, put)

    async def aput_writes(
        self, config: RunnableConfig, writes: Writes, task_id: str, task_path: str = ""
    ) -> None:
        """Stores writes; see `put_writes`."""
        thread_id, namespace, at = thread_names.address_of(config)
        thread = self._thread(thread_id)
        request = request_of(self._coder, namespace, at, writes, task_id, task_path)
        if request is not None:
            await settle_in_loop(self._logs, thread, request)
        else:
            await self._logs.in_thread(self._logs.look, thread.name)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Returns a checkpoint; see `get_tuple`."""
        thread = self._thread(thread_names.thread_id_of(config))
        thread.queue.looked()
        return noted(await self._logs.in_thread(self._get_tuple, thread, config))

    async def alist(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None, limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:  # two lines, for the limit of the file  # fmt: skip
        """Yields checkpoints, read in pages; see `list`."""
        found = await self._logs.in_thread(
            lambda: self.list(config, filter=filter, before=before, limit=limit)
        )
        while page := await self._logs.in_thread(lambda: tuple(islice(found, CHUNK))):
            for one in page:
                yield one

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Returns the histories of channels; see `get_delta_channel_history`."""
        return await self._logs.in_thread(
            lambda: self.get_delta_channel_history(config=config, channels=channels)
        )

    async def adelete_thread(self, thread_id: str) -> None:
        """Deletes a thread; see `delete_thread`."""
        await self._logs.in_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints of runs; see `delete_for_runs`."""
        await self._logs.in_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread; see `copy_thread`."""
        await self._logs.in_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Removes checkpoints; see `prune`."""
        await self._logs.in_thread(lambda: self.prune(thread_ids, strategy=strategy))

    async def atrim(
        self,
        before: Where | timedelta,
        thread_ids: Iterable[str] | None = None,
        *,
        passing: Collection[str] = (),
    ) -> builtins.list[Trimmed]:
        """Removes old history; see `trim`."""
        return await self._logs.in_thread(self.trim, before, thread_ids, passing=passing)


_STATE = frozenset({"id", "channel_values", "channel_versions", "versions_seen"})
"""The parts of a checkpoint that are not in its record: the state, and the id, which is in the
key."""
