"""The rows by name, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from bench.report import Line
from bench.workplace import Workplace

Measure = Callable[[Workplace], Iterator[Line]]

MODULES = (
    "commit",
    "cpu",
    "writers",
    "state_size",
    "disk",
    "cold",
    "start",
    "fork",
    "past",
    "growth",
    "scale",
    "engine",
    "resources",
    "side_by_side",
    "langgraph",
    "langgraph_threads",
    "langgraph_graphs",
    "langgraph_turns",
    "agents_session",
    "postgres",
)
"""Of `bench.rows`."""


@dataclass(frozen=True, slots=True)
class Row:
    """What measures one row; its docstring says what is measured, and how."""

    name: str
    measure: Measure
    long: bool = False
    """Measured only where it is named, or at small sizes."""

    @property
    def about(self) -> str:
        return " ".join((self.measure.__doc__ or "").split("\n\n")[0].split())


_rows: dict[str, Row] = {}


def row(name: str, *, long: bool = False) -> Callable[[Measure], Measure]:
    """Register a function as the row of that name."""

    def register(measure: Measure) -> Measure:
        _rows[name] = Row(name, measure, long)
        return measure

    return register


def rows() -> dict[str, Row]:
    for module in MODULES:
        import_module(f"bench.rows.{module}")
    return _rows
