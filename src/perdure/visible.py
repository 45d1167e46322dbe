"""Escapes text of outsiders: nothing in it can steer a terminal, reorder a line or begin one.

Names, words, values and messages of errors come from users of agents, from models and from tools.
Printing one of our messages prints them, too.
"""

from __future__ import annotations


def visible(words: str) -> str:
    """Returns the words on one line, with unprintable characters escaped: control characters (line
    ends and tabs too), marks of direction, characters without width, lone surrogates."""
    if words.isprintable():
        return words
    return "".join([c if c.isprintable() else repr(c)[1:-1] for c in words])


def visible_lines(words: str) -> str:
    """Returns a text of several lines like `visible`: line feeds stay."""
    if words.isprintable():
        return words
    return "\n".join(map(visible, words.split("\n")))
