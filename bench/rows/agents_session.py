"""A conversation of the OpenAI Agents SDK that is opened and read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.fresh import fresh
from bench.harness import Samples, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.workplace import TEXT_SIZE, Workplace

OFFICIAL = "SQLiteSession"
NAMES = ("ours", OFFICIAL)
SESSION = "c"
SAID_AT_ONCE = 2


@row("agents-session")
def session(workplace: Workplace) -> Iterator[Line]:
    """`PerdureSession` over the SDK's `SQLiteSession`: opened anew, and read.

    In a process that has imported both: opening the file, all items, or the last ten; in turns.
    And as the first thing in a process that has imported the one it uses.
    """
    for size in workplace.sizes.langgraph_turn_messages:
        paths = _seeds(workplace.folder(), size)
        for limit in (None, 10):
            taken = {name: Samples() for name in NAMES}
            for number in range(4 * workplace.sizes.cold_starts + 1):
                for name in NAMES:
                    seconds = asyncio.run(_look(name, paths[name], limit))
                    if number:  # the first one warms up
                        taken[name].values.append(seconds)
            what = "all" if limit is None else f"the last {limit}"
            yield _line(f"open, and read {what} of {size:,} items", taken)
        first = {name: Samples() for name in NAMES}
        for _ in range(workplace.sizes.cold_starts):
            for name in NAMES:
                task = "session" if name == "ours" else "their-session"
                answer = fresh(task, str(paths[name]), workplace.bytecode)
                assert answer["items"] == size
                first[name].values.append(float(str(answer["s"])))
        yield _line(f"the same of all {size:,}, first in a process", first)


def _line(what: str, samples: dict[str, Samples]) -> Line:
    mine, theirs = samples["ours"], samples[OFFICIAL]
    return Line(
        f"OpenAI Agents: {what}, median",
        Figure(mine.median),
        Figure(theirs.median, name=OFFICIAL),
        ratio(mine, theirs),
        Target(1.0),
        samples=samples,
    )


def _opened(name: str, path: Path) -> Any:
    if name == "ours":
        from perdure.integrations.openai_agents import PerdureSession

        return PerdureSession(SESSION, str(path))
    from agents import SQLiteSession

    return SQLiteSession(SESSION, str(path))


async def _close(name: str, opened: Any) -> None:
    if name == "ours":
        await opened.close()
    else:
        opened.close()


async def _look(name: str, path: Path, limit: int | None) -> float:
    start = perf_counter()
    opened = _opened(name, path)
    await opened.get_items(limit)
    seconds = perf_counter() - start
    await _close(name, opened)
    return seconds


def _seeds(folder: Path, size: int) -> dict[str, Path]:
    paths = {"ours": folder / "ours.db", OFFICIAL: folder / "theirs.db"}

    async def say(name: str) -> None:
        opened = _opened(name, paths[name])
        for first in range(0, size, SAID_AT_ONCE):
            items = [
                {
                    "role": "user" if number % 2 else "assistant",
                    "content": f"{number} ".ljust(TEXT_SIZE, "x"),
                }
                for number in range(first, min(first + SAID_AT_ONCE, size))
            ]
            await opened.add_items(items)
        await _close(name, opened)

    for name in NAMES:
        asyncio.run(say(name))
    return paths
