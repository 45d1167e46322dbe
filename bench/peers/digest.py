"""The README's part: two pictures, and a table of the best known contestants, from the results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.peers.contestants import LIMITS, PERDURE
from bench.peers.reasons import reason
from bench.peers.results import Field, Work
from bench.peers.tables import machine
from bench.report import digits, readable

BEGIN = "<!-- the field: from here to its end made by `python -m bench.peers --readme` -->"
END = "<!-- the end of the field -->"

COLUMNS = (
    PERDURE, "SqliteSaver", "SqliteSaver, DeltaChannel", "DBOS, WAL", "SQLiteSession",
    "eventsourcing", LIMITS[1],
)  # fmt: skip
HEADINGS = {
    "SqliteSaver": "LangGraph SqliteSaver", "SqliteSaver, DeltaChannel": "the same, DeltaChannel",
    "SQLiteSession": "OpenAI Agents SQLiteSession", LIMITS[1]: "*limit: a bare INSERT*",
}  # fmt: skip
GROWING = ("step", "written", "files", "resume")
BESIDE = ("syncs", "steps", "tools", "concurrent", "tokens", "kill", "signals", "recent", "past",
          "fork", "delete", "start", "memory", "idle")  # fmt: skip

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
    heads = [HEADINGS.get(name, name) for name in COLUMNS]
    lines = [
        pictures, "",
        "Same payloads, same durability, taking turns on one machine: medians, and in brackets how "
        "many times Perdure's. `make bench-peers` measures it anew, [all figures]"
        "(docs/field.md) has all that were measured, with the spread. –: it has nothing of the "
        "kind.",
        "", f"| | {' | '.join(heads)} |", "|" + " --- |" * (len(heads) + 1),
    ]  # fmt: skip
    for work in _works(found):
        lines.append(f"| {work.what} | {' | '.join(_cells(work))} |")
    return "\n".join([*lines, "", *_losses(found), machine(found)])


def _works(found: Field) -> Iterator[Work]:
    lengths = sorted(
        int(key.rpartition(" ")[2]) for key in found.works if key.startswith("step at")
    )
    for key in BESIDE:
        if key in found.works:
            yield found.works[key]
        if key == "concurrent":
            for what in GROWING:
                for length in lengths[-1:]:
                    yield found.works[f"{what} at {length}"]


def _cells(work: Work) -> Iterator[str]:
    medians = {
        name: work.cells[name].median
        for name in COLUMNS if name in work.cells and work.cells[name].values
    }  # fmt: skip
    best = min((value for name, value in medians.items() if name not in LIMITS), default=None)
    for name in COLUMNS:
        if name not in medians:
            yield _nothing(work, name)
            continue
        value = medians[name]
        text = readable(value, work.unit)
        ratio = work.ratio(name, PERDURE)
        if value == best:
            text = f"**{text}**"
        yield text if name == PERDURE or ratio is None else f"{text} ({digits(ratio)})"


def _nothing(work: Work, name: str) -> str:
    why = work.cells[name].missing if name in work.cells else ""
    if why.startswith("failed"):
        return "not measured"
    return "stopped before" if why.startswith("stopped") else "–"


def _losses(found: Field) -> Iterator[str]:
    """Why somebody but a limit is better, with the rows in which it is so."""
    lost: dict[str, list[str]] = {}
    for work in _works(found):
        by_reason: dict[str, list[str]] = {}
        for name in COLUMNS:
            if name not in LIMITS and (why := reason(work, name)):
                by_reason.setdefault(why, []).append(name)
        for why, names in by_reason.items():
            lost.setdefault(why, []).append(f"{work.what} ({', '.join(names)})")
    if lost:
        yield from ("Where we lose:", "")
        yield from (f"- {why}: {'; '.join(rows)}." for why, rows in lost.items())
        yield ""
