"""Progress bars: on stderr, only for a person who is looking, and only for long work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from perdure.cli.terminal import attended, stderr_console, text


class Bar:
    """Progress in steps; draws nothing if nobody looks."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None) if progress else None

    def begin(self, words: str, total: int | None = None) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.reset(self._task, total=total, description=text(words).plain)

    def at(self, done: int, total: int | None = None) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total)


@contextmanager
def bar() -> Iterator[Bar]:
    """Gives a bar that is erased when it is done."""
    if not attended(stderr=True):
        yield Bar(None)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=stderr_console(), transient=True) as progress:
        yield Bar(progress)
