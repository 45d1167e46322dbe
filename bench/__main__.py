"""`python -m bench [ROW …]`: measure, print the table, and write it as JSON.

Exit status 0 also where a target is missed: on another machine that is news, not an error.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from time import perf_counter

from bench import report
from bench.registry import Row, rows
from bench.report import Line
from bench.workplace import FULL, QUICK, Workplace, add_places, scratch_root


def main(arguments: list[str] | None = None) -> int:
    known = rows()
    options = _parser().parse_args(arguments)
    if options.list:
        for row in known.values():
            print(f"{row.name:16} {row.about}")
        return 0
    if unknown := [name for name in options.rows if name not in known]:
        print(f"no such row: {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = [
        row
        for name, row in known.items()
        if name in options.rows or (not options.rows and (options.quick or not row.long))
    ]
    root = scratch_root(options.scratch)
    try:
        workplace = Workplace(QUICK if options.quick else FULL, root, options.keep)
        lines = _measure(chosen, workplace)
        about = {**report.machine(options.scratch.resolve()), "quick": options.quick}
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(report.table(lines))
    report.write_json(options.json, lines, about)
    print(f"\nWritten to {options.json}. Absolute figures are this machine's; compare ratios.")
    return 0


def _measure(chosen: list[Row], workplace: Workplace) -> dict[str, list[Line]]:
    lines: dict[str, list[Line]] = {}
    for row in chosen:
        print(f"{row.name} …", end=" ", flush=True, file=sys.stderr)
        start = perf_counter()
        lines[row.name] = list(row.measure(workplace))
        print(f"{perf_counter() - start:.0f} s", file=sys.stderr)
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks of Perdure.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="only these rows (see --list)")
    parser.add_argument("--list", action="store_true", help="say what the rows are")
    parser.add_argument("--quick", action="store_true", help="small sizes: less than a minute")
    add_places(parser, "build/bench.json")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="where stores that take long to fill are kept, and found again",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
