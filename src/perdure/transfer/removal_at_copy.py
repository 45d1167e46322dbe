"""Removal at a copy of all that retention, or a purge, removed at its source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.errors import PerdureError, StoreUnavailable
from perdure.model import AgentInfo
from perdure.retention.purging import incarnations, is_needed, sweep
from perdure.retention.trimming import carry_out
from perdure.storage.capabilities import Backend
from perdure.storage.log.reader import LogReader
from perdure.storage.port import Fed
from perdure.system import logs

_log = logs.logger("perdure.replication")


class RemovalAtCopy:
    """Removes at the target what is gone at the source. Not safe between threads.

    Args:
        source: if it is lost, the target itself: nobody else is to be asked.
        restores: the target becomes the source as of a moment.

    Attributes:
        untidy: names of agents with a word of retention that may not be carried out yet.
        left: True if something is here that the source has removed, and that may go in a moment.
    """

    def __init__(self, source: Backend, target: Backend, *, restores: bool) -> None:
        self._source, self._target = source, target
        self._restores = restores
        self.untidy: set[str] = set()
        self.left = False

    def purge(self) -> None:
        """Purges what was deleted to be purged, or is purged, at the source."""
        self.left = True
        try:
            kept = sweep(self._target, may_go=self._may_go).kept
            self.left = any(map(self._is_purged, kept))
        except PerdureError as error:  # it stays to be purged
            _log.warning("cannot purge in %s: %s", self._target.url, error)

    def _may_go(self, info: AgentInfo) -> bool:
        """True if the source has purged an agent, or could: a copy that reads its log may be yet to
        come here, or is set aside. In a store that is restored, one may live that is deleted
        since."""
        there = self._source.agent(info.name, info.incarnation)
        if there is None or there.purged:
            return there is not None
        return there.deleted and not self._restores and not is_needed(self._source, there)

    def _is_purged(self, info: AgentInfo) -> bool:
        there = self._source.agent(info.name, info.incarnation)
        return there is not None and there.purged

    def missed(self, agent: str) -> Iterator[Fed]:
        """Yields the last commits of an agent's logs that the source has purged, and the target has
        not: while an agent is set aside, nothing of it is read."""
        for there in incarnations(self._target, agent):
            here = self._source.agent(agent, there.incarnation)
            if here is not None and here.purged and there.deleted and not there.purged:
                for row in self._source.read(here.no, here.seq, here.seq):
                    yield Fed(here.no, agent, here.incarnation, row)

    def trim(self, agents: Iterable[str]) -> None:
        """Removes what retention removed at the source. In a store that is restored, the word of
        retention that counts is yet to come."""
        for agent in sorted(agents) if not self._restores else ():
            try:
                latest = self._target.agent(agent)
                for incarnation in range(1, latest.incarnation + 1 if latest is not None else 1):
                    info = self._target.agent(agent, incarnation)
                    if info is not None and not info.purged:
                        carry_out(self._target, LogReader(self._target, info))
                self.untidy.discard(agent)
            except PerdureError as error:  # it stays, until it is tried again
                self.left = self.left or isinstance(error, StoreUnavailable)
                _log.warning("cannot carry out retention in %s: %s", self._target.url, error)
