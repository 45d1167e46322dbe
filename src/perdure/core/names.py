"""What may be a name or a caller's words: text that every store can keep."""

from __future__ import annotations

from perdure.model import Cause

NAME_MAX = 200


def check_name(name: str, of: str) -> None:
    """Refuse what cannot name an agent, a branch or a checkpoint.

    Raises:
        ValueError: it is empty, overlong, or no text.
    """
    if not name or len(name) > NAME_MAX or "\0" in name or not is_text(name):
        raise ValueError(
            f"the name of {of} has 1 to {NAME_MAX} characters, no NUL, no lone surrogate: "
            f"{name!r:.60}"
        )


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
