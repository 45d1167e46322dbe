"""In which order to fold many states of one log, so that no commit is gone over for each of them.

Of two that have a commit in common, both go on from the last such one, where their paths part. At
each parting the path with most behind it comes last, and takes over the state there. So of n states
no more than some log n are held at once, whatever branches off where.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct


class Stop(Struct, frozen=True):
    """A commit whose state is to be folded.

    Attributes:
        on: the one that came before it, and that it goes on from; 0: from the beginning.
        wanted: else it is a parting only.
        is_last: whether nothing that is still to come goes on from `on`.
        goes_on: whether something goes on from it.
    """

    seq: int
    on: int
    wanted: bool
    is_last: bool
    goes_on: bool


def stops(wanted: Iterable[int], origins: Mapping[int, int]) -> Iterator[Stop]:
    """All wanted states and the partings between them, each behind the one that it goes on from.

    Args:
        origins: of each commit the one before it on its path, which is older; 0: there is none.
    """
    wanted = {*wanted}
    following: defaultdict[int, int] = defaultdict(int)
    path: set[int] = set()
    for seq in wanted:
        while seq and seq not in path:
            path.add(seq)
            seq = origins.get(seq, 0)
            following[seq] += 1
    behind = _behind(path, wanted, following, origins)
    todo = [iter(_first_small(behind, 0))]
    while todo:
        stop = next(todo[-1], None)
        if stop is None:
            todo.pop()
            continue
        seq, on, is_last = stop
        yield Stop(seq, on, seq in wanted, is_last, seq in behind)
        if seq in behind:
            todo.append(iter(_first_small(behind, seq)))


Behind = dict[int, list[tuple[int, int]]]
"""By a stop, or 0, those that go on from it: how many stops there are from each on, and its seq."""


def _behind(
    path: set[int], wanted: set[int], following: Mapping[int, int], origins: Mapping[int, int]
) -> Behind:
    """`following`: of each commit of the path, how many of it come right behind it."""
    behind: Behind = {}
    first: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for seq in sorted(path, reverse=True):  # each before those that it is behind
        found = first.pop(seq, [])
        if seq in wanted or following[seq] > 1:
            if found:
                behind[seq] = found
            found = [(1 + sum(count for count, _ in found), seq)]
        first[origins.get(seq, 0)] += found
    behind[0] = first.pop(0, [])
    return behind


def _first_small(behind: Behind, on: int) -> list[tuple[int, int, bool]]:
    found = [seq for _, seq in sorted(behind[on])]
    return [(seq, on, seq == found[-1]) for seq in found]
