"""A flag is True or False.

`log(newest_first=[])` and a number whose truth changes with each look are flags, too, to whoever
asks `if flag`: one such made a walk turn round half way, and call a sound log Corrupt.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rubbish.calls import Caller
from tests.rubbish.world import World, new_memory


def _flags(caller: Caller) -> list[tuple[str, str]]:
    return [
        (target, param.name)
        for target, params in caller.targets()
        for param in params
        if str(param.annotation).removesuffix(" | None") == "bool"
        # Whose callers are our own, and whose arguments are LangGraph's.
        and not target.startswith(
            ("Port.", "Memory.get", "Memory.aget", "Memory.search", "Memory.asearch")
        )
    ]


@pytest.fixture
def caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Caller]:
    monkeypatch.chdir(tmp_path)
    loop = asyncio.new_event_loop()
    yield Caller(loop)
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.mark.parametrize("wrong", [1, "yes", [], None])
def test_every_flag_is_true_or_false_and_nothing_else(caller: Caller, wrong: Any) -> None:
    taken = []
    every = _flags(caller)
    assert len(every) > 30
    world = World(new_memory())
    for target, name in every:
        if (target, name, wrong) == ("Saver.__init__", "strict", None):
            continue  # as LangGraph's environment says
        caller.prepare(world, target)
        try:
            caller.call(world, target, {name: wrong})
        except Exception as error:
            if type(error) is TypeError and f"{name}= must be True or False, not " in str(error):
                continue
            taken.append(f"{target}({name}=): {error!r}")
        else:
            taken.append(f"{target}({name}=)")
    world.close()
    assert taken == []
