"""`python -m bench.peers`: the field side by side; see bench/peers/README.md.

Exit status 0 whoever is faster. 2 where nobody but us is set up.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from bench.peers import digest, tables
from bench.peers.beside import FULL, QUICK, Sizes
from bench.peers.contestants import everybody
from bench.peers.field import PARTS, measured
from bench.peers.process import ROOT
from bench.peers.results import Field, read
from bench.workplace import add_places

PICTURES = ROOT / "docs" / "pictures"
DRAWING = ROOT / ".venv-peers-matplotlib" / "bin" / "python"


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.readme or options.table:
        found = read(options.json)
    else:
        known = {one.name: one for one in everybody()}
        if unknown := [name for name in options.only if name not in known]:
            print(
                f"no such contestant: {', '.join(unknown)}; there are: {'; '.join(known)}",
                file=sys.stderr,
            )
            return 2
        chosen = [one for name, one in known.items() if not options.only or name in options.only]
        earlier = read(options.json) if options.part and options.json.exists() else Field()
        earlier.about["quick"] = options.quick
        found = measured(
            chosen,
            _sizes(options),
            options.scratch,
            lambda it: it.write(options.json),
            options.part,
            earlier,
        )
    if options.readme:
        return _publish(found, options.json)
    print(tables.table(found))
    drawn = draw(options.json, options.json.parent / "pictures")
    print(f"\nWritten to {options.json}{', pictures beside it' if drawn else ''}.")
    if found.about["absent"]:
        print(f"Not set up: {', '.join(found.about['absent'])}; `make bench-peers` does it.")
    return 0


def _sizes(options: argparse.Namespace) -> Sizes:
    sizes = QUICK if options.quick else FULL
    return replace(
        sizes, marks=tuple(options.marks or sizes.marks), grow_s=options.grow_s or sizes.grow_s
    )


def draw(source: Path, folder: Path) -> bool:
    """The pictures of those results; False where what draws them is not set up."""
    if not (DRAWING.parents[1] / "stamp").exists():
        return False
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [str(DRAWING), str(ROOT / "bench" / "peers" / "pictures.py"), str(source), str(folder)],
        check=True,
    )
    return True


def _publish(found: Field, source: Path) -> int:
    """The README's table, the page with all figures, and the pictures of both."""
    if not draw(source, PICTURES):
        print("pictures need .venv-peers-matplotlib: `make bench-peers` makes it", file=sys.stderr)
        return 2
    digest.publish(found, ROOT / "README.md")
    tables.publish(found, ROOT / "docs" / "field.md")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: some minutes")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=(), help="only these")
    parser.add_argument(
        "--part",
        nargs="+",
        choices=list(PARTS),
        default=(),
        help="only these; the others stay as they are in the JSON",
    )
    parser.add_argument(
        "--marks",
        nargs="+",
        type=int,
        metavar="N",
        help="lengths of the conversation, instead of the usual ones",
    )
    parser.add_argument(
        "--grow-s",
        type=float,
        metavar="S",
        help="seconds that a contestant has to grow from one length to the next",
    )
    add_places(parser, "build/peers.json", "where the results go, and are read from")
    parser.add_argument("--table", action="store_true", help="measure nothing: print the last run")
    parser.add_argument(
        "--readme",
        action="store_true",
        help="measure nothing: the last run's figures and pictures into README.md and docs/",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
