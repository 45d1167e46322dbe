"""The one way out: all that the command line prints goes through here.

Names, words and values are other people's, and the terminal is the operator's: what is not
printable, a line's end within a name too, stands there as its escape. Lines begin and colours are
where this program says so. No other room of the command line writes to stdout or stderr (a test
reads them).
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, BinaryIO, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.highlighter import JSONHighlighter
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from perdure.visible import visible, visible_lines

Part = str | tuple[str, str] | Text

PLAIN_WIDTH = 100_000
"""Of output that is no terminal: nothing is cut or wrapped there."""


class Screen(Console):
    """A console that prints words as they are, but for what is not printable."""

    def print(self, *objects: Any, **more: Any) -> None:
        super().print(*(text(one) if isinstance(one, str) else one for one in objects), **more)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        # Whatever a part of a line was made of: the last thing before it is written.
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(visible_lines(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Nobody reads it any more: that is for the command to know. Rich would end the process
        here and now, a worker's with all that it executes."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None


class Grid(Table):
    """A table whose cells are words, as `text` has them."""

    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
        super().add_row(*(text(one) if isinstance(one, str) else one for one in cells), **more)


def stdout_console() -> Screen:
    return _console(stderr=False)


def stderr_console() -> Screen:
    return _console(stderr=True)


def _console(*, stderr: bool) -> Screen:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return Screen(
        stderr=stderr, width=width, highlight=False, markup=False, emoji=False, soft_wrap=True
    )


def text(*parts: Part) -> Text:
    """A line of pieces with their styles; rich's markup is never read from them."""
    built = Text()
    for part in parts:
        if isinstance(part, tuple):
            built.append(visible(part[0]), Style.parse(part[1]))
        else:
            built.append(part if isinstance(part, Text) else visible(part))
    return built


def lines(words: str) -> Text:
    """Words of several lines: a line feed stays one."""
    return Text("\n").join(text(line) for line in words.split("\n"))


def table(*columns: str, right: Iterable[str] = ()) -> Grid:
    """A table with few lines: a head in dim letters, and columns two blanks apart."""
    made = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        justify: Any = "right" if name in right else "left"
        made.add_column(name, justify=justify, overflow="fold")
    return made


def put(words: str, *, end: str = "\n") -> None:
    """Lines on stdout as they are, for programs to read."""
    sys.stdout.write(visible_lines(words) + end)


def put_document(json: str) -> None:
    """JSON on stdout: in colour, if a person looks at it."""
    console = stdout_console()
    if not console.is_terminal:
        put(json)
        return
    built = lines(json)
    JSONHighlighter().highlight(built)
    console.print(built)


def complain(words: str) -> None:
    """Lines on stderr as they are: JSON, or a traceback."""
    sys.stderr.write(visible_lines(words) + "\n")


def flush() -> None:
    sys.stdout.flush()


def bytes_out() -> BinaryIO:
    """Stdout, for an export, whose lines are JSON in ASCII."""
    sys.stdout.flush()
    return sys.stdout.buffer


def attended(*, stderr: bool = False) -> bool:
    """Whether a person sees what is printed."""
    return (sys.stderr if stderr else sys.stdout).isatty()


def stdout() -> TextIO:
    """For who asks it for its encoding or its descriptor."""
    return sys.stdout


@contextmanager
def elsewhere() -> Iterator[Callable[[str], None]]:
    """What is printed goes to stderr meanwhile; gives what prints a line on stdout itself."""
    out = sys.stdout

    def say(line: str) -> None:
        out.write(visible_lines(line) + "\n")
        out.flush()

    with redirect_stdout(sys.stderr):
        yield say


# -- what Python prints by itself ------------------------------------------------------------------


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible_lines(super().format(record))


def guard_python() -> None:
    """What Python says on stderr where nobody asked it to do otherwise, e.g. of errors that nobody
    caught: it is made of other people's words as well."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Formatter())
    format_warning = warnings.formatwarning
    warnings.formatwarning = lambda *args, **more: visible_lines(format_warning(*args, **more))
    sys.excepthook = lambda *error: complain(_told(error[1]))
    threading.excepthook = lambda args: complain(
        f"Exception in thread {args.thread.name if args.thread else '?'}:\n{_told(args.exc_value)}"
    )
    sys.unraisablehook = lambda args: complain(
        f"{args.err_msg or 'Exception ignored in'}: {args.object!r}\n{_told(args.exc_value)}"
    )


def _told(error: BaseException | None) -> str:
    return "".join(traceback.format_exception(error)).rstrip("\n") if error else ""
