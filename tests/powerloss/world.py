"""The world that the tools of a recorded run act on: it is beside the store, and is told of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

world: list[str] = []
"""What the tools did, in order."""

_listeners: list[Callable[[str], None]] = []
"""Told at each moment inside the run, with the effect that just happened, or ""."""


def moment(effect: str = "") -> None:
    for listener in _listeners:
        listener(effect)


def act(effect: str) -> None:
    moment()  # I5: the intent is durable before the tool is called, and so is what came before it
    world.append(effect)
    moment(effect)


@contextmanager
def recorded(acknowledged: Callable[[], None], mark: Callable[[str], object]) -> Iterator[None]:
    """A new world, for a run from its start to its end. `mark` is told of each effect when it has
    happened."""
    world.clear()

    def listener(effect: str) -> None:
        mark(effect) if effect else acknowledged()

    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.clear()
