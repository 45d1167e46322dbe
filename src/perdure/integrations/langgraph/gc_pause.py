"""Garbage collection paused while one large value is built."""

from __future__ import annotations

import gc
import os

_held_off = False


class Calm:
    """Context manager: Python's garbage collector rests until the block ends.

    Building thousands of messages makes tens of thousands of objects, none of them garbage. Every
    few hundred of them the collector would look for some, time and again among all objects that
    the program has: that took two thirds of the time.

    Blocks that overlap in several threads do not prolong each other's rest, so that the collector
    is never kept off for longer than one read. One that the program switched off stays off.
    """

    __slots__ = ("_mine",)

    def __enter__(self) -> None:
        global _held_off
        self._mine = gc.isenabled()
        if self._mine:
            gc.disable()
            _held_off = True

    def __exit__(self, *_: object) -> None:
        global _held_off
        if self._mine:
            gc.enable()
            _held_off = False


def _go_on_in_child() -> None:
    """The thread that would switch it on again is not there."""
    global _held_off
    if _held_off:
        gc.enable()
        _held_off = False


os.register_at_fork(after_in_child=_go_on_in_child)
