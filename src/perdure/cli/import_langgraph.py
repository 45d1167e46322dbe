"""The command `import-langgraph`: threads of LangGraph's own checkpointer come over, each state
compared."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

import perdure
from perdure import NotFound
from perdure.cli import plain
from perdure.cli.command_options import Settings
from perdure.cli.failures import UsageError
from perdure.cli.progress import Bar, bar
from perdure.cli.session import refuse_memory, store_url
from perdure.cli.terminal import attended, flush, stderr_console, stdout_console, table, text
from perdure.cli.user_modules import user_module
from perdure.cli.words import count, size
from perdure.store import Store

if TYPE_CHECKING:
    from perdure.integrations.langgraph.moving.move_threads import MovedThread, Mover
    from perdure.integrations.langgraph.moving.source import SourceThread

LEFT = 1
LINES_MAX = 200
PROBLEMS_SHOWN = 5


def import_langgraph(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="The file of a SqliteSaver, or the URL of a PostgresSaver's database.",
        ),
    ],
    thread: Annotated[
        list[str] | None,
        typer.Option("--thread", "-t", metavar="ID", help="Only this thread; may be repeated."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="[NAME=]MODULE:CLASS",
            help="A class of yours that values "
            "are of; may be said several times. NAME is what it was called when they were "
            "written (__main__.Ticket), if that was another one.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, and write nothing.")
    ] = False,
) -> None:
    """Import the threads of LangGraph's own savers, with their whole history.

    Each checkpoint of every namespace comes with its metadata, parent and pending writes; forks
    become branches. Then each is read back, and compared with what LangGraph's own saver returns. A
    thread comes over completely, or is left and named, and the exit code is 1.

    SOURCE is only read, each thread as of one moment; it may be in use. If the command is killed,
    run it again: it continues, and skips what is there already and equal. The store is made if it
    is not there.

    Code that only the data names is never imported: name your classes with --type, and pass them to
    PerdureSaver(…, types=[…]) later.
    """
    settings = ctx.ensure_object(Settings)
    library = _library()
    registered = _types(types or ())
    url = store_url(ctx)
    with closing(_opened(library, source, registered)) as found:
        if found.file and os.path.exists(url) and os.path.samefile(url, found.file):
            raise UsageError("SOURCE and the store are the same file")
        threads = found.threads(thread or ())
        mover = _mover(library, found, registered)
        before = _bytes_of(url)
        with _store(url, make=not dry_run) as mover.store:
            report = _Report(threads, dry=dry_run, quiet=settings.json)
            report.follow(mover)
        after = _bytes_of(url)
        if settings.json:
            plain.put(_json(report, found, _shown(url), before, after))
        else:
            there = f"{found.name} ({size(found.bytes)})"
            report.end(there, _shown(url), before, after)
    if report.left:
        raise typer.Exit(LEFT)


# -- what is needed ----------------------------------------------------------------------------


def _library() -> Any:
    try:
        return importlib.import_module("perdure.integrations.langgraph.moving.move_threads")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("perdure"):
            raise
        raise UsageError(
            f"this needs LangGraph's checkpoint library (there is no module {error.name!r}): "
            "pip install 'perdure[langgraph]', and langgraph-checkpoint-sqlite or "
            "langgraph-checkpoint-postgres"
        ) from error


def _opened(library: Any, source: str, types: dict[str, type]) -> Any:
    try:
        return library.open_source(source, types)
    except ImportError as error:  # psycopg without a libpq, too
        if (getattr(error, "name", None) or "").startswith("perdure"):
            raise
        raise UsageError(
            "states are compared with what LangGraph's own saver gives for them, and it cannot be "
            f"imported ({error}): pip install {library.needed(source)}"
        ) from error
    except ValueError as error:
        raise UsageError(str(error)) from error


def _mover(library: Any, source: Any, types: dict[str, type]) -> Mover:
    try:
        made: Mover = library.Mover(source, types)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    return made


@contextmanager
def _store(url: str, *, make: bool) -> Iterator[Store | None]:
    """Opens the store, without an fsync for each commit: a thread is durable when it is reported,
    and one that a power loss interrupted is resumed. None if it is not there, and not to be
    made."""
    refuse_memory(url)
    try:
        store = perdure.open(url, durability="os", create=make)
    except (ValueError, ImportError) as error:
        raise UsageError(str(error)) from error
    except NotFound:
        yield None
        return
    with store:
        yield store


def _bytes_of(url: str) -> int:
    """Returns the size of the store's files; 0 if it is not there. It is opened for this, so that
    pages that the last process left in the WAL do not count twice."""
    with _store(url, make=False) as store:
        return 0 if store is None else store.sizes().file_bytes


def _shown(url: str) -> str:
    from perdure.system.urls import shown

    return shown(url)


def _types(named: Sequence[str]) -> dict[str, type]:
    """Returns the user's classes, by the names under which their values were written."""
    found: dict[str, type] = {}
    for words in named:
        name, _, place = words.rpartition("=")
        module, _, path = place.partition(":")
        if not module or not path.isidentifier():
            raise UsageError(f"--type {words}: write it as module:Class, or name=module:Class")
        try:
            cls = getattr(user_module(module), path, None)
        except UsageError as error:
            raise UsageError(f"--type {words}: {error}") from error
        if not isinstance(cls, type):
            raise UsageError(f"--type {words}: module {module!r} has no class {path!r}")
        found[name or f"{cls.__module__}.{cls.__qualname__}"] = cls
    return found


