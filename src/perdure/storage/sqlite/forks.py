"""Open stores pause while the process forks, and the child resets them."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class ForkedStore(Protocol):
    """An open store. `stop` comes before a fork, `go_on` after it in the parent, `renew` in the
    child."""

    def stop(self) -> None: ...

    def go_on(self) -> None: ...

    def renew(self) -> None: ...


_open: weakref.WeakSet[ForkedStore] = weakref.WeakSet()
_stopped: list[ForkedStore] = []
_hooks: list[bool] = []


def quiet_at_forks(store: ForkedStore) -> None:
    """Pauses a store at forks, from now on, for as long as it lives."""
    if not _hooks:
        _hooks.append(True)
        os.register_at_fork(before=_stop_all, after_in_parent=_go_on, after_in_child=_renew)
    _open.add(store)


def _stop_all() -> None:
    _stopped.extend(_open)
    for store in _stopped:
        store.stop()


def _go_on() -> None:
    while _stopped:
        _stopped.pop().go_on()


def _renew() -> None:
    while _stopped:
        _stopped.pop().renew()
