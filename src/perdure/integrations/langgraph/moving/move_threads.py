"""Migration of threads of another LangGraph checkpointer into a Perdure store.

A thread is moved whole, with every checkpoint, or not at all; each checkpoint is then read back and
compared with what LangGraph's own saver gives for it. Run again after a crash, it continues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from langgraph.checkpoint.base import CheckpointTuple
from msgspec import Struct, field
from msgspec.structs import replace

from perdure.core.values.plain_values import format_path
from perdure.errors import Corrupt, PerdureError, StoreUnavailable, Unstorable
from perdure.integrations.langgraph.metadata import SECRETS, is_secret
from perdure.integrations.langgraph.moving.already_there import AlreadyThere, Bringer, Refusal, look
from perdure.integrations.langgraph.moving.comparison import Comparison
from perdure.integrations.langgraph.moving.serializer import Unread, found_unread
from perdure.integrations.langgraph.moving.source import (
    CheckpointAddress,
    Source,
    SourceThread,
    WriteKey,
)
from perdure.integrations.langgraph.saver import PerdureSaver
from perdure.integrations.langgraph.values import thread_names
from perdure.integrations.langgraph.values.built_in_kinds import BUILT_IN
from perdure.integrations.langgraph.values.rich_values import Coder
from perdure.store import Store
from perdure.system.late_imports import loading
from perdure.system.urls import is_postgres

STATE = ("v", "ts", "id", "channel_values", "channel_versions", "versions_seen")
MAPS = {*STATE[3:], "metadata"}
PROBLEMS_MAX = 20
PASSES = 3
"""Looking at each checkpoint, putting it, comparing it."""

At = Callable[[float], None]


class Problem(Struct, frozen=True):
    """The reason why a thread was not moved. `where`: checkpoint and path, as far as known."""

    where: str
    words: str
    hint: str = ""


class MovedThread(Struct):
    """The result for one thread.

    Attributes:
        moved: checkpoints moved now; in a dry run, those that would be.
        there: checkpoints that were there already, and are equal.
        bytes_after: the size of the thread in the store, in bytes; 0 if it is not there.
        problems: why it was not moved; empty if it was, and every state was compared.
        secrets: keys of metadata that were left out because `PerdureSaver` never stores them.
    """

    thread: SourceThread
    moved: int = 0
    there: int = 0
    bytes_after: int = 0
    problems: list[Problem] = field(default_factory=list)
    secrets: set[str] = field(default_factory=set)


class StopMovingError(Exception):
    """This thread cannot come over."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems[0].words)
        self.problems = list(problems)


def open_source(words: str, types: Mapping[str, type]) -> Source:
    """Opens the database of another checkpointer: a `SqliteSaver`'s file, or a `PostgresSaver`'s
    URL.

    Args:
        types: the user's own classes, by the name under which they were written.

    Raises:
        ValueError: the URL is of a kind that cannot be read.
        ImportError: the library that reads it is not installed (see `needed`).
        NotFound, NotAStore, UnsupportedFormat, Corrupt, StoreUnavailable: see each class.
    """
    if is_postgres(words):
        with loading:
            from perdure.integrations.langgraph.moving.postgres import PostgresSource

        return PostgresSource(words, types)
    scheme, found, path = words.partition("://")
    if found and scheme != "sqlite":
        raise ValueError(
            f"{scheme}:// is not a source; import-langgraph takes a file or a postgresql:// URL"
        )
    with loading:
        from perdure.integrations.langgraph.moving.sqlite import SqliteSource

    return SqliteSource(path.removeprefix("/") if found else words, types)


def needed(words: str) -> str:
    """Returns the packages needed to open this source, as arguments for pip."""
    if is_postgres(words):
        return "'perdure[langgraph,postgres]' langgraph-checkpoint-postgres"
    return "'perdure[langgraph]' langgraph-checkpoint-sqlite"


