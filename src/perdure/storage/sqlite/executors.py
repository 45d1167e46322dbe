"""Who is alive: each executor holds a lock on a file of its own for as long as its process lives.

The kernel frees the lock at the moment the process ends, however it ends. A pid would lie: one from
another container looks dead and is not.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress

from perdure.errors import StoreUnavailable


class ExecutorLocks:
    """The lock files beside one store, ``<store>-executors/<id>``."""

    def __init__(self, store_path: str) -> None:
        self._folder = store_path + "-executors"
        self._own: dict[str, int] = {}

    def hold(self, executor: str) -> None:
        """Take the lock of our own executor; kept until `drop` or the end of the process."""
        if executor in self._own:
            return
        try:
            os.makedirs(self._folder, exist_ok=True)
            descriptor = os.open(self._file(executor), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreUnavailable(
                f"cannot lock the executor's file: {error}",
                target=self._folder,
                hint="this user must be allowed to write beside the store",
            ) from error
        self._own[executor] = descriptor

    def drop(self, executor: str) -> None:
        descriptor = self._own.pop(executor, None)
        if descriptor is not None:
            _unlink(self._file(executor))
            os.close(descriptor)

    def dead(self, executor: str) -> bool:
        """Whether the executor's process has provably ended: its lock is free.

        A missing file proves nothing (somebody may have tidied up), so that is False.
        """
        if executor in self._own:
            return False
        try:
            descriptor = os.open(self._file(executor), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return True

    def tidy(self, known: Callable[[str], bool]) -> None:
        """Remove the files of dead executors that no lease names any more."""
        try:
            names = os.listdir(self._folder)
        except OSError:
            return
        for name in names:
            if not known(name) and self.dead(name):
                _unlink(self._file(name))

    def close(self) -> None:
        for executor in list(self._own):
            self.drop(executor)

    def forget_after_fork(self) -> None:
        """In a forked child: the parent's locks are not ours, though we share the descriptors."""
        for descriptor in self._own.values():
            os.close(descriptor)
        self._own.clear()

    def _file(self, executor: str) -> str:
        return os.path.join(self._folder, executor)


def _unlink(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
