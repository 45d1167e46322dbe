"""`python -m bench.crash [CONTESTANT …]`: kill, start again, look, and print the table.

Exit status 0 whatever is seen: that is news, not an error; 1 where something else went wrong than
what was to go wrong. Linux only.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.crash import card, table
from bench.crash.contestants import CONTESTANTS, Contestant, versions
from bench.crash.trial import Kill, Outcome, Place, Trial
from bench.peers.restate_server import RestateServer, free_port
from bench.report import machine
from bench.workplace import add_places, scratch_root


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    known = {which.name: which for which in CONTESTANTS}
    if unknown := [name for name in options.contestants if name not in known]:
        print(
            f"no such contestant: {', '.join(unknown)}; there are: {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    chosen = [known[name] for name in options.contestants or known]
    missing = {which.name: why for which in chosen if (why := which.missing())}
    present = [which for which in chosen if which.name not in missing]
    root = scratch_root(options.scratch)
    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            trying = {
                which.name: pool.submit(try_all, which, root, options.points) for which in present
            }
    finally:
        shutil.rmtree(root, ignore_errors=True)
    failed = {name: repr(error) for name, tried in trying.items() if (error := tried.exception())}
    found = {name: tried.result() for name, tried in trying.items() if name not in failed}
    missing |= failed
    print(table.markdown(found, missing))
    about = {**machine(options.scratch.resolve()), "versions": versions()}
    table.write_json(options.json, found, missing, about)
    print(f"\nWritten to {options.json}.")
    return 1 if failed else 0


def try_all(which: Contestant, root: Path, points: int) -> list[Outcome]:
    """Every moment; then the writes are counted, and it is killed in place of so many of them."""
    orders = (f"order-{number}" for number in range(1, sys.maxsize))
    folder = Path(tempfile.mkdtemp(prefix=f"{which.name}-", dir=root))

    def tried(kill: Kill) -> Outcome:
        return Trial(place, next(orders)).observe(kill)

    with (
        surroundings(which, folder) as world,
        Place(which, folder, world) as place,
    ):
        outcomes = [tried(Kill(moment)) for moment in card.MOMENTS]
        whole = tried(Kill())
        if whole.seen.charges != 1 or whole.seen.status != card.FINISHED:
            raise AssertionError(f"{which.name} fails unharmed: {whole.seen}")
        kills = spread(len(whole.writes), points)
        outcomes += [whole, *(tried(Kill(write=k)) for k in kills)]
    print(
        f"{which.name}: {len(outcomes)} trials, {len(whole.writes)} writes after the charge",
        file=sys.stderr,
        flush=True,
    )
    return outcomes


def spread(count: int, most: int) -> list[int]:
    """1 to `count`, or at most so many of these, evenly, with the first and the last one.

    >>> spread(10, 4), spread(3, 4), spread(3, 0)
    ([1, 4, 7, 10], [1, 2, 3], [1, 2, 3])
    """
    if count <= most or most == 0:
        return list(range(1, count + 1))
    return [1 + round(number * (count - 1) / max(most - 1, 1)) for number in range(most)]


@contextmanager
def surroundings(which: Contestant, folder: Path) -> Iterator[Mapping[str, str]]:
    """What lives on when the agent's process dies, as environment variables for that."""
    if not which.server:
        yield {}
        return
    with RestateServer(folder) as server:
        yield {
            "CRASH_SERVICE_PORT": str(free_port()),
            "CRASH_RESTATE_INGRESS": f"http://{server.ingress}",
            "CRASH_RESTATE_ADMIN": f"http://{server.admin}",
        }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.crash", description="A card is charged.")
    parser.add_argument("contestants", nargs="*", metavar="CONTESTANT", help="only these")
    parser.add_argument(
        "--points",
        type=int,
        default=12,
        metavar="N",
        help="kill in place of so many writes, evenly chosen; 0: of each (default: %(default)s)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=2,
        metavar="N",
        help="so many contestants at a time (default: %(default)s)",
    )
    add_places(parser, "build/crash.json", "where the outcomes go")
    return parser


if __name__ == "__main__":
    sys.exit(main())
