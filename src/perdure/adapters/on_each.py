"""One act on many agents: trouble with one of them is that one's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from perdure.errors import Conflict, Corrupt, PerdureError, UnsupportedFormat

T = TypeVar("T")
R = TypeVar("R")


def on_each(agents: Iterable[T], act: Callable[[T], R]) -> list[R]:
    """Acts on each one, and returns what came of it.

    Raises:
        Corrupt, UnsupportedFormat, Conflict: of the first that cannot be read or changed, after all
            others are done.
    """
    done: list[R] = []
    failed: list[PerdureError] = []
    for agent in agents:
        try:
            done.append(act(agent))
        except (Corrupt, UnsupportedFormat, Conflict) as error:
            failed.append(error)
    if failed:
        raise min(failed, key=lambda error: isinstance(error, Conflict))
    return done
