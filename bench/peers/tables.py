"""All figures as one Markdown table: a line for each work and each contestant that did it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.peers.contestants import PERDURE, PROGRAMS, compared_with, everybody
from bench.peers.reasons import reason
from bench.peers.results import Field, Work
from bench.report import digits, readable

LOAD_MAX = 1.5
"""For each processor; the benchmark itself makes no more than one."""

HEAD = ("work", "contestant", "median", "rounds from … to", "times Perdure's", "")


def table(found: Field) -> str:
    """Works in their order, contestants in theirs, then who has nothing of the kind and why."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + " --- |" * len(HEAD)]
    for work in found.works.values():
        lines += (f"| {' | '.join(cells)} |" for cells in _lines(work))
    return "\n".join(lines)


def _lines(work: Work) -> Iterator[tuple[str, ...]]:
    what = work.what
    for name, cell in work.cells.items():
        if not cell.values:
            continue
        spread = (
            f"{readable(min(cell.values), work.unit)} … {readable(max(cell.values), work.unit)}"
        )
        ratio = work.ratio(name, compared_with(name))
        times = "" if ratio is None or name == PERDURE else digits(ratio)
        yield (
            what,
            f"**{name}**" if name == PERDURE else name,
            readable(cell.median, work.unit),
            spread if len(cell.values) > 1 else "",
            times,
            reason(work, name),
        )
        what = ""
    missing: dict[str, list[str]] = {}
    for name, cell in work.cells.items():
        if not cell.values:
            missing.setdefault(cell.missing, []).append(name)
    for why, names in missing.items():
        yield (what, "; ".join(names), "–", "", "", why)
        what = ""


def publish(found: Field, path: Path) -> None:
    """The page with all of them."""
    path.write_text(f"{PAGE}\n{machine(found)}\n\n{table(found)}\n", encoding="utf-8")


def machine(found: Field) -> str:
    """Where, when, with what."""
    about = found.about
    load = ", ".join(f"{value:.1f}" for value in about.get("load") or [])
    end = ", ".join(f"{value:.1f}" for value in about.get("load_at_end") or [])
    programs = {one.name: PROGRAMS[one.program] for one in everybody()}
    versions = "; ".join(
        dict.fromkeys(
            f"{programs[name]} {hello['version']}"
            for name, hello in found.contestants.items()
            if hello.get("version")
        )
    )
    return (
        f"Measured at {about['at']} on {about['processors']} processors, {about['platform']}, "
        f"Python {about['python']}; load {load} at the beginning, {end} at the end.{_busy(about)} "
        f"{versions}."
    )


def _busy(about: dict[str, Any]) -> str:
    """A warning, where others used the machine as well."""
    if max(about.get("load_at_end") or [0.0]) <= LOAD_MAX * about["processors"]:
        return ""
    return (
        " **The machine had other work besides: times say little, their ratios something; syncs, "
        "bytes and memory are not touched by that.**"
    )


PAGE = """# The field side by side

`make bench-peers` measures Perdure beside what people would take instead, each contestant in an
environment and a process of its own, all of them taking turns. `python -m bench.peers --readme`
makes this page, the README's table and the pictures from the JSON of the last run; nothing is
written by hand. How each is asked for the same work: [bench/peers](../bench/peers/README.md).

Each line is the median of its rounds. Times are the machine's; the ratio is the median of the
rounds' own ratios, theirs over Perdure's: **more than 1 is slower, or more, than Perdure**. Who is
on PostgreSQL is compared with Perdure on PostgreSQL. Memory is that of the contestant's process,
and of Restate's server with it; bytes written, syncs and the CPU of waiting are of process and
server with everybody. What PostgreSQL writes is counted by how much its log grew, and what it
stores without its log. Where somebody is better than we are, the line says why.
"""
