"""What the processes and the files take, sampled; and whether that is steady."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

WARM_UP = 0.2
"""The part of the samples that is left out: imports, caches, pools that fill."""

QUARTERS = 4


@dataclass(frozen=True, slots=True)
class Bound:
    """How much the last quarter's median may be above the first one's, and still be steady: a part
    of that one, and an amount, whichever is more."""

    part: float
    amount: float

    def most(self, first: float) -> float:
        return first + max(first * self.part, self.amount)


@dataclass(slots=True)
class Series:
    """Samples of one thing, in the order in which they were taken."""

    name: str
    bound: Bound
    values: list[float] = field(default_factory=list)

    def quarters(self) -> list[float]:
        """Medians of the quarters behind the warm-up; empty where there are too few samples."""
        kept = self.values[int(len(self.values) * WARM_UP) :]
        size = len(kept) // QUARTERS
        if not size:
            return []
        return [median(kept[part * size : (part + 1) * size]) for part in range(QUARTERS)]

    def verdict(self) -> str:
        """What is wrong with it, in words; empty: it is steady.

        Medians of whole quarters: a peak here and there is not growth.
        """
        quarters = self.quarters()
        if not quarters:
            return f"{self.name}: {len(self.values)} samples say nothing"
        most = self.bound.most(quarters[0])
        if quarters[-1] <= most:
            return ""
        shown = ", ".join(f"{value:,.0f}" for value in quarters)
        return f"{self.name} grows: medians of the quarters {shown}; at most {most:,.0f} is steady"


class Book:
    """All series by name."""

    def __init__(self, bounds: Mapping[str, Bound]) -> None:
        self.series: dict[str, Series] = {}
        self._bounds = bounds

    def note(self, of: str, values: Mapping[str, float]) -> None:
        """Samples of one process, or of the files: `values` by what is sampled."""
        for what, value in values.items():
            name = f"{what} of {of}"
            found = self.series.setdefault(name, Series(name, self._bounds[what]))
            found.values.append(value)

    def verdicts(self) -> list[str]:
        return [words for series in self.series.values() if (words := series.verdict())]

    def table(self) -> list[str]:
        """A line for each series: its quarters, its least and most."""
        return [
            f"{series.name:34} "
            + " ".join(f"{value:14,.0f}" for value in series.quarters())
            + f"   from {min(series.values):,.0f} to {max(series.values):,.0f}"
            for series in self.series.values()
        ]


def process_use(pid: int) -> dict[str, float]:
    """Resident bytes, open descriptors, threads of a process that lives."""
    folder = Path("/proc") / str(pid)
    pages = int((folder / "statm").read_text().split()[1])
    return {
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir(folder / "fd")),
        "threads": len(os.listdir(folder / "task")),
    }


def file_sizes(store: Path) -> tuple[int, int]:
    """Bytes of a store's main file and of its WAL."""
    return store.stat().st_size, store.with_name(store.name + "-wal").stat().st_size
