"""What was measured, work by work and contestant by contestant; as data, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.report import Unit


@dataclass(slots=True)
class Cell:
    """What one contestant needed for one work, round by round, or why there is nothing."""

    values: list[float] = field(default_factory=list)
    missing: str = ""

    @property
    def median(self) -> float:
        return median(self.values)


@dataclass(slots=True)
class Work:
    """One row of the comparison.

    Attributes:
        what: in words.
        unit: less is better in all of them.
    """

    key: str
    what: str
    unit: Unit = "s"
    cells: dict[str, Cell] = field(default_factory=dict)

    def cell(self, name: str) -> Cell:
        return self.cells.setdefault(name, Cell())

    def ratio(self, name: str, ours: str) -> float | None:
        """Theirs over ours: the median of the rounds' own ratios, which a busy machine moves
        less than the times themselves."""
        a, b = self.cells.get(name), self.cells.get(ours)
        if a is None or b is None or not a.values or not b.values or 0 in b.values:
            return None
        if len(a.values) == len(b.values):
            return median(x / y for x, y in zip(a.values, b.values, strict=True))
        return a.median / b.median


@dataclass(slots=True)
class Field:
    """All of it: about the machine and the contestants, and the works in order."""

    about: dict[str, Any] = field(default_factory=dict)
    contestants: dict[str, dict[str, Any]] = field(default_factory=dict)
    works: dict[str, Work] = field(default_factory=dict)

    def work(self, key: str, what: str, unit: Unit = "s") -> Work:
        """The work of that key; made where it is new."""
        return self.works.setdefault(key, Work(key, what, unit))

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> Field:
    data = json.loads(path.read_text("utf-8"))
    return Field(data["about"], data["contestants"], {work.key: work for work in _works(data)})


def _works(data: dict[str, Any]) -> Iterable[Work]:
    for key, work in data["works"].items():
        cells = {name: Cell(**cell) for name, cell in work["cells"].items()}
        yield Work(key, work["what"], work["unit"], cells)
