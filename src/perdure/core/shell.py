"""Commands for people to paste into a shell: whatever a name holds, they do what they say."""

from __future__ import annotations

import re
from collections.abc import Iterable

_BARE = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_KEPT = re.compile(r"[^\x00-\x1f\x7f`'\\]+")


def quote(word: str) -> str:
    """One word of a command line, which shows, and holds, no control character.

    What is not printable stands as the bytes of its UTF-8, in the ``$'…'`` of bash, zsh, ksh and
    POSIX 2024; so does a backtick, for messages put commands between those.
    """
    if _BARE.fullmatch(word):
        return word
    if word and word.isprintable() and _KEPT.fullmatch(word):
        return f"'{word}'"
    return "$'" + "".join(map(_escaped, word)) + "'" if word else "''"


def _escaped(character: str) -> str:
    if character in "'\\":
        return "\\" + character
    if character.isprintable() and character != "`":
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def join(words: Iterable[str]) -> str:
    return " ".join(map(quote, words))


def perdure(command: str, *given: str, **options: str | int) -> str:
    """A command of ours: its options first, then what is given, also where that begins with -."""
    words = ["perdure", command]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}={value}"]
    if any(word.startswith("-") for word in given):
        words.append("--")
    return join([*words, *given])
