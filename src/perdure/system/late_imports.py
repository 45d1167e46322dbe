"""Imports at first use, and the library's own files: the error if this process cannot load one now.

A program loads what it uses, so a part may be needed for the first time where the process has no
free descriptor or memory, or where the disk fails. That is this moment's trouble: the same call
works later. It must not pass for an error of the caller's, of a run's function or of an argument,
which would be recorded and stay.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

from perdure.errors import StoreUnavailable

SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""The system's errors if there is no room for one more open file."""

HINT = (
    "a process may have too many open files (`ulimit -n`), or too little memory; "
    "then make the call again"
)

_WORDS = tuple(map(os.strerror, (*SHORT, errno.EIO)))


class NotLoadedError(StoreUnavailable):
    """A part of the library cannot be loaded now. It is never the outcome of a run or of a call."""


class _Loading:
    """A context manager for imports inside functions, and for reading files of the package.

    Raises:
        NotLoadedError: one cannot be read now. A package that is not installed stays an
            `ImportError`.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and _is_of_now(error):
            _forget_parts()
            words = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NotLoadedError(
                f"a part of the library cannot be loaded: {words}", hint=HINT
            ) from error


loading = _Loading()


def optional(name: str) -> Any:
    """Returns a module of a package that need not be there; None if it is not installed.

    Raises:
        NotLoadedError: it is there, and cannot be loaded now.
    """
    try:
        with loading:
            return importlib.import_module(name)
    except ImportError:
        return None


def is_short(error: BaseException) -> bool:
    """Returns True if an error says that this process, or the system, is short of descriptors or
    memory: it says nothing about what was tried."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SHORT)


def _is_of_now(error: BaseException) -> bool:
    if isinstance(error, OSError | MemoryError):
        return True
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("perdure."):
        return True  # it is there, but a disk that fails does not say so
    return isinstance(error, ImportError) and any(word in str(error) for word in _WORDS)


def _forget_parts() -> None:
    """Forgets modules of Python's own packages whose import failed midway: such a package is
    imported again from its beginning, and asyncio is broken for good if it finds its parts."""
    for name in list(sys.modules):
        package = name.rpartition(".")[0]
        if package and package not in sys.modules and name.split(".")[0] in sys.stdlib_module_names:
            sys.modules.pop(name, None)
