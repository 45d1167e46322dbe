"""A share of `make graphs`: whatever ends a program, its run ends in time."""

from __future__ import annotations

import pytest

from tests.graphs.exits import program, try_program


@pytest.mark.parametrize("seed", [0, 4, 9, 13, 15, 19])
def test_a_run_that_something_ends_is_gone_on_with(seed: int) -> None:
    """`sys.exit()` in a task of a task, a CancelledError that nobody sent: the run was held by a
    store that nobody could close, or was left each time that it was asked for."""
    try_program(seed)


def test_programs_end_in_each_way() -> None:
    ends = {end for seed in range(30) for end in program(seed)[1].values()}
    assert ends == {"SystemExit", "Stop", "KeyboardInterrupt", "CancelledError", "kill"}
