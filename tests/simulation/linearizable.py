"""Whether a history of calls that overlapped could have come about one call at a time.

The search is that of Wing and Gong ("Testing and verifying concurrent objects", 1993), with the
memory of Lowe ("Testing for linearizability", 2017): try each call that may have come next, go on,
and go back where none fits; a set of calls that led to the same state before is not tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from tests.simulation.logs import UNKNOWN, Call

S = TypeVar("S", bound=Hashable)

TRIES_MAX = 2_000_000
FOR_EVER = 2**62


class Verdict(Struct, frozen=True):
    """Attributes:
    fits: whether it is linearizable.
    order: numbers of calls in an order that explains it, or the longest that explains a part.
    stuck: where no order explains all: the call that ended first of those that fit nowhere.
    """

    fits: bool
    order: tuple[int, ...]
    stuck: Call | None = None


def check(
    history: Sequence[Call], initial: S, step: Callable[[S, Any, Any], Iterable[S]]
) -> Verdict:
    """Look for an order of the calls that keeps to time and to the model.

    A call whose answer is unknown may take effect at any time after it began, or never.

    Args:
        step: the states after a call with an answer; none: it is no answer to that call there.

    Raises:
        RuntimeError: the search takes too long to tell.
    """
    calls = sorted(history, key=lambda call: (call.began, call.ended))
    ends = [FOR_EVER if call.answer == UNKNOWN else call.ended for call in calls]
    needed = sum(1 << no for no, end in enumerate(ends) if end < FOR_EVER)
    tried: set[tuple[int, S]] = set()
    longest: list[int] = []
    path: list[int] = []
    # Depth first, without recursion: histories are long.
    stack = [_choices(calls, ends, 0, 0, initial, step)]
    steps = 0
    if not needed:
        return Verdict(True, ())
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
            if path:
                path.pop()
            continue
        no, done, first, state = found
        steps += 1
        if steps > TRIES_MAX:
            raise RuntimeError(f"cannot tell after {steps} steps")
        if (done, state) in tried:
            continue
        tried.add((done, state))
        path.append(no)
        if len(path) > len(longest):
            longest = list(path)
        if done & needed == needed:
            return Verdict(True, tuple(path))
        stack.append(_choices(calls, ends, done, first, state, step))
    left = [no for no in range(len(calls)) if no not in set(longest) and ends[no] < FOR_EVER]
    stuck = min(left, key=lambda no: ends[no])
    return Verdict(False, tuple(longest), calls[stuck])


def _choices(
    calls: Sequence[Call],
    ends: Sequence[int],
    done: int,
    first: int,
    state: S,
    step: Callable[[S, Any, Any], Iterable[S]],
) -> Any:
    """The calls that may come next: those that began before any that is left has ended."""
    while first < len(calls) and done >> first & 1:
        first += 1
    horizon = FOR_EVER
    for no in range(first, len(calls)):
        if calls[no].began > horizon:
            break
        if done >> no & 1:
            continue
        horizon = min(horizon, ends[no])
    for no in range(first, len(calls)):
        call = calls[no]
        if call.began > horizon:
            break
        if done >> no & 1:
            continue
        for after in step(state, call.asked, call.answer):
            if call.answer == UNKNOWN and after == state:
                continue  # as if it never took effect: then it need not be here
            yield no, done | 1 << no, first, after
