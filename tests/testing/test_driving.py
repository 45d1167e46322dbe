"""`run_until_waiting`, where there is nothing to execute any more."""

from __future__ import annotations

import signal
from typing import Any

import pytest

import perdure
from perdure.testing import play, run_until_waiting


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


class WordlessError(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("it cannot be shown")

    __repr__ = __str__


@perdure.agent(dict)
async def fails(run: perdure.AsyncRun[dict]) -> None:
    raise WordlessError


@pytest.mark.parametrize("call", [play, lambda function: run_in_memory(function)])
def test_an_error_that_cannot_be_shown_leaves_ctrl_c_as_it_was(call: Any) -> None:
    """asyncio left its own handler of Ctrl-C behind, of a loop that was closed: whoever asked for
    the handler from then on got that error, `asyncio.run` among them."""
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises((WordlessError, RuntimeError)):
        call(fails)
    assert signal.getsignal(signal.SIGINT) is handler


def run_in_memory(function: Any) -> None:
    with perdure.open("memory://") as store:
        run_until_waiting(store, function, "a")
