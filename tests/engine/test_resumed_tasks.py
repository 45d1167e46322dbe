"""Asynchronous runs that are gone on with, and do several things at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import perdure


class Leaving(BaseException):
    """Ends an execution, as `SystemExit` would."""


left: set[str] = set()


@perdure.step
async def look(n: int) -> int:
    return n


@perdure.agent(dict)
async def both(run: perdure.AsyncRun[dict[str, Any]]) -> str:
    if run.agent not in left:
        left.add(run.agent)
        raise Leaving

    async def note() -> None:
        async with run.edit("noted") as draft:
            draft["noted"] = True

    await asyncio.gather(look(1), note(), look(2))
    return "ok"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_i8_a_run_that_is_gone_on_with_edits_beside_its_steps(kind: str, tmp_path: Path) -> None:
    """A run was ended at its function's first line. The next execution had no state in memory yet
    when a step's commit was under way; a task opened its edit meanwhile, took that for something
    that was left in the middle, and read the head as it was before. Its commit was a `Conflict`
    with the run's own step, in every second try, and tools beside it were in doubt."""
    left.clear()

    async def go() -> None:
        url = "memory://" if kind == "memory" else tmp_path / "agents.db"
        async with perdure.open_async(url) as store:
            for number in range(25):
                name = f"a-{number}"
                async with (await store.agent(name)).edit("begun") as draft:
                    draft["begun"] = True
                with pytest.raises(Leaving):
                    await store.run(both, name)
                assert await store.run(both, name) == "ok"
                agent = await store.agent(name)
                assert agent.state == {"begun": True, "noted": True}
                await agent.verify()

    asyncio.run(go())
