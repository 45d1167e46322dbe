"""An agent that copies a directory tree to another place, and that no crash can stop.

    python examples/migration.py SOURCE DEST --store agents.db

Kill it with `kill -9`, or pull the plug, and start it again: it goes on at the very batch it was
at. Start it in a second terminal, too, and that one stands by: it takes over when the first dies.
Nothing in here knows about crashes, except for one word: `on_crash="retry"`.
"""

from __future__ import annotations

import argparse
import os
import shutil
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path

import perdure

BATCH_FILES = 50
CACHES = ("__pycache__",)  # what can be made again need not be copied


@dataclass
class Migration:
    """What the agent knows. Small on purpose: receipts and plans are in the log already."""

    source: str = ""
    dest: str = ""
    batches: int = 0
    batches_done: int = 0
    files_done: int = 0
    bytes_done: int = 0


@dataclass
class Copied:
    """What copying one batch gave."""

    receipts: dict[str, str]  # each file's SHA-256, by its path
    bytes: int


# A step looks and changes nothing, so it may be repeated freely. Its result is recorded: whoever
# takes over follows the same plan, even if files have come or gone since.
@perdure.step
def plan(source: str, batch_files: int, skip: list[str]) -> list[list[str]]:
    """The regular files under `source`, in batches; without links, and the folders to skip."""
    files = []
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(set(folders) - set(skip))
        paths = (Path(folder, name) for name in sorted(names))
        files += [
            str(path.relative_to(source))
            for path in paths
            if path.is_file() and not path.is_symlink()
        ]
    return [files[i : i + batch_files] for i in range(0, len(files), batch_files)]


# A tool changes the world. Its intent is on disk before it is called, its result before we see it.
# If the process dies in between, nobody knows how far it came: "retry" says that calling it again
# is safe, and it is our duty to make that true. (Where it is not, say "probe", "ask" or "fail".)
@perdure.tool(on_crash="retry")
def copy_batch(source: str, dest: str, files: list[str]) -> Copied:
    copied = Copied({}, 0)
    for file in files:
        copied.receipts[file] = copy_file(Path(source, file), Path(dest, file), Path(dest, PARTIAL))
        copied.bytes += Path(dest, file).stat().st_size
    for folder in {parent for file in files for parent in Path(file).parents}:
        sync_folder(Path(dest, folder))  # or a power cut may forget what the receipts claim
    return copied


@perdure.agent(Migration)
def migrate(
    run: perdure.Run[Migration], source: str, dest: str, batch_files: int, skip: list[str]
) -> str:
    # This is called from its beginning whenever the run resumes. Recorded calls give at once what
    # they gave, so it comes to the point where it was in milliseconds, and goes on from there.
    batches = plan(source, batch_files, skip)
    with run.edit("planned") as draft:
        draft.source, draft.dest, draft.batches = source, dest, len(batches)

    for number, files in enumerate(batches, start=1):
        copied = copy_batch(source, dest, files)
        with run.edit(f"batch {number} copied") as draft:  # one commit: all of it, or none
            draft.batches_done = number
            draft.files_done += len(files)
            draft.bytes_done += copied.bytes

    return f"{run.state.files_done:,} files, {run.state.bytes_done:,} bytes"


PARTIAL = ".migration-partial"


def copy_file(source: Path, dest: Path, partial: Path) -> str:
    """Hash, copy, verify; returns the hash. Idempotent: what has arrived is not copied again, and
    under its own name a file is there whole or not at all, at whatever moment we are killed."""
    digest = sha256(source)
    if dest.is_file() and sha256(dest) == digest:
        return digest
    dest.parent.mkdir(parents=True, exist_ok=True)
    partial.unlink(missing_ok=True)  # what a crash left may already be open to others
    with source.open("rb") as original, partial.open("wb") as copy:
        shutil.copyfileobj(original, copy)
        copy.flush()
        os.fsync(copy.fileno())
    shutil.copymode(source, partial)
    partial.replace(dest)
    if sha256(dest) != digest:
        raise OSError(f"{dest} did not arrive as it was, or {source} changed meanwhile")
    return digest


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Copy a directory tree, whatever happens.")
    parser.add_argument("source", type=Path)
    parser.add_argument("dest", type=Path)
    parser.add_argument("--store", default="agents.db", help="where the log is kept")
    parser.add_argument("--batch-files", type=int, default=BATCH_FILES, metavar="N")
    parser.add_argument("--skip", action="append", metavar="NAME", help="folders not to copy")
    args = parser.parse_args(argv)
    os.umask(0o077)  # nobody else reads a copy before it has the mode of its original
    if not args.source.is_dir():
        parser.error(f"SOURCE {args.source}: there is no such folder")
    source, dest = str(args.source.resolve()), str(args.dest.resolve())
    skip = args.skip or list(CACHES)

    with perdure.open(args.store) as store:
        # Starts the run; or resumes it; or stands by while another process has it; or, when it is
        # done, gives the recorded result. The same call every time.
        print(store.run(migrate, "migration", source, dest, args.batch_files, skip))


if __name__ == "__main__":
    main()
