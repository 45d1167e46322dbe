"""Random bytes are drawn for many commits at once, and nobody gets those of somebody else."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from perdure.core.format.envelope import DRAWN_AT_ONCE, DRAWN_SIZE, random_bytes


def test_nobody_gets_the_same_twice() -> None:
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda _: random_bytes(), range(10 * DRAWN_AT_ONCE)))
    assert len(set(drawn)) == len(drawn)
    assert {len(one) for one in drawn} == {DRAWN_SIZE}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_does_not_get_what_its_parent_has_drawn() -> None:
    """A child had its parent's pool: two commits with one salt, and one id for two payloads."""
    random_bytes()  # so that some are there
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"".join(random_bytes() for _ in range(DRAWN_AT_ONCE)))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        given = pipe.read()
    os.waitpid(child, 0)
    theirs = {given[at : at + DRAWN_SIZE] for at in range(0, len(given), DRAWN_SIZE)}
    assert len(theirs) == DRAWN_AT_ONCE
    assert not theirs & {random_bytes() for _ in range(DRAWN_AT_ONCE)}
