"""The README's part: two pictures, and a table of the best known contestants, from the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.peers.contestants import LIMITS, PERDURE, compared_with
from bench.peers.results import Field, Work
from bench.peers.tables import machine
from bench.report import digits, readable

BEGIN = "<!-- the field: from here to its end made by `python -m bench.peers --readme` -->"
END = "<!-- the end of the field -->"

COLUMNS = (
    PERDURE,
    "SqliteSaver",
    "SqliteSaver, DeltaChannel",
    "DBOS, WAL",
    "Restate",
    "SQLiteSession",
    "eventsourcing",
    LIMITS[1],
)
HEADINGS = {
    "SqliteSaver": "LangGraph SqliteSaver",
    "SqliteSaver, DeltaChannel": "the same, DeltaChannel",
    "SQLiteSession": "OpenAI Agents SQLiteSession",
    LIMITS[1]: "*limit: a bare INSERT*",
}
ROWS = (
    "steps",
    "tools",
    "step at 1000",
    "step at 10000",
    "files at 10000",
    "resume at 10000",
    "kill",
    "signals",
    "recent",
    "start",
    "memory",
)
"""What the README shows: the things that people ask first."""

PICTURE = """<picture>
  <source media="(prefers-color-scheme: dark)" srcset="docs/pictures/{name}-dark.svg">
  <img alt="{alt}" src="docs/pictures/{name}.svg">
</picture>"""
PICTURES = {
    "step": "Time to add one message, against the length of the conversation",
    "files": "Bytes stored, against the length of the conversation",
}


def publish(found: Field, path: Path) -> None:
    """Put it into the README, between its marks.

    Raises:
        ValueError: the marks are not there.
    """
    text = path.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no marks for the field: {BEGIN} … {END}")
    path.write_text(f"{before}{BEGIN}\n{digest(found)}\n{END}{after}", encoding="utf-8")


def digest(found: Field) -> str:
    pictures = "\n".join(PICTURE.format(name=name, alt=alt) for name, alt in PICTURES.items())
    lines = [
        pictures,
        "",
        "Same payloads, same durability, interleaved on one machine: medians, and in brackets the "
        "multiple of Perdure's. `make bench-peers` measures again. [All figures](docs/field.md) "
        "has the spread, PostgreSQL, and the reason wherever another library is better. –: the "
        "library has no such feature. Restate's memory includes its server.",
        "",
        *_table(found, COLUMNS, [found.works[key] for key in ROWS if key in found.works]),
        "",
    ]
    return "\n".join([*lines, machine(found)])


def _table(found: Field, columns: Sequence[str], works: Sequence[Work]) -> Iterator[str]:
    heads = [HEADINGS.get(name, name) for name in columns]
    yield f"| | {' | '.join(heads)} |"
    yield "|" + " --- |" * (len(heads) + 1)
    for work in works:
        yield f"| {work.what} | {' | '.join(_cells(work, columns))} |"


def _cells(work: Work, columns: Sequence[str]) -> Iterator[str]:
    medians = {
        name: work.cells[name].median
        for name in columns
        if name in work.cells and work.cells[name].values
    }
    best = min((value for name, value in medians.items() if name not in LIMITS), default=None)
    for name in columns:
        if name not in medians:
            yield _nothing(work, name)
            continue
        value = medians[name]
        text = readable(value, work.unit)
        ratio = None if name == columns[0] else work.ratio(name, compared_with(name))
        if value == best:
            text = f"**{text}**"
        yield text if ratio is None else f"{text} ({digits(ratio)})"


def _nothing(work: Work, name: str) -> str:
    why = work.cells[name].missing if name in work.cells else "not measured"
    if why.startswith(("failed", "not measured")):
        return "not measured"
    return "stopped before" if why.startswith("stopped") else "–"
