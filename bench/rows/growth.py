"""What each public call costs at a history, at one of ten times the length, and of a hundred."""

from __future__ import annotations

from collections.abc import Iterator

from bench.growth.places import SqlitePlaces
from bench.growth.postgres import SETTINGS, PostgresPlaces
from bench.growth.table import Grown, every
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.workplace import Workplace
from tests.postgres.server import Server


@row("growth", long=True)
def growth(workplace: Workplace) -> Iterator[Line]:
    """What each public call takes as the history behind it grows: how many times the lines of the
    library, or the steps of SQLite, whichever grew more, from the shortest to the longest.

    Counted, so that it is the same on every machine; the times beside that are of one call. What
    grows is in brackets: see `bench/growth/places.py`. Snapshots every ten commits, as what lies
    behind the last one is bounded anyhow; durability "os".
    """
    places = SqlitePlaces(workplace.folder())
    lengths = workplace.sizes.growth_lengths
    for grown in every(lengths, places):
        yield _line(grown)


@row("growth-postgres", long=True)
def growth_postgres(workplace: Workplace) -> Iterator[Line]:
    """As `growth`, on PostgreSQL: the rows that its server reads and writes for each call.

    A private server, which plans as if all tables were large.
    """
    server = Server(SETTINGS).start()
    try:
        for grown in every(workplace.sizes.growth_lengths, PostgresPlaces(server), timed=False):
            if not grown.call.what.startswith("perdure "):
                yield _line(grown)
    finally:
        server.remove()


def _line(grown: Grown) -> Line:
    lines, steps, seconds = (
        " → ".join(str(count(work)) for work in grown.works)
        for count in (
            lambda work: f"{work.lines:,}",
            lambda work: f"{work.steps:,}",
            lambda work: Figure(work.seconds),
        )
    )
    return Line(
        f"{grown.call.what} [{grown.call.history}]",
        Figure(max(grown.factor, 0.0), "x"),
        None,
        None,
        Target(grown.factor_max, of="ours"),
        f"lines {lines}; the database's steps {steps}; {seconds}",
    )
