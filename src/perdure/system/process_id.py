"""The id of this process, kept without a system call each time: a fork changes it."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import ref


class Renewed(Protocol):
    """An object that has to reset itself in a forked child."""

    def begin_anew(self) -> None:
        """Forgets the parent's threads, locks and leases."""


pid = os.getpid()


def renew_in_children(one: Renewed) -> None:
    """Has `one.begin_anew()` called in each forked child, for as long as the object lives.

    The system's hooks cannot be taken back: one for each store that is opened would stay for ever.
    """
    _renewed[ref(one, _forget)] = None


_renewed: dict[ref[Renewed], None] = {}


def _forget(gone: ref[Renewed]) -> None:
    _renewed.pop(gone, None)


def _note_fork() -> None:
    global pid
    pid = os.getpid()
    for known in [*_renewed]:
        if (one := known()) is not None:
            one.begin_anew()


os.register_at_fork(after_in_child=_note_fork)
