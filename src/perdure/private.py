"""Files and folders that only their owner can open, from the moment they exist.

An agent's knowledge and actions are private, and the umask belongs to the whole process: other
threads make files, too. So everything is created with a mode of its own, by this module alone, and
is never created wider and narrowed afterwards: whoever opened it in between would keep it.

A store may be shared, by giving its file a mode (and a group) that lets others in. Then the files
beside it are opened to the same users, as SQLite does with its own files.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
from contextlib import suppress
from uuid import uuid4

FILE = 0o600
FOLDER = 0o700
PART = ".part"
"""The ending of the name of a file that is not complete yet."""

_NEW = os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


def new_file(path: str, flags: int) -> int:
    """Returns the descriptor of a new file; may be used as an `opener`, too.

    Raises:
        OSError: FileExistsError if something is there, even a link.
    """
    descriptor = os.open(path, flags | _NEW, FILE)
    try:
        if FILE & ~os.fstat(descriptor).st_mode:
            os.fchmod(descriptor, FILE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_empty(path: str) -> None:
    """Makes an empty file, if nothing is there; without ever opening it: closing a database's file
    would drop the locks that this process may have on it by now.

    Raises:
        OSError: it could not be made.
    """
    path = os.path.realpath(path)  # a link to where nothing is
    with suppress(FileExistsError):
        try:
            os.mknod(path, stat.S_IFREG | FILE)
            _let_owner_in(path, FILE)
        except OSError as error:
            if error.errno not in _NO_MKNOD:
                raise
            _link_empty(path)


_NO_MKNOD = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""Root's alone (macOS), or not to be had (some file systems, a container's filter)."""


def _link_empty(path: str) -> None:
    made = f"{path}.{uuid4().hex}{PART}"
    os.close(new_file(made, os.O_WRONLY))
    try:
        os.link(made, path)
    finally:
        with suppress(FileNotFoundError):  # `drop_parts`
            os.unlink(made)


def drop_parts(path: str) -> None:
    """Removes the names that a file had while it was made, and that a killed process left.

    Raises:
        OSError: the folder cannot be read or changed.
    """
    folder, name = os.path.split(os.path.abspath(path))
    inode = os.stat(path).st_ino
    with os.scandir(folder) as entries:
        parts = [
            entry.path
            for entry in entries
            if entry.name.startswith(name) and entry.name.endswith(PART) and entry.inode() == inode
        ]
    for part in parts:
        with suppress(FileNotFoundError):
            os.unlink(part)


def make_file(path: str, flags: int, *, like: str | None = None) -> int:
    """Returns the descriptor of a file, which is made if it is not there, for the users who may
    open the file `like`. An existing file keeps its mode.

    Raises:
        OSError: it cannot be made or opened.
    """
    try:
        descriptor = new_file(path, flags)
    except FileExistsError:
        return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, FILE)
    if like is not None:
        try:
            _share(path, like)
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


def new_folder(path: str) -> None:
    """Makes a new folder, and missing ones above it.

    Raises:
        OSError: FileExistsError if something is there.
    """
    try:
        os.mkdir(path, FOLDER)
    except FileNotFoundError:
        above = os.path.dirname(os.path.abspath(path))
        if above == path:
            raise
        make_folder(above)
        os.mkdir(path, FOLDER)
    _let_owner_in(path, FOLDER)


def make_folder(path: str, *, like: str | None = None) -> None:
    """Makes a folder if it is not there, for the users who may open the file `like`. An existing
    folder keeps its mode.

    Raises:
        OSError: FileExistsError if something else is there.
    """
    try:
        new_folder(path)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise
        return
    if like is not None:
        _share(path, like)


def bind(own: socket.socket, file: str, address: str, *, like: str) -> None:
    """Gives a Unix socket its name, for the users who may open `like`.

    Args:
        file: its place; address: the same place, maybe by a shorter path.

    Raises:
        OSError: the name cannot be given.
    """
    if sys.platform == "linux":
        # The file gets the socket's mode without the umask's bits. Elsewhere this is refused, and
        # the folder, which nobody else may enter, protects it.
        with suppress(OSError):
            os.fchmod(own.fileno(), FILE)
    own.bind(address)
    _share(file, like)


def mode_of(path: str) -> int | None:
    """Returns the mode of a file, for its replacement; None if there is none."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return None


def _share(path: str, like: str) -> None:
    """Opens what we just made to the users who may open `like`. If that fails, it stays ours."""
    with suppress(OSError):
        model, own = os.stat(like), os.lstat(path)
        mode = model.st_mode & 0o666
        if stat.S_ISDIR(own.st_mode):
            mode |= (mode & 0o444) >> 2  # who may read may enter
        owner = model.st_uid if os.geteuid() == 0 and own.st_uid != model.st_uid else -1
        group = model.st_gid if mode & 0o070 and own.st_gid != model.st_gid else -1
        if (owner, group) != (-1, -1):
            # Set before its mode: no other group gets in. Giving a group that is not ours is an
            # error.
            os.chown(path, owner, group, follow_symlinks=False)
        if mode & ~own.st_mode:
            _widen(path, stat.S_IMODE(own.st_mode) | mode)


def _let_owner_in(path: str, mode: int) -> None:
    """Restores the owner's bits that the umask took from what we just made."""
    own = os.lstat(path).st_mode
    if mode & ~own:
        _widen(path, stat.S_IMODE(own) | mode)


def _widen(path: str, mode: int) -> None:
    """Changes the mode of what is at the path itself: if others may write to the folder, it may be
    a link by now."""
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(path, mode, follow_symlinks=False)
        return
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
            os.chmod(f"/proc/self/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)