# -- what is said ------------------------------------------------------------------------------


class _Report:
    """Reports the threads as they come over. A person at a terminal sees a bar, then a table;
    others get a line for each finished thread."""

    def __init__(self, threads: Sequence[SourceThread], *, dry: bool, quiet: bool) -> None:
        self.threads = threads
        self.done: list[MovedThread] = []
        self._dry = dry
        self._quiet = quiet
        self._bar = not quiet and attended()

    @property
    def left(self) -> list[MovedThread]:
        return [one for one in self.done if one.problems]

    def follow(self, mover: Mover) -> None:
        total = sum(thread.checkpoints for thread in self.threads)
        words = "looking at" if self._dry else "importing"
        try:
            with bar() if self._bar else _no_bar() as progress:
                progress.begin(f"{words} {count(len(self.threads), 'thread')}", total)
                before = 0
                for thread in self.threads:
                    self._move(mover, thread, progress, before)
                    before += thread.checkpoints
                    progress.at(before, total)
        except KeyboardInterrupt:
            self._print_interrupted()
            raise

    def _move(self, mover: Mover, thread: SourceThread, progress: Bar, before: int) -> None:
        total = sum(one.checkpoints for one in self.threads)
        moved = mover.move(
            thread, lambda done: progress.at(before + int(done), total), dry=self._dry
        )
        self.done.append(moved)
        if not self._bar and not self._quiet:
            stdout_console().print(self._line(moved))
            flush()

    def _line(self, moved: MovedThread) -> Any:
        if moved.problems:
            return text(("✗ ", "bold red"), (moved.thread.name, "bold"), "  left, see below")
        sizes = f"{size(moved.thread.bytes)}" + (
            "" if self._dry else f" → {size(moved.bytes_after)}"
        )
        return text(
            ("✓ ", "bold green"),
            (moved.thread.name, "bold"),
            f"  {_counted(moved)}  ",
            sizes,
        )

    def _print_interrupted(self) -> None:
        over = len(self.done) - len(self.left)
        stderr_console().print(
            text(
                ("interrupted: ", "bold yellow"),
                f"{over} of {count(len(self.threads), 'thread')} came over and were compared; "
                "the same command continues from here",
            )
        )

    def end(self, source: str, store: str, before: int, after: int) -> None:
        """Prints the table, what was left and why, and the sizes."""
        console = stdout_console()
        if self._bar and self.done:
            console.print(self._table())
        for moved in self.left:
            _print_left(moved)
        over = [moved for moved in self.done if not moved.problems]
        states = sum(moved.moved + moved.there for moved in over)
        words = f"{count(len(over), 'thread')}, {count(states, 'checkpoint')}"
        words += " can come over" if self._dry else ", every state compared"
        if self.done:
            console.print()
        console.print(text((words, "bold" if not self.left else "")))
        if self.left:
            left = count(len(self.left), "thread") + (" would be" if self._dry else "")
            console.print(
                text(
                    (f"{left} left: ", "bold red"),
                    ", ".join(moved.thread.name for moved in self.left),
                )
            )
        self._print_sizes(source, store, before, after)
        _print_left_out(self.done)

    def _table(self) -> Any:
        last = () if self._dry else ("after",)
        made = table("", "thread", "checkpoints", "before", *last, right=("before", "after"))
        for moved in self.done[:LINES_MAX]:
            name = text((moved.thread.name, "bold"))
            mark = text(("✗", "bold red") if moved.problems else ("✓", "bold green"))
            words = "left, see below" if moved.problems else _counted(moved)
            sizes = [size(moved.thread.bytes)]
            if not self._dry:
                sizes.append("" if moved.problems else size(moved.bytes_after))
            made.add_row(mark, name, words, *sizes)
        if len(self.done) > LINES_MAX:
            made.add_row("", f"… {count(len(self.done) - LINES_MAX, 'thread')} more", "")
        return made

    def _print_sizes(self, source: str, store: str, before: int, after: int) -> None:
        over = [moved for moved in self.done if not moved.problems]
        theirs = sum(moved.thread.bytes for moved in over)
        ours = sum(moved.bytes_after for moved in over)
        console = stdout_console()
        if self._dry:
            console.print(text(f"{size(theirs)} of {source}; nothing was written"))
            return
        factor = f", {theirs / ours:,.0f} × less" if ours and theirs >= 2 * ours else ""
        console.print(text(f"{size(theirs)} of {source} → {size(ours)}{factor}"))
        grown = f"{size(before)} → {size(after)}" if before else f"new, {size(after)}"
        console.print(text(f"store {store}: {grown}"))


