"""Ways out: what a person can do about a run."""

from __future__ import annotations

from msgspec import Struct

from perdure.core import shell


class Way(Struct, frozen=True):
    """Something that a person can do: in words, and as words of a ``perdure`` command line, where
    a command does it."""

    words: str
    command: tuple[str, ...] = ()


def by(words: str, command: str, *given: str, **options: str | bool) -> Way:
    """A way that a command is, whatever names are given to it."""
    return Way(words, shell.words(command, *given, **options))
