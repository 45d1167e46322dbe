"""`python -m bench.profile [--quick] [--write]`: measure, look, and print the tables.

Each work is done twice, ours and the straight line in turns: once undisturbed, for how long an
operation takes, and once under py-spy, for where that time goes. `make profile` sets py-spy up.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.profile.sampling import PY_SPY, Shares, run, shares
from bench.profile.work import OURS
from bench.report import readable
from bench.rows.straight import STRAIGHT
from bench.workplace import scratch_root

COUNTS = {"commit": 6000, "step": 6000, "rehydration": 40}
QUICK = {"commit": 600, "step": 600, "rehydration": 4}
PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
BEGIN, END = "<!-- by `make profile` -->\n", "<!-- until here -->\n"
LEAST = 0.005
"""Rooms with less of our time than this are not shown by themselves."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few operations")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    options = parser.parse_args(arguments)
    if not PY_SPY.exists():
        print("py-spy is not set up here: `make profile` does it", file=sys.stderr)
        return 2
    root = scratch_root(Path("build"))
    try:
        text = "\n".join(
            _look(name, count, root) for name, count in (QUICK if options.quick else COUNTS).items()
        )
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(text)
    if options.write:
        page = PAGE.read_text("utf-8")
        pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
        PAGE.write_text(pattern.sub(lambda _: f"{BEGIN}\n{text}\n{END}", page), "utf-8")
    return 0


def _look(name: str, count: int, root: Path) -> str:
    seconds = run(name, root / f"{name}-alone", count)
    return table(name, seconds, shares(name, root / f"{name}-seen", count))


def table(name: str, seconds: Mapping[str, float], found: Shares) -> str:
    """A Markdown table: the rooms of ours by their size, with the straight line's beside."""
    ours, least = found[OURS], found[STRAIGHT]
    rooms = sorted({*ours, *least}, key=lambda room: -ours.get(room, 0.0))
    rows = [f"| {name} | ours | | straight line |", "| --- | --- | --- | --- |"]
    few, few_straight = 0.0, 0.0
    for room in rooms:
        share, theirs = ours.get(room, 0.0), least.get(room, 0.0)
        if max(share, theirs) < LEAST:
            few, few_straight = few + share, few_straight + theirs
            continue
        rows.append(_row(room, share, theirs, seconds))
    if few:
        rows.append(_row("parts of less than half a percent each", few, few_straight, seconds))
    rows.append(_row("**all**", sum(ours.values()), sum(least.values()), seconds))
    return "\n".join(rows) + "\n"


def _row(room: str, share: float, theirs: float, seconds: Mapping[str, float]) -> str:
    mine = readable(share * seconds[OURS], "s")
    straight = readable(theirs * seconds[STRAIGHT], "s") if theirs else ""
    return f"| {room} | {mine} | {share:.0%} | {straight} |"


if __name__ == "__main__":
    sys.exit(main())