@contextmanager
def _no_bar() -> Iterator[Bar]:
    yield Bar(None)


def _counted(moved: MovedThread) -> str:
    words = count(moved.moved + moved.there, "checkpoint")
    if moved.there:
        return f"{words}, {'all' if not moved.moved else f'{moved.there:,}'} there already"
    return words


def _print_left(moved: MovedThread) -> None:
    console = stderr_console()
    for problem in moved.problems[:PROBLEMS_SHOWN]:
        where = f"thread {moved.thread.name}: "
        where += f"{problem.where}: " if problem.where else ""
        console.print(text(("left: ", "bold red"), (where, "bold"), problem.words))
        if problem.hint:
            console.print(text(("  → ", "cyan"), problem.hint))
    if len(moved.problems) > PROBLEMS_SHOWN:
        console.print(text(f"  and {len(moved.problems) - PROBLEMS_SHOWN} more"))


def _print_left_out(done: Sequence[MovedThread]) -> None:
    """Prints what no saver of ours shows, or none of LangGraph's does."""
    console = stderr_console()
    secrets = sorted(set[str]().union(*(moved.secrets for moved in done)))
    if secrets:
        console.print(
            text(
                ("! ", "bold yellow"),
                "left out, as their names look like those of secrets: "
                f"metadata {', '.join(secrets)}",
            )
        )
    orphans = sum(moved.thread.orphans for moved in done)
    if orphans:
        console.print(
            text(
                ("! ", "bold yellow"),
                f"left out: {count(orphans, 'write')} for checkpoints that are not there",
            )
        )


def _json(report: _Report, source: Any, url: str, before: int, after: int) -> dict[str, Any]:
    return {
        "source": {"name": source.name, "bytes": source.bytes},
        "store": {"url": url, "bytes_before": before, "bytes_after": after},
        "threads": [
            {
                "thread": moved.thread.name,
                "checkpoints": moved.thread.checkpoints,
                "imported": moved.moved,
                "there_already": moved.there,
                "bytes_before": moved.thread.bytes,
                "bytes_after": moved.bytes_after,
                "metadata_left_out": sorted(moved.secrets),
                "writes_left_out": moved.thread.orphans,
            }
            for moved in report.done
            if not moved.problems
        ],
        "left": [
            {
                "thread": moved.thread.name,
                "problems": [
                    {"where": one.where, "problem": one.words, "hint": one.hint}
                    for one in moved.problems
                ],
            }
            for moved in report.left
        ],
    }
