"""Lines of the table, the table as Markdown, and the same as JSON."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import apsw

import perdure
from bench.harness import Ratio, Samples

Unit = Literal["s", "B", "/s", "x", ""]


@dataclass(frozen=True, slots=True)
class Figure:
    """A value in seconds, bytes, operations per second, or without unit."""

    value: float
    unit: Unit = "s"
    name: str = ""
    """Who has it; empty for Perdure itself."""

    def __str__(self) -> str:
        text = readable(self.value, self.unit)
        return f"{text} ({self.name})" if self.name else text


def readable(value: float, unit: Unit) -> str:
    """Three digits and a unit of a fitting size."""
    scales = {
        "s": ((1.0, " s"), (1e-3, " ms"), (0.0, " µs")),
        "B": ((1e6, " MB"), (1e3, " kB"), (0.0, " B")),
    }
    for scale, suffix in scales.get(unit, ()):
        if abs(value) >= scale:
            size = scale or (1e-6 if unit == "s" else 1.0)
            return f"{digits(value / size)}{suffix}"
    return digits(value) + {"/s": " /s", "x": " x"}.get(unit, "")


def digits(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be reached: a bound on the ratio, or on our own figure."""

    bound: float
    of: Literal["ratio", "ours"] = "ratio"
    at_least: bool = False

    def reached(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    what: str
    ours: Figure
    contestant: Figure | None = None
    ratio: Ratio | float | None = None
    target: Target | None = None
    note: str = ""
    samples: Mapping[str, Samples] = field(default_factory=dict)

    @property
    def ratio_value(self) -> float | None:
        return self.ratio.value if isinstance(self.ratio, Ratio) else self.ratio

    @property
    def reached(self) -> bool | None:
        """Whether the target is; None where there is none."""
        if self.target is None:
            return None
        value = self.ours.value if self.target.of == "ours" else self.ratio_value
        return value is not None and self.target.reached(value)

    def cells(self) -> list[str]:
        answer = {None: "", True: "yes", False: "**no**"}[self.reached]
        contestant = str(self.contestant) if self.contestant else ""
        return [self.what, str(self.ours), contestant, self._ratio(), self._target(), answer]

    def _ratio(self) -> str:
        if isinstance(self.ratio, Ratio):
            spread = f"{digits(self.ratio.low)} to {digits(self.ratio.high)}"
            return f"{digits(self.ratio.value)} ({spread})"
        return "" if self.ratio is None else digits(self.ratio)

    def _target(self) -> str:
        if self.target is None:
            return ""
        unit: Unit = self.ours.unit if self.target.of == "ours" else "x"
        sign = "≥" if self.target.at_least else "≤"
        return f"{sign} {readable(self.target.bound, unit)}"

    def as_data(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "ours": asdict(self.ours),
            "contestant": asdict(self.contestant) if self.contestant else None,
            "ratio": self.ratio_value,
            "ratio_parts": [self.ratio.low, self.ratio.high]
            if isinstance(self.ratio, Ratio)
            else None,
            "target": asdict(self.target) if self.target else None,
            "reached": self.reached,
            "note": self.note,
            "samples": {
                name: {
                    "count": len(found.values),
                    "p10": found.p10,
                    "median": found.median,
                    "p99": found.p99,
                }
                for name, found in self.samples.items()
            },
        }


HEAD = ["row", "ours", "contestant", "ratio (in thirds of the run)", "target", "reached"]


def table(lines: Mapping[str, Sequence[Line]]) -> str:
    """All lines as a Markdown table, the notes below it."""
    rows = [HEAD, *(line.cells() for found in lines.values() for line in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    notes = [
        f"- {line.what}: {line.note}" for found in lines.values() for line in found if line.note
    ]
    return "\n".join([*text, "", *notes])


def machine(folder: Path) -> dict[str, Any]:
    """Where and with what it was measured."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "perdure": perdure.__version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "sqlite_ours": apsw.sqlite_lib_version(),
        "sqlite_stdlib": sqlite3.sqlite_version,
        "folder": str(folder),
    }


def write_json(path: Path, lines: Mapping[str, Sequence[Line]], about: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"about": about, "rows": {name: [x.as_data() for x in ls] for name, ls in lines.items()}}
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
