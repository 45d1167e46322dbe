"""The findings of a check of a log, one by one, and the states that cannot be had because of
them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from perdure.errors import Corrupt
from perdure.storage.log.reader import LogReader
from perdure.storage.log.way_back import with_way_back

TOLD_MAX = 20
"""Damages, and runs of commits, that are told in one error; `Corrupt.damages` has all."""


class Findings:
    """Collects what is wrong with a log. `lost`: seqs of commits whose state the log does not
    give."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self.lost: set[int] = set()
        self._first: Corrupt | None = None
        self._told: dict[str, bool] = {}

    def note(self, error: Corrupt, *, beside: bool = False) -> None:
        """Notes a finding.

        Args:
            beside: True if it is about what stands beside the log; see `Corrupt.beside`.
        """
        self._first = self._first or error
        told = f"{error.target}: {error.problem}" if error.target else error.problem
        self._told[told] = self._told.get(told, False) or beside

    @contextmanager
    def noting(self, *, beside: bool = False) -> Iterator[None]:
        """Notes a Corrupt that the block raises, so that the check goes on."""
        try:
            yield
        except Corrupt as error:
            self.note(error, beside=beside)

    def conclude(self) -> None:
        """Raises Corrupt if there are findings; it lists all of them, and the way back."""
        first = self._first
        if first is None:
            return
        damages = tuple(self._told)
        told = with_way_back(self._reader, first, first.seq) if first.seq else first
        hints = [told.hint]
        if len(damages) > 1:
            more = [f"\n      {one}" for one in damages[1:TOLD_MAX]]
            left = f"\n      … and {len(damages) - TOLD_MAX} more" * (len(damages) > TOLD_MAX)
            hints.insert(0, "these do not hold either:" + "".join(more) + left)
        if self.lost:
            hints.insert(0, f"the states of commits {ranges(self.lost)} cannot be read")
        error = Corrupt(
            first.problem,
            target=first.target,
            hint="\n  → ".join(filter(None, hints)),
            seq=first.seq,
            before=told.before,
        )
        error.damages = damages
        error.beside = tuple(told for told, beside in self._told.items() if beside)
        raise error from first


def ranges(seqs: set[int]) -> str:
    """Returns numbers as people write them: 3–9, 12."""
    found: list[list[int]] = []
    for seq in sorted(seqs):
        if found and seq == found[-1][1] + 1:
            found[-1][1] = seq
        else:
            found.append([seq, seq])
    said = [f"{a}" if a == b else f"{a}–{b}" for a, b in found[:TOLD_MAX]]
    return ", ".join(said) + (" …" if len(found) > TOLD_MAX else "")