class Mover:
    """Moves threads one after the other. Each is compared before it counts as moved.

    Args:
        types: the user's own classes, by their names in the source, which they keep in the log.

    Attributes:
        store: to be set by the caller; None for a dry run.

    Raises:
        TypeError, ValueError: a type cannot be registered.
    """

    store: Store | None = None

    def __init__(self, source: Source, types: Mapping[str, type]) -> None:
        self.source = source
        self._types = types
        self._coder = Coder(BUILT_IN.with_types(types))

    def move(
        self, thread: SourceThread, at: At = lambda done: None, dry: bool = False
    ) -> MovedThread:
        """Moves one thread; durable on return. Problems are reported in the result.

        Args:
            at: called with the number of checkpoints done; fractions for parts of one.
            dry: only report what would be done.

        Raises:
            StoreUnavailable: either database does not answer.
        """
        moved = MovedThread(thread)
        try:
            _Move(self, moved, at).run(dry=dry)
        except StopMovingError as error:
            moved.problems = error.problems
        except StoreUnavailable:
            raise
        except PerdureError as error:
            moved.problems = [Problem(error.target, error.problem, error.hint)]
        except (ValueError, TypeError) as error:  # e.g. a name that no agent can have
            moved.problems = [Problem("", str(error))]
        if self.store is not None:
            moved.bytes_after = self._kept(thread.name)
        return moved

    def _kept(self, name: str) -> int:
        assert self.store is not None
        try:
            sizes = self.store.sizes(name)
        except (PerdureError, ValueError, TypeError):
            return 0
        return sizes.header_bytes + sizes.payload_bytes + sizes.snapshot_bytes + sizes.leaf_bytes

    def saver(self) -> Bringer | None:
        """Returns a saver without memory: all that it returns comes from the store."""
        return None if self.store is None else Bringer(self.store, types=self._types)


