"""Draws the show: live in a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from examples.demo.check import Check
from examples.demo.conductor import Job, Story

EVENTS_SHOWN = 14


class Display:
    """A context manager around the performance; `tell` may be called inside it."""

    def __init__(self, job: Job, kills: int, console: Console) -> None:
        self._job = job
        self._kills = kills
        self._console = console
        self._story = Story()
        self._events: deque[tuple[float, str]] = deque(maxlen=EVENTS_SHOWN)
        self._began = time.monotonic()
        self._progress = Progress(
            TextColumn("batches"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            expand=True,
        )
        self._task = self._progress.add_task("batches", total=job.batches)
        self._live = Live(
            console=console,
            get_renderable=self._draw,
            refresh_per_second=12,
            vertical_overflow="crop",
        )

    def follow(self, story: Story) -> None:
        """Draw this one from now on."""
        self._story = story

    def __enter__(self) -> Display:
        self._began = time.monotonic()
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def tell(self, event: str) -> None:
        seconds = time.monotonic() - self._began
        self._events.append((seconds, event))
        if not self._console.is_terminal:
            batches = f"{self._story.batches_begun}/{self._job.batches}"
            self._console.print(
                f"{seconds:6.2f} s  batch {batches:>8}  {event}", highlight=False, soft_wrap=True
            )

    def _draw(self) -> RenderableType:
        story = self._story
        self._progress.update(self._task, completed=story.batches_begun)
        down = len(story.outages) > len(story.recoveries)
        counters = Table.grid(padding=(0, 4))
        counters.add_row(
            Text.assemble("kills ", (f"{len(story.kills)}", "bold red"), f" of {self._kills}"),
            Text(f"outages {len(story.outages)}"),
            Text.assemble("recovered ", (f"{len(story.recoveries)}", "bold green")),
            Text("taking over …", "yellow") if down else Text("copying", "green"),
        )
        events = Table.grid(padding=(0, 2))
        for seconds, event in self._events:
            style = "red" if event.startswith("kill") else "green"
            events.add_row(Text(f"{seconds:6.2f} s", "dim"), Text(event, style))
        for _ in range(EVENTS_SHOWN - len(self._events)):
            events.add_row("", "")
        return Panel(
            Group(self._progress, counters, Text(), events),
            title="[bold]an agent that outlives its processes",
            subtitle=Text(f"{self._job.source} → {self._job.dest}", "dim", overflow="ellipsis"),
            padding=(1, 2),
        )


def show_checks(console: Console, checks: list[Check]) -> None:
    console.print()
    for check in checks:
        console.print(
            Text("✓ ", "bold green") if check.holds else Text("✗ ", "bold red"),
            Text(check.claim),
            sep="",
        )
        for found in check.found[:5]:
            console.print(Text(f"    {found}", "red"))
        if len(check.found) > 5:
            console.print(Text(f"    … and {len(check.found) - 5} more", "red"))


def show_figures(console: Console, rows: list[tuple[str, str]]) -> None:
    table = Table.grid(padding=(0, 3))
    for name, value in rows:
        table.add_row(Text(name, "bold"), Text(value))
    console.print()
    console.print(table)
