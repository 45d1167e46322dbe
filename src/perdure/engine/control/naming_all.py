"""One name for the states of all agents at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from perdure.core.arguments.names import check_label, words_of
from perdure.errors import Conflict, NotFound, PerdureError
from perdure.model import MAIN, AgentInfo, Checkpoint, from_micros
from perdure.public_data import PublicData
from perdure.state.branch_operations import name_taken
from perdure.state.context import Context
from perdure.state.head_naming import name_commit
from perdure.storage.log.reader import LogReader
from perdure.system.backoff import CHANCES_MAX, chances
from perdure.transfer.living_agents import living


class CheckpointedAll(PublicData, Struct, frozen=True):
    """The result of `Store.checkpoint_all`.

    Attributes:
        at: the moment, by the store's clock.
        points: the checkpoints, by the names of the agents.
        failed: why an agent has none, by its name.
    """

    at: datetime
    points: Mapping[str, Checkpoint]
    failed: Mapping[str, str]


def checkpoint_all(
    context: Context,
    name: str,
    prefix: str,
    config: str | None,
    dependencies: Iterable[str],
) -> CheckpointedAll:
    """See `Store.checkpoint_all`. `config`: the hash of a configuration."""
    name, names = check_label(name), words_of(dependencies, "dependencies")
    now = context.backend.now()
    points: dict[str, Checkpoint] = {}
    failed: dict[str, str] = {}
    for info in living(context.backend, prefix):
        try:
            reader = LogReader(context.backend, info)
            point = _named(context, reader, info, now, name, config, names)
            if point is not None:
                points[info.name] = point
        except PerdureError as error:
            failed[info.name] = str(error)
    return CheckpointedAll(from_micros(now), points, failed)


def _named(
    context: Context,
    reader: LogReader,
    info: AgentInfo,
    now: int,
    name: str,
    config: str | None,
    dependencies: Sequence[str],
) -> Checkpoint | None:
    """Names the main branch's head at that moment; returns None if it had none yet.

    A commit may be on its way that is of an earlier time and is not in the log yet. Behind the one
    that names, none is; so there must be nothing between the look and that.
    """
    for tried in chances():
        end = reader.last_seq()
        seq = _head_at(context, reader, info, now)
        if not seq:
            return None
        if reader.is_taken(name):
            raise name_taken(info.name, name)
        try:
            return name_commit(context, reader, name, seq, config, dependencies, log_end=end)
        except Conflict:
            if reader.last_seq() == end or tried == CHANCES_MAX - 1:
                raise
    raise AssertionError("unreachable")


def _head_at(context: Context, reader: LogReader, info: AgentInfo, micros: int) -> int:
    """Returns the seq of the main branch's head at that moment; 0: it had none yet."""
    ref = context.backend.ref(info.no, MAIN)
    if ref is None or ref.deleted:
        return 0
    if reader.peek(ref.seq).at_micros <= micros:
        return ref.seq
    try:
        return reader.at_time(MAIN, from_micros(micros))
    except NotFound:
        return 0
