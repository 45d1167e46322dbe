"""Pauses between the tries of a writer that loses to others.

The winner of a race for a head goes on at once, from the commit that it just made; a loser has to
read first, and while it reads the winner wins again. A loser that tries again at once may lose as
long as the winner goes on: one of eight threads lost a hundred times in a row until the seven
others had made all their commits. Therefore each loss is followed by a pause, random and longer
each time, in which the others finish or pause themselves.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

CHANCES_MAX = 100
"""The number of tries of a write, by default."""

DOUBLINGS_MAX = 6
PAUSE_MAX_S = 0.5


def pauses(most: int = CHANCES_MAX) -> Iterator[float]:
    """Yields the pause in seconds before each of at most `most` tries; none before the first.

    A pause is a multiple of the time of the try before it, so that it fits a slow line as well as
    memory: up to twice that at first, up to 64 times in the end, at most half a second.
    """
    pause = 0.0
    for lost in range(1, most):
        began = time.monotonic()
        yield pause
        took = max(time.monotonic() - began - pause, 0.0)
        pause = random.uniform(0, min(took * 2 ** min(lost, DOUBLINGS_MAX), PAUSE_MAX_S))
    yield pause


def chances(most: int = CHANCES_MAX) -> Iterator[int]:
    """Yields the numbers of at most `most` tries, from 0, after their pauses: for a loop that
    blocks."""
    for number, pause in enumerate(pauses(most)):
        if pause:
            time.sleep(pause)
        yield number
