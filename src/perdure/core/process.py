"""Which process this is, without asking the kernel at each step: a fork changes it."""

from __future__ import annotations

import os

pid = os.getpid()


def _note_fork() -> None:
    global pid
    pid = os.getpid()


os.register_at_fork(after_in_child=_note_fork)
