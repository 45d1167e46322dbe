"""The order in which many states of one log are folded, so that no commit is folded twice.

Two states with a common commit both start from the last such one, where their paths part. At each
parting the path with most behind it comes last, and takes over the state there. So of n states at
most about log n are held at once, whatever the branches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct


class Stop(Struct, frozen=True):
    """A commit whose state is to be folded.

    Attributes:
        on: the stop that its fold starts from; 0: the beginning.
        wanted: False if it is only a parting.
        is_last: True if no later stop starts from `on`.
        goes_on: True if another stop starts from it.
    """

    seq: int
    on: int
    wanted: bool
    is_last: bool
    goes_on: bool


def stops(wanted: Iterable[int], origins: Mapping[int, int]) -> Iterator[Stop]:
    """Yields all wanted states and the partings between them, each after the one that it starts
    from.

    Args:
        origins: by commit, the one before it on its path, which is older; 0: there is none.
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
    """Returns the stops right behind each stop. `following`: by commit, the number of commits of
    the path right behind it."""
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
