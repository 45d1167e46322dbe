"""The commands `export` and `import`: an agent's whole history in one file; or one of its
states."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from perdure import Conflict, NotFound, PerdureError
from perdure.cli import plain
from perdure.cli.checking import lacking
from perdure.cli.failures import UsageError
from perdure.cli.portable import write_log
from perdure.cli.progress import bar
from perdure.cli.session import (
    NUMBER_MAX,
    WHERE_HELP,
    AgentArgument,
    BranchOption,
    Session,
    opened,
    where,
)
from perdure.cli.terminal import bytes_out, stderr_console, stdout_console, text
from perdure.cli.words import count, size
from perdure.model import id_text
from perdure.private import mode_of, new_file
from perdure.store import is_store_file, read_file
from perdure.system.done_already import DoneAlready

WRONG_PATH = FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError


def export(
    ctx: typer.Context,
    agent: AgentArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Default, and -: stdout."),
    ] = None,
    state: Annotated[
        bool, typer.Option("--state", help="Write one state instead, as JSON.")
    ] = False,
    at: Annotated[
        str | None, typer.Option("--at", metavar="WHERE", help=f"With --state: {WHERE_HELP}.")
    ] = None,
    until: Annotated[
        int | None,
        typer.Option(
            "--until",
            metavar="SEQ",
            min=1,
            max=NUMBER_MAX,
            help="Only up to this commit: e.g. the one before a damaged one.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")] = False,
    branch: BranchOption = "main",
) -> None:
    """Write an agent's whole history, or one state of it, to one file.

    The history is JSON Lines: a header, a line per commit of all branches with its exact bytes
    (base64) beside readable fields, and a footer with the count and the root. `perdure import`
    makes the same agent from it, with the same ids.
    """
    if at is not None and not state:
        raise UsageError("--at goes with --state; a history is exported whole, or --until a commit")
    if until is not None and state:
        raise UsageError("--until goes with a history; --state has --at")
    if output == Path("-"):
        output = None
    with opened(ctx) as session:
        if output is not None:
            _refuse_store(output, session)
        with _sink(output, force=force) as stream:
            if state:
                said = _write_state(session, agent, branch, at, stream)
            else:
                said = _write_log(session, agent, stream, until)
        if said.get("reads") and not session.json:
            also = ", ".join(said["reads"])
            words = f"{agent} is a copy, and cannot be read without these: export them, too: {also}"
            stderr_console().print(text(("? ", "bold yellow"), words))
        if output is None:
            return
        if session.json:
            plain.put({**said, "file": str(output), "bytes": output.stat().st_size})
            return
        console = stdout_console()
        what = f"the state of commit {said['seq']}" if state else count(said["commits"], "commit")
        console.print(
            text(
                (agent, "bold"),
                f": {what} in ",
                (str(output), "bold"),
                f", {size(output.stat().st_size)}",
            )
        )
        if not state:
            console.print(text("root ", str(said["root"])))


export.__doc__ = f"{export.__doc__}\n\n    {plain.TAGS_HELP}\n    "


def _refuse_store(path: Path, session: Session) -> None:
    """Refuses to replace a store by an export: the one that is read, a file that belongs to it, or
    another one.

    Raises:
        Conflict: it would replace one.
    """
    own = session.store.url.removeprefix("sqlite:///")
    for file in (own, f"{own}-wal", f"{own}-shm"):  # not opened: to close it drops our locks on it
        with suppress(OSError, ValueError):
            if os.path.samefile(path, file):
                raise _is_store(path)
    with suppress(OSError, ValueError):
        if is_store_file(str(path)):
            raise _is_store(path)


def _is_store(path: Path) -> Conflict:
    return Conflict(
        "is a store, with all of its agents; an export is of one agent",
        target=f"file {path}",
        hint="name another file; `perdure import` brings an export into a store",
    )


@contextmanager
def _sink(path: Path | None, *, force: bool) -> Iterator[BinaryIO]:
    """Gives the stream of an export: a file is there complete, or not at all. A device or a pipe is
    written to, and stays what it is."""
    if path is None:
        out = bytes_out()
        yield out
        out.flush()
        return
    if os.path.exists(path) and not (path.is_file() or path.is_dir()):
        try:
            with os.fdopen(os.open(path, os.O_WRONLY), "wb") as stream:
                yield stream
        except OSError as error:
            raise _failed("write", path, error) from error
        return
    if os.path.exists(path) and not force:  # of a name that cannot be, too
        raise Conflict("is there already", target=f"file {path}", hint="--force replaces it")
    path = Path(os.path.realpath(path))  # what a link leads to is replaced, and not the link
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(part, "xb", opener=new_file) as stream:
            yield stream
            stream.flush()
            if (mode := mode_of(str(path))) is not None:  # somebody chose it
                os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        os.replace(part, path)
    except OSError as error:
        raise _failed("write", path, error) from error
    finally:
        with suppress(OSError):
            part.unlink()


def _failed(what: str, path: str | Path, error: OSError) -> Exception:
    """Returns the error for a failed file operation: a wrong command line only if the path is
    wrong, not if a disk is full or failing."""
    words = f"cannot {what} {path}: {error.strerror or error}"
    wrong = isinstance(error, WRONG_PATH) or error.errno in (errno.ENAMETOOLONG, errno.ELOOP)
    return UsageError(words) if wrong else PerdureError(words)


def _write_log(session: Session, agent: str, stream: BinaryIO, until: int | None) -> dict[str, Any]:
    info = session.find(agent, deleted_too=True)
    with bar() as progress:
        progress.begin(f"exporting {agent}", until or info.seq)
        entries = session.store.export_log(info, until=until)
        root = write_log(info, entries, stream, progress=progress.at)
    said = {"agent": agent, "incarnation": info.incarnation, **root}
    with suppress(NotFound):  # it was imported alone
        if origins := session.store.origins(info):
            said["reads"] = [origin.name for origin in origins]
    return said


def _write_state(
    session: Session, agent: str, branch: str, at: str | None, stream: BinaryIO
) -> dict[str, Any]:
    handle = session.agent(agent, branch)
    past = handle.at(branch if at is None else where(handle, at))
    commit = past.commit
    said = {
        "perdure_state": 1,
        "agent": agent,
        "seq": past.seq,
        "id": id_text(commit.id),
        "at": plain.time_json(commit.at),
        "branch": commit.branch,
        "schema": plain.schema_json(commit.schema_id, commit.schema_version),
        "exported_at": plain.time_json(datetime.now(UTC)),
    }
    document = {**said, "state": plain.to_json(past.plain)}
    stream.write(plain.ascii_dumps(document).encode() + b"\n")
    return said


def import_(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; - is stdin.")],
    create: Annotated[
        bool, typer.Option("--create", help="Create the store if it does not exist.")
    ] = False,
) -> None:
    """Import an agent that `perdure export` wrote, with every id as it was.

    The whole file is checked first (its end, its count, its root, every link, digest and state),
    then written in one transaction: all of it, or nothing. The store must not have the agent yet.
    """
    with _source(file) as stream:
        read = read_file(stream, file)  # before any store is made for it
    with DoneAlready() as done, opened(ctx, create=create) as session, bar() as progress:
        progress.begin(f"checking {read.agent}", len(read.entries))
        verified = session.store.import_log(
            read.entries, root=read.root, progress=progress.at, total=len(read.entries)
        )
        done.is_now(
            f"{verified.agent} is imported, and could not be read back",
            f"do not import it again; `{session.command('verify', verified.agent)}` reads it",
        )
        progress.begin(f"verifying {read.agent}", verified.commits)
        info = session.find(verified.agent, deleted_too=True)
        verified = session.store.agent_of(info).verify(anchor=read.root, progress=progress.at)
        said: dict[str, Any] = {
            "agent": verified.agent,
            "incarnation": info.incarnation,
            "commits": verified.commits,
            "root": verified.root,
        }
        as_json, missing = session.json, lacking(session, info)
        if missing is not None:
            said["lacks"] = missing.problem
    if as_json:
        plain.put(said)
        return
    console = stdout_console()
    number = count(verified.commits, "commit")
    console.print(text(("✓ ", "bold green"), (verified.agent, "bold"), f"  {number}, verified"))
    console.print(text("  root ", verified.root))
    if missing is not None:
        console.print(text(("? ", "bold yellow"), missing.problem))
        console.print(text(("→ ", "cyan"), missing.hint))
    if stderr_console().is_terminal and info.deleted:
        console.print(text(("  this agent was deleted; its log is here", "yellow")))


@contextmanager
def _source(file: str) -> Iterator[BinaryIO]:
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else open(file, "rb") as stream:
            yield stream
    except OSError as error:
        raise _failed("read", file, error) from error
