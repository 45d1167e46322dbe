"""`run_until_waiting`, where there is nothing to execute any more."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure.testing import run_until_waiting


@perdure.agent(dict)
def wait(run: perdure.Run[dict]) -> Any:
    return run.wait_for("go")


@perdure.agent(dict)
async def wait_async(run: perdure.AsyncRun[dict]) -> Any:
    return await run.wait_for("go")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("function", [wait, wait_async])
def test_a_run_that_was_cancelled_before_it_began_says_so(function: Any, known: bool) -> None:
    """An error of the library's inside came out, without a word; the second call said what it
    was."""
    with perdure.open("memory://") as store:
        if known:
            store.agent("a").update(lambda draft: draft.update(x=1))
        store.start(function, "a").cancel("no")
        for _ in range(2):
            with pytest.raises(perdure.RunFailed, match="was cancelled: no"):
                run_until_waiting(store, function, "a")
