"""Liveness of executors: each holds a lock on a file of its own for as long as its process lives.

The kernel frees the lock at the moment the process ends, for whatever reason. A pid would mislead:
one from another container looks dead and is not.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from io import FileIO

from perdure.errors import StoreUnavailable
from perdure.private import make_file, make_folder

HOLD_TRIES = 1000
SOCKET = ".sock"
"""Ends the names of what else lies in the folder; see sockets.py."""


class ExecutorLocks:
    """The lock files beside one store, ``<store>-executors/<id>``."""

    def __init__(self, store_path: str) -> None:
        self._store = store_path
        self._folder = store_path + "-executors"
        self._own: dict[str, FileIO] = {}
        """Closed as often as anybody likes: a number may be another file's by then."""

    def hold(self, executor: str) -> bool:
        """Takes the lock of our own executor; kept until `drop` or the end of the process.

        Returns:
            True if it was taken now.
        """
        if executor in self._own:
            return False
        try:
            make_folder(self._folder, like=self._store)
            for _ in range(HOLD_TRIES):
                file = self._lock(executor)
                if file is not None:
                    self._own[executor] = file
                    return True
                time.sleep(0.001)
        except OSError as error:
            raise StoreUnavailable(
                f"cannot lock the executor's file: {error}",
                target=self._folder,
                hint="this user must be allowed to write beside the store",
            ) from error
        raise StoreUnavailable(
            "another process holds the executor's file",
            target=self._file(executor),
            hint="make the call again",
        )

    def _lock(self, executor: str) -> FileIO | None:
        """Returns the locked file; None if another process, tidying up, was just trying or removing
        it."""
        path = self._file(executor)
        # Held by an object: after an interrupt it is dropped, and the lock with it. Otherwise
        # nobody could be this executor any more.
        file = FileIO(path, "r+", opener=lambda *_: make_file(path, os.O_RDWR, like=self._store))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            _close(file)
            raise
        _close(file)
        return None

    def drop(self, executor: str) -> None:
        file = self._own.get(executor)
        if file is not None:
            _unlink(self._file(executor))
            _close(file)
            self._own.pop(executor, None)  # last: who is interrupted calls again

    def dead(self, executor: str) -> bool:
        """Returns True if the executor's process has provably ended: its lock is free.

        A missing file proves nothing (it may have been tidied up), so the result is False.
        """
        if executor in self._own:
            return False
        try:
            descriptor = os.open(self._file(executor), os.O_RDWR | os.O_CLOEXEC)
        except (OSError, ValueError):  # the latter: no file can have this name
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            with suppress(OSError):
                os.close(descriptor)
        return True

    def holds(self, executor: str) -> bool:
        """True if it is an executor of this process."""
        return executor in self._own

    def tidy(self, needed: Callable[[str], bool]) -> None:
        """Removes the files of dead executors, except those that would seem alive without it."""
        try:
            names = os.listdir(self._folder)
        except OSError:
            return
        for name in names:
            if name.endswith(SOCKET):
                continue
            if not needed(name) and self.dead(name):
                _unlink(self._file(name))

    def close(self) -> None:
        for executor in list(self._own):
            self.drop(executor)

    def forget_after_fork(self) -> None:
        """Resets itself in a forked child: the parent's locks are not ours, though we share the
        descriptors."""
        for file in self._own.values():
            _close(file)
        self._own.clear()

    def _file(self, executor: str) -> str:
        return os.path.join(self._folder, executor)


def _close(file: FileIO) -> None:
    with suppress(OSError):  # Linux closes it all the same, see close(2)
        file.close()


def _unlink(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
