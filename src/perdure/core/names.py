"""What may be a name or a caller's words: text that every store can keep."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from perdure.model import Cause

NAME_MAX = 200
SEQ_DIGITS = 30
"""More than any seq has, and fewer than Python refuses to read."""

DATE_LIKE = re.compile(r"\d{4}-\d\d-\d\d")


def check_name(name: str, of: str) -> None:
    """Refuse what cannot name an agent, a branch or a checkpoint.

    Raises:
        TypeError: it is no str. ValueError: it is empty, overlong, or no text.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of {of} is a text, not {name!r:.60}")
    if not name or len(name) > NAME_MAX or "\0" in name or not is_text(name):
        raise ValueError(
            f"the name of {of} has 1 to {NAME_MAX} characters, no NUL, no lone surrogate: "
            f"{name!r:.60}"
        )


def check_label(name: str) -> None:
    """Refuse what cannot name a new branch or checkpoint.

    Raises:
        TypeError, ValueError: as `check_name`; or it reads as another way to say which commit.
    """
    check_name(name, "a branch or checkpoint")
    if name.startswith("@"):
        raise ValueError(f"names that begin with @ are the store's own: {name!r:.60}")
    kind = "a commit's number" if is_seq(name) else "a moment" if is_moment(name) else ""
    if kind:
        raise ValueError(
            f"the name {name!r} of a branch or checkpoint would be taken for {kind}; "
            f"put a word before it, e.g. {f'at {name}'!r}"
        )


def is_seq(word: str) -> bool:
    """Whether it reads as the number of a commit."""
    return word.isascii() and word.isdecimal() and len(word) <= SEQ_DIGITS


def is_moment(word: str) -> bool:
    """Whether it reads as a moment, which has a date, a time and a zone."""
    if not DATE_LIKE.match(word):
        return False
    try:
        return datetime.fromisoformat(word).tzinfo is not None
    except ValueError:
        return False


def words_of(given: Iterable[str], of: str) -> tuple[str, ...]:
    """Several words, where one alone would be taken for its letters.

    Raises:
        TypeError: one alone, or nothing that can be gone through.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{of} are several texts, e.g. [{given!r:.60}], not {given!r:.60}")
    return tuple(given)


def cause_of(
    kind: str, what: str, key: str | None, tags: Iterable[str], *, group: str | None = None,
    trace: str | None = None,
) -> Cause:  # fmt: skip
    """A caller's words for a commit; `check_cause` looks at them once more when it is made.

    Raises:
        ValueError: the key is empty. TypeError: tags that are one text.
    """
    if key == "":
        raise ValueError(
            "an idempotency key is not empty, or two commands whose names were forgotten would be "
            "taken for one; key=None says that there is none"
        )
    labels = words_of(tags, "tags") if tags else ()
    return Cause(kind, what, key=key, group=group, tags=labels, trace=trace)


def check_cause(cause: Cause) -> None:
    """Refuse words of a commit's cause that are no text, before anything is written.

    Raises:
        ValueError: one is no text. TypeError: one is no str.
    """
    for word in (cause.what, cause.key, cause.group, cause.trace, *cause.tags):
        if word is None or (type(word) is str and word.isascii()):
            continue
        if not isinstance(word, str):
            raise TypeError(f"the words and labels of a commit are texts, not {word!r:.60}")
        if not is_text(word):
            raise ValueError(
                f"a lone surrogate in {word!r:.60}: no text; "
                "word.encode('utf-8', 'replace').decode() makes it one"
            )


def is_text(word: str) -> bool:
    """Whether it can be written as UTF-8."""
    if word.isascii():
        return True
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True
