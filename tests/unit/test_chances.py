"""The chances of a writer that others are faster than."""

from __future__ import annotations

import time
from itertools import islice

import pytest

from perdure.system.backoff import CHANCES_MAX, DOUBLINGS_MAX, PAUSE_MAX_S, chances, pauses


@pytest.fixture
def clock(monkeypatch):
    """A clock that only sleeping and trying move; and pauses as long as they may be."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("perdure.system.backoff.time.monotonic", lambda: now[0])
    monkeypatch.setattr("perdure.system.backoff.time.sleep", sleep)
    monkeypatch.setattr("perdure.system.backoff.random.uniform", lambda low, high: high)
    return sleep


def test_the_first_try_is_made_at_once_and_there_are_so_many(clock):
    assert list(chances()) == list(range(CHANCES_MAX))
    assert next(pauses()) == 0
    assert list(pauses(1)) == [0] and list(chances(3)) == [0, 1, 2]


def test_pauses_grow_with_the_losses_and_with_what_a_try_takes(clock):
    """One of eight threads lost a hundred times in a row to the seven others, on a slow machine:
    it tried again at once, and each time who had just won was done sooner than its look."""
    for takes in (0.0001, 0.001):
        seen = []
        for pause in islice(pauses(), 9):
            seen.append(pause)
            clock(pause + takes)
        assert seen == pytest.approx(
            [0, *[takes * 2**n for n in range(1, 7)], takes * 64, takes * 64]
        )


def test_a_pause_is_never_longer_than_half_a_second(clock):
    longest = 0.0
    for pause in pauses():
        longest = max(longest, pause)
        clock(pause + 10)
    assert longest == PAUSE_MAX_S


def test_pauses_are_random(monkeypatch):
    def lost() -> list[float]:
        found = []
        for pause in islice(pauses(), DOUBLINGS_MAX):
            found.append(pause)
            time.sleep(pause + 0.001)
        return found[1:]

    assert len({*lost(), *lost()}) > DOUBLINGS_MAX