class _Move:
    """The move of one thread."""

    def __init__(self, mover: Mover, moved: MovedThread, at: At) -> None:
        self._mover = mover
        self._source = mover.source
        self._moved = moved
        self._name = moved.thread.name
        self._at = at
        self._passed = 0.0
        self._comparison = Comparison()
        self._seen: dict[int, Any] = {}

    def _pass(self, passes: int = 1) -> None:
        self._passed += passes / PASSES
        self._at(self._passed)

    def run(self, *, dry: bool) -> None:
        every = self._source.checkpoints(self._name)
        self._moved.thread = replace(self._moved.thread, checkpoints=len(every))
        standing = self._look({(one.namespace, one.id): one for one in every})
        self._moved.there = len(standing.whole)
        left = [one for one in every if (one.namespace, one.id) not in standing.whole]
        if refusal := standing.refusal(left):
            raise _refused(refusal)
        self._check(left)
        self._moved.moved = len(left)
        if dry or not left:
            return
        saver = self._mover.saver()
        assert saver is not None and self._mover.store is not None
        for address in left:
            self._put(saver, address, standing.partly.get((address.namespace, address.id)))
            self._pass()
        self._mover.store.flush()
        self._read_back({(one.namespace, one.id): one for one in left})

    def _look(self, wanted: Mapping[tuple[str, str], CheckpointAddress]) -> AlreadyThere:
        """Returns the part of the thread that is in the store already.

        Raises:
            StopMovingError: something of it differs.
        """
        saver = self._mover.saver()
        if saver is None:
            return AlreadyThere()
        found = look(
            saver, self._name, wanted, self._read, self._comparison, lambda: self._pass(PASSES)
        )
        if isinstance(found, Refusal):
            raise _refused(found)
        return found

    # -- looking at what comes -------------------------------------------------------------

    def _check(self, addresses: Sequence[CheckpointAddress]) -> None:
        """Checks, before anything of the thread is written, that all of it can be written.

        Raises:
            StopMovingError: with each kind of problem once.
        """
        found: dict[str, Problem] = {}
        for address in addresses:
            for problem in self._problems_of(address):
                known = found.get(problem.words)
                if known is None or (_in_writes(known) and not _in_writes(problem)):
                    found[problem.words] = problem
            if len(found) >= PROBLEMS_MAX:
                break
            self._pass()
        if found:
            raise StopMovingError(list(found.values()))

    def _problems_of(self, address: CheckpointAddress) -> Iterator[Problem]:
        try:
            theirs = self._read(address)
        except StopMovingError as error:
            yield from error.problems
            return
        checkpoint = cast(dict[str, Any], theirs.checkpoint)
        if checkpoint["id"] != address.id:
            yield Problem(str(address), f"says that it is checkpoint {checkpoint['id']!r}")
        parts = [("state", checkpoint["channel_values"])]
        parts += [("metadata", cast(dict[str, Any], theirs.metadata))]
        parts += [("checkpoint", {k: v for k, v in checkpoint.items() if k not in STATE[3:]})]
        parts += [(_root_of(write), {write[1]: write[2]}) for write in _pending(theirs)]
        for root, values in parts:
            for path, value in values.items():
                try:
                    self._encode(value, (path,), root)
                except Unstorable as error:
                    words = error.problem
                    yield Problem(f"{address}, {error.target}", words, _hint(error))

    def _encode(self, value: Any, at: tuple[Any, ...], root: str) -> None:
        """Encodes a value as the saver will. Parts that many checkpoints share are one object, and
        are tried once."""
        if type(value) is not list:
            self._mover._coder.encode(value, at, root)
            return
        for index, item in enumerate(value):
            if type(item) is str or id(item) in self._seen:
                continue
            self._mover._coder.encode(item, (*at, index), root)
            if type(item) not in (list, dict, tuple):
                self._seen[id(item)] = item  # kept, so that its id stays its own

    # -- putting it ------------------------------------------------------------------------

    def _read(self, address: CheckpointAddress) -> CheckpointTuple:
        """A checkpoint of the source, without the metadata that no saver of ours stores.

        Raises:
            StopMovingError: something of it cannot be read, or it has not the parts of one.
        """
        theirs = self._source.read(self._name, address)
        if self._source.unread and (lost := list(_lost(theirs))):
            raise StopMovingError([Problem(f"{address}, {at}", *_said_of(x)) for at, x in lost])
        if strange := _strange(theirs):
            words = f"is not one that LangGraph can continue from: {strange}"
            raise StopMovingError([Problem(str(address), words)])
        secrets = self._secrets_of(theirs)
        kept = {key: item for key, item in theirs.metadata.items() if key not in secrets}
        return theirs._replace(metadata=cast(Any, kept))

    def _secrets_of(self, theirs: CheckpointTuple) -> set[str]:
        given = cast(Mapping[str, Any], theirs.metadata)
        found = {key for key, value in given.items() if is_secret(key, value, SECRETS)}
        self._moved.secrets |= found
        return found

    def _put(
        self, saver: PerdureSaver, address: CheckpointAddress, standing: list[Any] | None
    ) -> None:
        theirs = self._read(address)
        if standing is None:
            parent = thread_names.config_of(self._name, address.namespace, address.parent or "")
            saver.put(parent, theirs.checkpoint, theirs.metadata, {})
        keys = self._source.write_keys(self._name, address)
        pending = _pending(theirs)
        if [(key.task, key.channel) for key in keys] != [one[:2] for one in pending]:
            raise Corrupt(
                "its pending writes cannot be distinguished", target=f"{self._name}, {address}"
            )
        calls: dict[tuple[str, str], list[tuple[WriteKey, Any]]] = {}
        for key, (_, _, value) in zip(keys, pending, strict=True):
            calls.setdefault((key.task, key.path), []).append((key, value))
        config = thread_names.config_of(self._name, address.namespace, address.id)
        for (task, path), writes in calls.items():
            if standing and self._has(standing, task, writes):
                continue
            saver.put_writes(config, in_call(writes), task, path)

    def _has(self, standing: list[Any], task: str, writes: list[tuple[WriteKey, Any]]) -> bool:
        wanted = [(task, key.channel, value) for key, value in writes]
        return self._comparison.writes(wanted, [one for one in standing if one[0] == task]) is None

    # -- reading it back -------------------------------------------------------------------

    def _read_back(self, left: dict[tuple[str, str], CheckpointAddress]) -> None:
        """Compares what was moved, as the store returns it, with the source.

        Raises:
            StopMovingError: a checkpoint differs from the source.
        """
        saver = self._mover.saver()
        assert saver is not None
        for key, ours in saver.every(self._name):
            address = left.pop(key, None)
            if address is None:
                continue
            theirs = self._read(address)
            problem = self._comparison.of(theirs, ours) or self._comparison.writes(
                _pending(theirs), list(ours.pending_writes or ())
            )
            if problem is not None:
                raise StopMovingError([_wrong(address, f"did not come over as it was: {problem}")])
            self._pass()
        for address in left.values():
            raise StopMovingError(
                [_wrong(address, "did not come over: the store does not have it")]
            )


