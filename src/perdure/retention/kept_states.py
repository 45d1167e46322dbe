"""The states that retention keeps, also where a damaged commit is in the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from perdure.core.format import chain
from perdure.core.values.state_hash import state_hash
from perdure.errors import Corrupt, NotFound
from perdure.state.fold_order import Stop, stops
from perdure.storage.log.reader import Folded, LogReader
from perdure.storage.log.way_back import with_way_back
from perdure.storage.retention import Trim


class NeededStates:
    """The states and payloads that must stay for the states that are needed.

    Args:
        needed: seqs of the states that something reads or builds on.
        origins: as `LogReader.origins`, for those and all before them.
        hashes: of the states folded before, by seq; new ones are added.

    Attributes:
        states: seqs of those that can be folded, and so are kept whole.
        payloads: seqs of the commits from which the other states are made.
    """

    def __init__(
        self,
        reader: LogReader,
        said: Trim | None,
        needed: Iterable[int],
        origins: Mapping[int, int],
        hashes: dict[int, str],
    ) -> None:
        self._reader = reader
        self._said = said
        self._hashes = hashes
        self.states: set[int] = set()
        self.payloads: set[int] = set()
        held = FoldSources()
        for stop in stops(needed, origins):
            known = held.before(stop)
            want = self._want if stop.wanted else self._pass
            held.behind(stop, want(stop.seq, known))

    def _pass(self, seq: int, known: Folded | None) -> Folded | None:
        """Folds a state that only others are made of; they report it themselves if it cannot be
        had."""
        if self._said is not None and not self._said.keeps_state(seq):
            return None
        return self._reader.fold_if_there(seq, known)

    def _want(self, seq: int, known: Folded | None) -> Folded | None:
        """Keeps a needed state, and returns it for the next ones to continue from."""
        gone = self._said is not None and not self._said.keeps_state(seq)
        if seq in self._hashes and not gone:
            self.states.add(seq)
            return known
        try:
            folded = fold_whole(self._reader, seq, known)
        except Corrupt as error:
            self._keep_damaged(seq, error)
            return known
        except NotFound:
            if not gone:
                raise
            return known
        if self._said is not None and self._said.has_removed(seq):
            return known  # it is about to go: nothing needed it when that was said
        self._hashes[seq] = state_hash(folded.state)
        self.states.add(seq)
        return folded

    def _keep_damaged(self, seq: int, error: Corrupt) -> None:
        """Keeps the commits that show the damage, and the way back from there."""
        bad = error.seq or seq
        for commit in self._reader.ancestors(seq, damaged="all"):
            self.payloads.add(commit.seq)
            if commit.seq <= bad:
                break
        self.payloads.add(bad)
        if error.before > 1:
            self._want(error.before, None)

    def keep_way_back(self, damaged: set[int], horizon: int) -> None:
        """Keeps the last states before damaged commits that stay anyway."""
        for seq in sorted(damaged):
            if seq < horizon or seq - 1 in damaged:
                continue
            error = Corrupt("", target=self._reader.target(seq), hint=chain.HINT, seq=seq)
            before = with_way_back(self._reader, error, seq).before
            if 1 < before < horizon:
                self._want(before, None)

    def keep_bases(self, last: int) -> None:
        """Keeps the states with which the history up to a commit begins since an earlier word. It
        stays, and could not be read without them."""
        for seq in self._said.bases if self._said is not None else ():
            if seq <= last:
                self._want(seq, None)


def fold_whole(reader: LogReader, seq: int, known: Folded | None = None) -> Folded:
    """Returns a state folded from the log alone; after a damaged commit, from a snapshot, which may
    be all there is of it."""
    try:
        return reader.fold(seq, snapshots_too=False, known=known)
    except Corrupt:
        with suppress(Corrupt):
            return reader.fold(seq)
        raise


class FoldSources:
    """The states from which others are still to be folded."""

    def __init__(self) -> None:
        self._states: dict[int, Folded | None] = {}

    def before(self, stop: Stop) -> Folded | None:
        if stop.is_last:
            return self._states.pop(stop.on, None)
        return self._states.get(stop.on)

    def behind(self, stop: Stop, folded: Folded | None) -> None:
        if stop.goes_on:
            self._states[stop.seq] = folded


def fold_each(reader: LogReader, seqs: Iterable[int]) -> Iterator[Folded]:
    """Yields the states at some commits, each folded from another where it can be."""
    wanted = {*seqs}
    held = FoldSources()
    for stop in stops(wanted, reader.origins(max(wanted, default=0))):
        known = held.before(stop)
        if stop.wanted:
            folded = fold_whole(reader, stop.seq, known)
            held.behind(stop, folded)
            yield folded
        else:
            held.behind(stop, reader.fold_if_there(stop.seq, known))
