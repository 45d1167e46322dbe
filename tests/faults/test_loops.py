"""What an exception in a callback of an event loop left behind once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import perdure
from perdure.aio import AsyncStore
from perdure.engine.pacing import Pace
from perdure.engine.standstill import Rest
from perdure.engine.tasks import RunTasks
from perdure.engine.writing import RunWriter
from perdure.state.waiting import _Bell
from tests.faults.checking import State
from tests.faults.injecting import Helper
from tests.faults.run_scenes import add


class CrashError(BaseException):
    """As a death of the process in the middle of a run."""


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (_Bell, "_answer"), (Pace, "_round"), (Rest, "_hand_over"), (RunTasks, "_ended"),
        (RunWriter, "_submit_soon"),
    ],
    ids=["bell", "pace", "rest", "ended", "commit"],
)  # fmt: skip
def test_i8_what_a_callback_lost_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, owner: type, name: str,
    nth: int,
) -> None:  # fmt: skip
    """A time limit's exception came in a callback that the loop had called: it was logged, and the
    run waited for ever for what the callback had not done, or for the commit of a task that it had
    ended."""
    caplog.set_level(logging.CRITICAL + 1, "asyncio")
    calls, real = 0, getattr(owner, name)

    def interrupted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise MemoryError("injected")
        return real(*args)

    crashes = iter([True])

    @perdure.agent(State)
    async def gathering(run: perdure.AsyncRun[State]) -> int:
        found = sum(await asyncio.gather(*(add(n) for n in range(4))))
        if next(crashes, False):
            raise CrashError
        return found + sum(await asyncio.gather(*(add(n) for n in range(4))))

    with perdure.open("memory://") as store:

        async def main() -> Any:
            return await AsyncStore(store).run(gathering, "a")

        with pytest.raises(CrashError):
            asyncio.run(main())
        monkeypatch.setattr(owner, name, interrupted)
        helper, results = Helper(), []
        for _ in range(2):
            try:
                helper.call(lambda: results.append(asyncio.run(main())), 20.0)
            except (MemoryError, perdure.PerdureError) as error:  # it may fail of it, but it ends
                results.append(error)
        assert calls >= nth
        assert results[-1] == 20 or "injected" in str(results[-1]), results
        store.agent("a").verify()
