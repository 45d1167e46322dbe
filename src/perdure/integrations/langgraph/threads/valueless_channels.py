"""Channels without a value in what retention keeps of a thread: does theirs depend on what is
removed?

LangGraph stores a value of a channel of deltas only now and then, in a checkpoint like those around
it. All others are made of the nearest value above, and of the writes since then; if a graph stores
only its end (`durability="exit"`), of that value alone. A channel in which no value stays from step
to step looks the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

from perdure.adapters import ForeignLog
from perdure.core.values.ops import Delete, Set
from perdure.core.values.plain_values import Plain
from perdure.errors import Conflict
from perdure.integrations.langgraph.threads import state_changes
from perdure.integrations.langgraph.threads.state_changes import VALUES, VERSIONS
from perdure.integrations.langgraph.threads.write_records import read_writes
from perdure.integrations.langgraph.values import thread_names
from perdure.integrations.langgraph.values.kinds import is_delta_snapshot
from perdure.model import Commit

PASSING = ("branch:to:", "start:", "__start__", "__pregel_")
"""The beginnings of channels in which LangGraph itself leaves no value between steps. `__root__`,
the channel of a state that is one value, may be one of deltas."""


class Lacking:
    """The channels that checkpoints which stay have no value of, by their namespaces.

    Args:
        passing: channels in which no value stays between steps.
    """

    def __init__(self, thread: str, passing: Collection[str]) -> None:
        self._thread = thread
        self._passing = passing
        self._spaces: defaultdict[str, set[str]] = defaultdict(set)

    def look(self, namespace: str, state: Plain) -> None:
        """Notes the channels of a checkpoint.

        Raises:
            Conflict: it has the value of a channel of deltas.
        """
        if not state_changes.is_state(state):
            return
        proven = [name for name, value in state[VALUES].items() if is_delta_snapshot(value)]
        if proven:  # now and then the latest checkpoint has one; those before it are made of writes
            raise Conflict(
                f"channel {proven[0]!r} is stored as deltas, its values are made of the writes "
                "before",
                target=f"thread {self._thread!r}",
                hint="keep its history",
            )
        for name in state[VERSIONS].keys() - state[VALUES].keys():
            if not name.startswith(PASSING) and name not in self._passing:
                self._spaces[name].add(namespace)

    def refuse_for(self, log: ForeignLog, until: int | None) -> None:
        """Looks for writes to them, and values of them, in a log up to a commit.

        Raises:
            Conflict: there are some.
        """
        if not self._spaces:
            return
        said = log.retained()
        kept = said.bases if said is not None else ()
        for commit in log.commits(1, until):
            space = _space_of(commit)
            channels = {*_channels_in(commit)}
            if commit.seq in kept:  # what came before it is gone, and its value may be from there
                channels |= _valued(log.at(commit.seq).state)
            for channel in channels & self._spaces.keys():
                if space is None or space in self._spaces[channel]:
                    self._refuse(channel)

    def _refuse(self, channel: str) -> None:
        raise Conflict(
            f"channel {channel!r} has no value in a checkpoint that stays, and had writes or values"
            " before: is it one that is stored as deltas, its value is made of all of them",
            target=f"thread {self._thread!r}",
            hint="keep its history; or, if no value of it is to stay from step to step, say so: "
            f"PerdureSaver.trim(…, passing=[{channel!r}])",
        )


def _space_of(commit: Commit) -> str | None:
    """The namespace that a commit tells of; None: it does not say."""
    found = thread_names.read_key(commit.cause.key)
    return None if found is None else thread_names.read_place(found[2])[0]


def _channels_in(commit: Commit) -> Iterator[Any]:
    """Yields the channels that a commit has writes to, or gives a value."""
    for write in read_writes(commit):
        for _, channel, _ in write.writes:
            yield channel
    for op in commit.delta:
        path = op.path
        if not path and type(op) is Set:
            yield from _valued(op.value)
        elif len(path) == 1 and path[0] == VALUES and type(op) is Set:
            yield from op.value
        elif len(path) > 1 and path[0] == VALUES and (len(path) > 2 or type(op) is not Delete):
            yield path[1]


def _valued(state: Plain) -> set[str]:
    return {*state[VALUES]} if state_changes.is_state(state) else set()
