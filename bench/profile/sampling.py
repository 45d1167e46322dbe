"""Samples of a running program, by py-spy, from outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from bench.profile.rooms import ROOT, Frame, room_of
from bench.profile.work import OURS
from bench.rows.straight import STRAIGHT

PY_SPY = ROOT / ".venv-peers-profile" / "bin" / "py-spy"
RATE_HZ = 500
_FRAME = re.compile(r"(?P<function>.*) \((?P<file>.*):(?P<line>\d+)\)")

_MARKS = {
    "commit": {"append (bench/workplace": OURS, "commit (bench/rows/straight": STRAIGHT},
    "step": {"_step (bench/profile": OURS, "step (bench/rows/straight": STRAIGHT},
    "rehydration": {"_ours (bench/fresh": OURS, "_straight (bench/fresh": STRAIGHT},
}
"""How the outermost frame begins of what each contestant does, by the work."""

Shares = Mapping[str, Mapping[str, float]]
"""Of the time of an operation, by contestant and room; each contestant's add up to 1."""


def run(name: str, folder: Path, count: int, under: Sequence[str] = ()) -> Mapping[str, float]:
    """Do the work in a process of its own; seconds per operation of each contestant."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-m", "bench.profile.work", name, str(folder), str(count)]
    # py-spy's own exit status says nothing: sometimes it misses the end of what it looked at.
    ran = subprocess.run(
        [*under, *command], env=environment, stdout=subprocess.PIPE, text=True, check=not under
    )
    said = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    if len(said) != 1:
        raise RuntimeError(f"{' '.join(command)} ended without an answer")
    means: dict[str, float] = json.loads(said[0])
    return means


def shares(name: str, folder: Path, count: int) -> Shares:
    """Do it once more, looked at."""
    raw = folder.with_suffix(".samples")
    spy = [
        str(PY_SPY),
        "record",
        "--idle",
        "--rate",
        str(RATE_HZ),
        "--format",
        "raw",
        "--output",
        str(raw),
        "--",
    ]
    run(name, folder, count, spy)
    counted: dict[str, Counter[str]] = {OURS: Counter(), STRAIGHT: Counter()}
    for stack, number in _stacks(raw.read_text()):
        for who, mine in _cut(stack, _MARKS[name]):
            counted[who][room_of(mine)] += number
    return {
        who: {room: number / rooms.total() for room, number in rooms.items()}
        for who, rooms in counted.items()
    }


def _stacks(text: str) -> Iterator[tuple[Sequence[str], int]]:
    for line in text.splitlines():
        stack, _, number = line.rpartition(" ")
        yield stack.split(";"), int(number)


def _cut(stack: Sequence[str], marks: Mapping[str, str]) -> Iterator[tuple[str, Sequence[Frame]]]:
    """Whose sample it is, and its frames from there inwards; nothing where it is nobody's."""
    for depth, words in enumerate(stack):
        for mark, who in marks.items():
            if words.startswith(mark):
                yield who, [_frame(one) for one in stack[depth:]]
                return


@cache
def _frame(words: str) -> Frame:
    found = _FRAME.fullmatch(words)
    if found is None:
        return Frame(words, "", 0)
    return Frame(found["function"], found["file"], int(found["line"]))
