"""Random bytes for every commit, drawn from the kernel for many commits at once.

A draw is a system call that lets go of the interpreter's lock: in an event loop beside a thread
that commits, it costs a change of threads each time.
"""

from __future__ import annotations

import os

SIZE = 24
"""An envelope's salt, and the id of a payload."""

DRAWN_AT_ONCE = 128

_drawn: list[bytes] = []
os.register_at_fork(after_in_child=_drawn.clear)  # a child must not use what its parent will


def random_bytes() -> bytes:
    """`SIZE` bytes that nobody had before. Any thread may call it."""
    while True:
        try:
            return _drawn.pop()
        except IndexError:
            pool = os.urandom(SIZE * DRAWN_AT_ONCE)
            _drawn.extend(pool[at : at + SIZE] for at in range(0, len(pool), SIZE))
