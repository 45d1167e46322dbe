"""A share of `make faults`: an exception between any two instructions leaves nothing wrong."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.__main__ import by_chance, go_through, urls
from tests.faults.running import runner
from tests.faults.scenes import SCENES

EACH = {"memory": 2, "sqlite": 2}

IN_ONE_THREAD = [name for name in SCENES if "async" not in name and "gather" not in name]
"""Those that come to the same instructions each time."""


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("kind", EACH)
def test_an_exception_anywhere_leaves_nothing_wrong(kind: str, tmp_path: Path) -> None:
    """Commits were put in twice, stores hung, transactions stayed open, runs waited for a commit
    that nobody was making. (A coroutine that a scene has made and that the exception keeps from a
    task is named by Python as never awaited: so it is.)"""
    rng = random.Random(1)  # the same each time: `make faults` looks further
    with runner(urls(kind, str(tmp_path))) as one:
        found = {
            name: go_through(one, kind, name, by_chance(one, name, EACH[kind], rng))[0]
            for name in IN_ONE_THREAD
        }
    assert not any(found.values()), found
