"""The one way out: the command line prints everything through here.

Names, words and values come from others, and the terminal is the operator's: unprintable
characters, also a line's end within a name, are escaped. Only this program begins lines and sets
colours. No other module of the command line writes to stdout or stderr (a test checks that).
"""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
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
    """A console that prints words as they are, with unprintable characters escaped."""

    def print(self, *objects: Any, **more: Any) -> None:
        super().print(*(text(one) if isinstance(one, str) else one for one in objects), **more)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        # The last step before a part of a line is written, whatever it was made of.
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(visible_lines(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Raises an error for the command to handle: nobody reads the output any more. Rich would
        end the process at once, a worker's with everything that it executes."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None


class Grid(Table):
    """A table whose cells are words, as from `text`."""

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
    """Returns a line of pieces with their styles; rich's markup is never read from them."""
    built = Text()
    for part in parts:
        if isinstance(part, tuple):
            built.append(visible(part[0]), Style.parse(part[1]))
        else:
            built.append(part if isinstance(part, Text) else visible(part))
    return built


def lines(words: str) -> Text:
    """Returns words of several lines: line feeds stay."""
    return Text("\n").join(text(line) for line in words.split("\n"))


def table(*columns: str, right: Iterable[str] = ()) -> Grid:
    """Returns a table with few lines: a head in dim letters, and columns two blanks apart."""
    made = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        justify: Any = "right" if name in right else "left"
        made.add_column(name, justify=justify, overflow="fold")
    return made


def put(words: str, *, end: str = "\n") -> None:
    """Prints lines on stdout as they are, for programs to read."""
    sys.stdout.write(visible_lines(words) + end)


def put_document(json: str) -> None:
    """Prints JSON on stdout: in colour, if a person looks at it."""
    console = stdout_console()
    if not console.is_terminal:
        put(json)
        return
    built = lines(json)
    JSONHighlighter().highlight(built)
    console.print(built)


def complain(words: str) -> None:
    """Prints lines on stderr as they are: JSON, or a traceback."""
    sys.stderr.write(visible_lines(words) + "\n")


def flush() -> None:
    sys.stdout.flush()


def bytes_out() -> BinaryIO:
    """Returns stdout, for an export, whose lines are JSON in ASCII."""
    sys.stdout.flush()
    return sys.stdout.buffer


def attended(*, stderr: bool = False) -> bool:
    """True if a person sees the output."""
    return (sys.stderr if stderr else sys.stdout).isatty()


def stdout() -> TextIO:
    """Returns stdout, for its encoding or its descriptor."""
    return sys.stdout


@contextmanager
def elsewhere() -> Iterator[Callable[[str], None]]:
    """Redirects printed output to stderr; gives a function that prints a line on stdout itself."""
    out = sys.stdout

    def say(line: str) -> None:
        out.write(visible_lines(line) + "\n")
        out.flush()

    with redirect_stdout(sys.stderr):
        yield say


def say_no_more(*, stderr: bool = False) -> None:
    """Drops the remaining output, which would fail again when the process ends."""
    stream = sys.stderr if stderr else stdout()
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


STDOUT = 1


class _Unread(io.FileIO):
    """A descriptor that leads nowhere once nobody reads it any more."""

    def write(self, data: Any) -> Any:
        try:
            return super().write(data)
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            if self.fileno() == STDOUT:
                complain(
                    "Broken pipe: nobody reads stdout any more, and what goes there is dropped"
                )
            return len(memoryview(data).cast("B"))


@contextmanager
def outliving_readers() -> Iterator[None]:
    """Within it, output that nobody reads any more is dropped, also that of users' functions: where
    a log shipper is restarted, a `print` in a step would fail each run that executes one."""
    were = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    try:
        for name, stream in were.items():
            with suppress(OSError, ValueError, AttributeError):  # it has no descriptor
                stream.flush()
                raw = _Unread(stream.fileno(), "w", closefd=False)
                buffered = stream.line_buffering or name == "stderr"
                made = io.TextIOWrapper(
                    io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=buffered
                )
                setattr(sys, name, made)
        yield
    finally:
        for name, stream in were.items():
            with suppress(ValueError):  # a function closed it
                getattr(sys, name).flush()
            setattr(sys, name, stream)


# -- what Python prints by itself ------------------------------------------------------------------


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible_lines(super().format(record))


def guard_python() -> None:
    """Escapes what Python itself prints on stderr, e.g. for uncaught errors: it contains other
    people's words, too."""
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
