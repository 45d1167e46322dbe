"""The order in which many states of a log are folded: none is made of what was gone over before.

An evaluation went back to each of 400 turns of a conversation and tried another answer. Each state
that was to stay there was folded from the log's begin, and `trim` took fifteen seconds, and four
times as long for twice as many.
"""

from __future__ import annotations

from math import log2

from hypothesis import example, given
from hypothesis import strategies as st

from perdure.state.fold_order import stops


def above(seq: int, origins: dict[int, int]) -> list[int]:
    found = []
    while seq := origins.get(seq, 0):
        found.append(seq)
    return found


trees = st.lists(st.integers(1, 60), max_size=60).map(
    lambda steps: {seq: max(0, seq - step) for seq, step in enumerate(steps, 1)}
)


@given(trees, st.sets(st.integers(1, 60)))
@example({seq: seq - 1 if seq <= 30 else seq - 30 for seq in range(1, 61)}, set(range(31, 61)))
def test_each_state_goes_on_from_the_last_one_on_its_path(
    origins: dict[int, int], wanted: set[int]
) -> None:
    wanted = {seq for seq in wanted if seq in origins}
    done: set[int] = set()
    held = {0}
    for stop in stops(wanted, origins):
        assert stop.seq not in done and stop.wanted is (stop.seq in wanted)
        assert stop.on in held, "it was given up"
        if stop.is_last:
            held.remove(stop.on)
        path = above(stop.seq, origins)
        assert stop.on == next((seq for seq in path if seq in done), 0)
        done.add(stop.seq)
        if stop.goes_on:
            held.add(stop.seq)
        assert len(held - {0}) <= log2(len(wanted)) + 2
    assert wanted <= done and held <= {0}
    gone_over = sum(
        len([seq for seq in above(stop.seq, origins) if seq > stop.on]) + 1
        for stop in stops(wanted, origins)
    )
    assert gone_over == len({seq for one in wanted for seq in [one, *above(one, origins)]})