def _refused(refusal: Refusal) -> StopMovingError:
    return StopMovingError([Problem(str(refusal.address), refusal.words, refusal.hint)])


def _wrong(address: CheckpointAddress, words: str) -> Problem:
    return Problem(
        str(address),
        words,
        "do not use this thread there; keep the old database, and report it with the line above",
    )


def in_call(writes: Sequence[tuple[WriteKey, Any]]) -> list[tuple[str, Any]]:
    """Writes of one task as `put_writes` takes them, so that each gets the index it had.

    Special ones (an interrupt) have fixed indexes wherever they stand, so they go where an ordinary
    write has none before it; once more, if there are too few (of two in one call the last counts).
    """
    special = [(key.channel, value) for key, value in writes if key.index < 0]
    ordinary = sorted((item for item in writes if item[0].index >= 0), key=lambda w: w[0].index)
    made: list[tuple[str, Any]] = []
    used = 0
    for key, value in ordinary:
        while special and len(made) < key.index:
            made.append(special[min(used, len(special) - 1)])
            used += 1
        made.append((key.channel, value))
    return made + special[used:]


def _pending(found: CheckpointTuple) -> list[Any]:
    return list(found.pending_writes or ())


def _strange(found: CheckpointTuple) -> str | None:
    """Returns the description of the first part that is missing or malformed; None if there is
    none."""
    checkpoint = cast(Any, found.checkpoint)
    if not isinstance(checkpoint, dict):
        return f"it is a {type(checkpoint).__name__}"
    parts = {**checkpoint, "metadata": found.metadata}
    for name in (*STATE, "metadata"):
        if name not in parts:
            return f"no {name!r}"
        if name in MAPS and not isinstance(parts[name], dict):
            return f"{name!r} is a {type(parts[name]).__name__}"
    return None


def _in_writes(problem: Problem) -> bool:
    """A state's path says more to people than that of the write that it came from."""
    return " writes of task" in problem.where


def _root_of(write: Any) -> str:
    return f"writes of task {write[0]}"


def _lost(found: CheckpointTuple) -> Iterator[tuple[str, Unread]]:
    """Yields the values of a checkpoint that could not be read, with their paths."""
    for path, one in found_unread(found.checkpoint):
        if path[:1] == ("channel_values",):
            yield format_path(path[1:], "state"), one
        else:
            yield format_path(path, "checkpoint"), one
    for write in _pending(found):
        for path, one in found_unread(write[2]):
            yield format_path((write[1], *path), _root_of(write)), one


def _said_of(lost: Unread) -> tuple[str, str]:
    return lost.problem, _registering(lost.type) if lost.type else ""


def _registering(name: str) -> str:
    module, _, cls = name.rpartition(".")
    if module == "__main__":
        return (
            f"a script wrote it; --type {name}=module:{cls} registers it, with the module it is in"
        )
    return f"--type {module}:{cls} registers it"


def _hint(error: Unstorable) -> str:
    found = re.match(r"a (\S+) cannot be stored: its type is not registered", error.problem)
    if found is None:
        return error.hint
    return (
        f"{_registering(found[1])}, if it is a pydantic model, dataclass, enum or named tuple; "
        "others cannot be imported yet"
    )
