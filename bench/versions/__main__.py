"""`python -m bench.versions REVISION [WORK …]`: this Perdure beside an older one, in turns.

Both do the same works, each in a process of its own, of which one works at a time. The ratio is
new over old: what is above 1 has become dearer. CPU is user and system time of all threads.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import report
from bench.harness import Costs, Samples, interleave_turns, ratio, undisturbed
from bench.peers.process import ROOT, Peer
from bench.report import Figure, Line, Target
from bench.versions.sources import source_of
from bench.versions.works import NAMES
from bench.workplace import add_places, scratch_root

PROGRAM = "bench.versions.works"
NEW, OLD = "new", "old"
DEARER_MAX = 1.03


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if unknown := [name for name in options.works if name not in NAMES]:
        print(f"no such work: {', '.join(unknown)}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    root = scratch_root(options.scratch.resolve())
    try:
        with _both(options, root) as peers:
            lines = {}
            for name in options.works or NAMES:
                print(f"{name} …", file=sys.stderr)
                costs = interleave_turns(
                    {which: peer.turn(name, times=options.times) for which, peer in peers.items()},
                    options.rounds,
                )
                lines[name] = list(_lines(name, costs))
        about = {**report.machine(options.scratch.resolve()), "old": options.revision}
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(report.table(lines))
    report.write_json(options.json, lines, about)
    return 0


@contextmanager
def _both(options: argparse.Namespace, root: Path) -> Iterator[dict[str, Peer]]:
    """The two at work, with their stores on that disk; or schemas, where a server is started."""
    sources = {NEW: ROOT / "src", OLD: source_of(options.revision, root / "old")}
    with ExitStack() as stack:
        urls: dict[str, Sequence[str]] = {NEW: (), OLD: ()}
        if options.postgres:
            from tests.postgres.server import Server  # nothing else here needs one

            server = Server({"fsync": "on", "full_page_writes": "on"}).start()
            stack.callback(server.remove)
            urls = {which: (server.new_url(),) for which in sources}
        yield {
            which: stack.enter_context(_peer(which, source, root, urls[which]))
            for which, source in sources.items()
        }


def _peer(which: str, source: Path, root: Path, url: Sequence[str]) -> Peer:
    folder = root / which
    folder.mkdir(exist_ok=True)
    peer = Peer(
        Path(sys.executable),
        PROGRAM,
        folder,
        *url,
        bytecode=root / f"bytecode-{which}",
        source=source,
    )
    found = Path(peer.hello["perdure"])
    assert found == source / "perdure", f"the {which} one is {found}"
    return peer


def _lines(name: str, costs: dict[str, Costs]) -> Iterator[Line]:
    """The lesser figures are what nothing disturbed; the spread is in thirds of the run."""
    for what in ("cpu", "wall"):
        new, old = _samples(costs[NEW], what), _samples(costs[OLD], what)
        yield Line(
            f"{name}, {what}",
            Figure(new.p10),
            Figure(old.p10, name=OLD),
            ratio(new, old, undisturbed),
            Target(DEARER_MAX) if what == "cpu" else None,
            f"medians: {new.median / old.median:.3f}",
            samples={NEW: new, OLD: old},
        )


def _samples(costs: Costs, what: str) -> Samples:
    return costs.cpu if what == "cpu" else costs.wall


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.versions", description=__doc__)
    parser.add_argument("revision", help="of the old one: what git knows")
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--times", type=int, default=100, help="operations of a turn")
    parser.add_argument("--rounds", type=int, default=30, help="turns of each")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of its own")
    add_places(parser, "build/versions.json")
    return parser


if __name__ == "__main__":
    sys.exit(main())
