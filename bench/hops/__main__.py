"""`python -m bench.hops [WORK …] [--show]`: count the calls of Perdure's own that one call makes.

A warm `edit` that appends, and a call of a `@perdure.tool`, each looked at a few times, by
`sys.setprofile`; the look with the fewest calls counts. So the counts come out the same each time:
they measure the house, not the machine, on which now and then a second passes between two calls,
and a look for cancels is due.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import perdure
from bench.workplace import append, messages, open_ticket

SOURCE = f"{Path(perdure.__file__).parent}/"
WARM_UP = 20
"""So many calls before those that are looked at: caches are filled, and no snapshot is due."""
LOOKS = 5


@dataclass
class Hops:
    """The calls of Perdure's functions that one call made on its thread, each with its depth."""

    made: list[tuple[int, str, str]] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """A coroutine or generator that is gone on with counts as called again."""
        return len(self.made)

    @property
    def functions(self) -> int:
        return len({(file, name) for _, file, name in self.made})

    @property
    def files(self) -> int:
        return len({file for _, file, _ in self.made})

    @property
    def returns(self) -> int:
        """How often a call leads from one file into another that was seen before."""
        seen: set[str] = set()
        here, found = "", 0
        for _, file, _ in self.made:
            found += file != here and file in seen
            seen.add(file)
            here = file
        return found

    def tree(self) -> Iterator[str]:
        """A line for each call, set in by how deep it is."""
        least = min((depth for depth, _, _ in self.made), default=0)
        for depth, file, name in self.made:
            yield f"{'  ' * (depth - least)}{name}  {file}"


@contextmanager
def looking() -> Iterator[Hops]:
    """Note the calls of Perdure's functions that this thread makes in the block."""
    found = Hops()

    def note(frame: FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(SOURCE):
            name = file.removeprefix(SOURCE)
            found.made.append((_depth(frame), name, frame.f_code.co_qualname))

    gc.disable()  # what it finds may have finalizers of ours, which belong to no call
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        gc.enable()


def fewest(call: Callable[[], object]) -> Hops:
    """Make the call a few times, and return the look at the one with the fewest calls."""
    looks: list[Hops] = []
    for _ in range(LOOKS):
        with looking() as found:
            call()
        looks.append(found)
    return min(looks, key=lambda look: look.calls)


def _depth(frame: FrameType) -> int:
    found, caller = 0, frame.f_back
    while caller is not None:
        found += caller.f_code.co_filename.startswith(SOURCE)
        caller = caller.f_back
    return found


def edit(store: perdure.Store) -> Hops:
    """`with agent.edit("…") as draft: draft.messages.append(…)`, on a handle in use."""
    agent = open_ticket(store, "edited")
    written = messages(WARM_UP + LOOKS)
    for message in written[:WARM_UP]:
        append(agent, message)
    return fewest(lambda: append(agent, written.pop()))


@perdure.tool(on_crash="fail")
def act(number: int) -> int:
    return number


def tool(store: perdure.Store) -> Hops:
    """A call of a tool in a run: its intent, its outcome, and the commit of both."""
    kept: list[Hops] = []

    @perdure.agent(dict, name="acting")
    def acting(run: perdure.Run[dict[str, Any]]) -> None:
        for number in range(WARM_UP):
            act(number)
        kept.append(fewest(lambda: act(WARM_UP)))

    store.run(acting, "acting")
    return kept[-1]


WORKS: dict[str, Callable[[perdure.Store], Hops]] = {"edit": edit, "tool": tool}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hops", description=__doc__)
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"of {', '.join(WORKS)}")
    parser.add_argument("--show", action="store_true", help="each call, set in by its depth")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.works if name not in WORKS]:
        print(f"no such work: {', '.join(unknown)}; there are: {', '.join(WORKS)}", file=sys.stderr)
        return 2
    print("| one call | calls | functions | files | returns to a file |\n|---|--:|--:|--:|--:|")
    for name in options.works or WORKS:
        with (
            tempfile.TemporaryDirectory() as folder,
            perdure.open(Path(folder) / "store.db", durability="os") as store,
        ):
            found = WORKS[name](store)
        print(f"| {name} | {found.calls} | {found.functions} | {found.files} | {found.returns} |")
        if options.show:
            print(*found.tree(), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
