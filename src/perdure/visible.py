"""Text of outsiders, made visible: nothing in it steers a terminal, reorders a line or begins one.

Names, words, values and messages of errors come from users of agents, from models and from tools.
Whoever prints one of ours prints them too.
"""

from __future__ import annotations


def visible(words: str) -> str:
    """The words on one line. What is not printable stands as its escape: control characters (line
    ends and tabs too), marks of direction, what takes no room, lone surrogates."""
    if words.isprintable():
        return words
    return "".join([c if c.isprintable() else repr(c)[1:-1] for c in words])


def visible_lines(words: str) -> str:
    """The same for a text of several lines: a line feed stays one."""
    if words.isprintable():
        return words
    return "\n".join(map(visible, words.split("\n")))
