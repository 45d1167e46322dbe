"""What is fuzzed: something that takes an input, and what may come of it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from perdure.errors import PerdureError
from tests.fuzz.mutating import Parts

FRAMES = 3


class Looks:
    """What one input came to, look by look. Errors that may be are noted; others go on up."""

    def __init__(self, *allowed: type[BaseException]) -> None:
        self.allowed = allowed or (PerdureError,)
        self.reached: list[str] = []

    @contextmanager
    def look(self, *more: type[BaseException]) -> Iterator[None]:
        try:
            yield
        except (*self.allowed, *more) as error:
            self.reached.append(place_of(error))

    def note(self, word: str) -> None:
        self.reached.append(word)


@dataclass(frozen=True)
class Target:
    """One thing to be fuzzed.

    Attributes:
        feed: takes an input. It may raise nothing; what it may meet, it notes in `Looks`.
        inputs: what it begins with, for a target without a corpus.
        prepare: what is done once, before memory is limited.
    """

    name: str
    feed: Callable[[Parts, Looks], None]
    allowed: tuple[type[BaseException], ...] = (PerdureError,)
    inputs: Callable[[], dict[str, Parts]] | None = None
    prepare: Callable[[], object] | None = None


def place_of(error: BaseException | None) -> str:
    """Where an error came from: kinds, files and lines of it and of its causes."""
    words = []
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
        lines = ",".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames)
        words.append(f"{type(error).__name__}@{lines}")
        error = error.__cause__
    return " < ".join(words)
