"""The allowed places of a store's file: on a local disk, and under one name.

The parts of a store that are not in its file yet are in the WAL beside it, and processes that have
it open find each other by the files there. Under a second name, a hard link or a mount of the file
alone, there is another WAL, and the processes do not see each other: acknowledged commits are
overwritten (https://sqlite.org/howtocorrupt.html, 2.4 and 2.5).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from perdure.errors import StoreUnavailable
from perdure.private import drop_parts
from perdure.storage.sqlite.faults import translate
from perdure.storage.sqlite.files import NOT_THERE, names_of
from perdure.system.shell import quote

LOCAL_MAX = 1000
_JOURNAL_MARK = bytes.fromhex("d9d505f920a163d7")
_JOURNAL_HEADER_BYTES, _PAGES_BEFORE = 20, 16
"""Of a journal: its header up to the number of pages that the file had before, and where that is.
See https://sqlite.org/fileformat.html, "The Rollback Journal"."""

NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "afs"}
)


def refuse_other_bytes(path: str) -> None:
    """Refuses a path with bytes that are not UTF-8, before anything is made: SQLite takes none.

    Raises:
        ValueError: it has some.
    """
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{path!r} is not valid text: it has bytes that are not UTF-8") from error


def refuse_second_names(path: str) -> None:
    """Refuses a second name, when a store is opened. Processes that have it open are not affected:
    the other name is refused.

    Raises:
        StoreUnavailable: the file has two names, or is mounted without its folder.
    """
    try:
        links, is_mount = names_of(path)
        if links > 1:
            drop_parts(path)
            links, is_mount = names_of(path)
    except NOT_THERE:
        return
    except OSError as error:
        raise translate(error, path) from error
    if links > 1:
        raise StoreUnavailable(
            f"its file has {links} names (hard links), each with a -wal of its own: commits under "
            "one are lost to the others",
            target=f"store {path}",
            hint=f"{_others(path)}leave it one name; to copy it, use a real copy (cp "
            "--reflink=auto)",
        )
    if is_mount:
        raise StoreUnavailable(
            "its file alone is mounted there: its -wal, which belongs to it, would lie elsewhere",
            target=f"store {path}",
            hint="mount the folder that it is in (in a container: the folder as a volume)",
        )


def refuse_lone_wal(path: str) -> None:
    """Refuses a lone WAL, or a lone journal, before a file that is empty, or not there, is opened:
    SQLite takes it for a left-over, and deletes it.

    Raises:
        StoreUnavailable: there is one with content.
    """
    for part, has_content, lost in (
        ("-wal", os.path.getsize, "acknowledged commits"),
        ("-journal", has_pages, "pages that a repair was about to write anew"),
    ):
        if _is_lone(path, path + part, has_content):
            raise StoreUnavailable(
                f"is not there, but its {part} is: {lost} may be nowhere else",
                target=f"store {path}",
                hint="restore the file that it belongs to; if there is none, move "
                f"{quote(path + part)} away",
            )


def _is_lone(path: str, part: str, has_content: Callable[[str], int]) -> bool:
    try:
        # The latter: another process has made the file a store meanwhile.
        return bool(has_content(part)) and not os.path.getsize(path)
    except NOT_THERE:
        if not os.path.exists(part) or not has_content(part):
            return False
        # Else, between the two looks, another process has made both.
        return not os.path.exists(path) or _is_lone(path, part, has_content)


def has_pages(journal: str) -> bool:
    """Returns True if a journal has pages as they were before somebody began to write them anew. A
    store that is just being made has one without.

    Raises:
        OSError: it cannot be read, or there is none.
    """
    with open(journal, "rb") as file:
        header = file.read(_JOURNAL_HEADER_BYTES)
    return header[: len(_JOURNAL_MARK)] == _JOURNAL_MARK and any(header[_PAGES_BEFORE:])


def _others(path: str) -> str:
    """Returns a hint with the other names beside it, for people."""
    folder, own = os.path.split(os.path.abspath(path))
    inode = os.stat(path).st_ino
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name != own and entry.inode() == inode:
                return f"{entry.name!r} is one; "
    return f"`find / -xdev -samefile {quote(path)}` shows them; "


def refuse_network_file_system(path: str) -> None:
    """Refuses a network file system: SQLite's locks and shared memory do not work across machines.

    Raises:
        StoreUnavailable: the path is on one.
    """
    if sys.platform != "linux":
        return
    kind = _file_system(os.path.dirname(path) or ".")
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreUnavailable(
            f"is on a network file system ({kind}), where SQLite's locks are not safe",
            target=f"store {path}",
            hint="put the store on a local disk",
        )


_local: dict[str, int] = {}
"""Folders that were found on a local disk, and their devices: each connection asks, and to read all
mounts takes as long as half of the rest."""


def _file_system(folder: str) -> str:
    """Returns the kind of file system of a folder; "" if it was local at the last look, or is
    unknown."""
    kind, best = "", ""
    try:
        device = os.stat(folder).st_dev
    except OSError:
        device = -1
    if device >= 0 and _local.get(folder) == device:
        return ""  # also of a link that leads elsewhere now: what is there is on that device
    real = os.path.realpath(folder)
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except (OSError, TypeError):  # TypeError: Python's, where reading would block
        return ""
    for line in mounts:
        before, _, after = line.partition(" - ")
        point = before.split()[4]
        if "\\" in point:  # rare, and Python has to load what undoes it
            point = point.encode().decode("unicode_escape")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            kind, best = after.split()[0], point
    if kind not in NETWORK_FILE_SYSTEMS and device >= 0:
        if len(_local) >= LOCAL_MAX:
            _local.clear()
        _local[folder] = device
    return kind
