"""The commits of each branch of a log, as far back as anybody asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import inf

from perdure.adapters import ForeignLog


class Branches:
    """One walk over the log, up to a commit (`until`; None: to its end), for all branches: a graph
    makes one for each call of a subgraph."""

    def __init__(self, log: ForeignLog, until: int | None) -> None:
        self._until = inf if until is None else until
        self._commits = log.commits(1, until, newest_first=True, damaged_too=True)
        self._seqs: defaultdict[str, list[int]] = defaultdict(list)

    def reaches(self, until: int | None) -> bool:
        return self._until >= (inf if until is None else until)

    def of(self, branch: str, until: int | None) -> Iterator[int]:
        """The commits of one, newest first, up to a commit."""
        seqs, index = self._seqs[branch], 0
        while True:
            while index < len(seqs):
                if until is None or seqs[index] <= until:
                    yield seqs[index]
                index += 1
            commit = next(self._commits, None)
            if commit is None:
                return
            self._seqs[commit.branch].append(commit.seq)
