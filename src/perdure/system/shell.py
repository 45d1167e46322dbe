"""Commands for people to paste into a shell, safe whatever a name holds."""

from __future__ import annotations

import re
from collections.abc import Iterable

_BARE = re.compile(r"(?!=)[\w@%+=:,./-]+", re.ASCII)  # zsh reads =word as the path of a command
_KEPT = re.compile(r"[^\x00-\x1f\x7f`'\\]+")


def quote(word: str) -> str:
    """Returns one word of a command line, quoted so that it shows, and holds, no control character.

    What is not printable stands as the bytes of its UTF-8, in the ``$'…'`` of bash, zsh, ksh and
    POSIX 2024; so does a backtick, for messages put commands between those.
    """
    if _BARE.fullmatch(word):
        return word
    if word and word.isprintable() and _KEPT.fullmatch(word):
        return f"'{word}'"
    return "$'" + "".join(map(_escaped, word)) + "'" if word else "''"


def _escaped(character: str) -> str:
    # A quote is escaped without one, and ! too: a shell that expands history in typed lines knows
    # no $'…', and would take \' for its end.
    if character.isprintable() and character not in "`'\\!":
        return character
    wrong = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", wrong))


def join(words: Iterable[str]) -> str:
    return " ".join(map(quote, words))


def words(command: str, *given: str, **options: str | int | bool) -> tuple[str, ...]:
    """Returns the words of a perdure command, after ``perdure``.

    Options follow the arguments, as people write them; but precede them, with ``--`` between, if an
    argument begins with - and would be taken for an option.

    Args:
        options: with their values; True for one that has none.
    """
    apart = any(word.startswith("-") for word in given)
    chosen: list[str] = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            chosen.append(option)
        elif apart or str(value).startswith("-"):
            chosen.append(f"{option}={value}")
        else:
            chosen += [option, str(value)]
    if apart:
        return (*command.split(), *chosen, "--", *given)
    return (*command.split(), *given, *chosen)


def perdure(command: str, *given: str, **options: str | int | bool) -> str:
    """Returns a perdure command line, to paste; see `words`."""
    return join(["perdure", *words(command, *given, **options)])
