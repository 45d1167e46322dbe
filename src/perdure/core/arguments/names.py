"""Checks of names and of callers' words: text that every store can keep."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from perdure.core.arguments import exact_types
from perdure.core.arguments.bounds import NAME_MAX, TAGS_MAX, WORDS_MAX
from perdure.core.arguments.exact_types import is_a
from perdure.model import Cause

SEQ_DIGITS = 30
"""More than any seq has, and fewer than Python refuses to read."""

DATE_LIKE = re.compile(r"\d{4}-\d\d-\d\d")


def check_name(name: str, of: str) -> str:
    """Returns a name as a plain str. Refuses what cannot name an agent, a branch or a checkpoint.

    Raises:
        TypeError: it is not a str. ValueError: it is empty, too long, or not valid text.
    """
    if type(name) is not str:
        name = _plain_text(name, f"the name of {of}")
    if not name or len(name) > NAME_MAX or "\0" in name or not is_text(name):
        raise ValueError(
            f"the name of {of} must have 1 to {NAME_MAX} characters, no NUL, no lone surrogate: "
            f"{shown(name)}"
        )
    return name


def check_label(name: str) -> str:
    """Returns a name as a plain str. Refuses what cannot name a new branch or checkpoint.

    Raises:
        TypeError, ValueError: as `check_name`; or it reads as another way to name a commit.
    """
    name = check_name(name, "a branch or checkpoint")
    if name.startswith("@"):
        raise ValueError(f"names that begin with @ are reserved for the store: {name!r:.60}")
    kind = "a commit's number" if is_seq(name) else "a moment" if is_moment(name) else ""
    if kind:
        raise ValueError(
            f"the name {name!r} of a branch or checkpoint would be taken for {kind}; "
            f"put a word before it, e.g. {f'at {name}'!r}"
        )
    return name


NUMBER_MAX = 10
"""The characters that the number behind the name of a run's checkpoint may have."""


def check_point(name: str) -> str:
    """Returns a name as a plain str. Refuses what cannot name a checkpoint of a run, behind which a
    number may come.

    Raises:
        TypeError, ValueError: as `check_label`; or it is too long for a number behind it.
    """
    name = check_label(name)
    if len(name) > NAME_MAX - NUMBER_MAX:
        raise ValueError(
            f"the name of a run's checkpoint may have {NAME_MAX - NUMBER_MAX} characters, as a "
            f"number may follow: {shown(name)}"
        )
    return name


def point_before(name: str) -> str:
    """Returns the name for the state before a call of that name."""
    return f"before {name}"[: NAME_MAX - NUMBER_MAX]


def incarnation_of(run: str) -> int:
    """Returns the number of the agent's incarnation, read from the id of one of its runs."""
    said = run.rpartition("~")[2]  # which names have escaped
    return int(said) if "~" in run and said.isdecimal() else 1


def is_seq(word: str) -> bool:
    """True if the word reads as the number of a commit."""
    return word.isascii() and word.isdecimal() and len(word) <= SEQ_DIGITS


def is_moment(word: str) -> bool:
    """True if the word reads as a moment: a date, a time and a zone."""
    if not DATE_LIKE.match(word):
        return False
    try:
        return datetime.fromisoformat(word).tzinfo is not None
    except ValueError:
        return False


def words_of(given: Iterable[str], of: str) -> tuple[str, ...]:
    """Returns several words as a tuple. Refuses a single text, which would be taken letter by
    letter.

    Raises:
        TypeError: a single text, not an iterable, or one of them is not a text.
        ValueError: there are too many of them, or one is too long or not valid text.
    """
    if is_a(given, str) or is_a(given, bytes) or not issubclass(type(given), Iterable):
        raise TypeError(f"{of} must be several texts, e.g. [{shown(given)}], not {shown(given)}")
    words: list[str] = []
    for word in given:
        words.append(check_words(word, f"each of {of}"))
        if len(words) > TAGS_MAX:
            raise ValueError(f"{of}: at most {TAGS_MAX:,}")
    return tuple(words)


def check_words(words: str, of: str) -> str:
    """Returns a caller's words as a plain str. Refuses what a log cannot keep.

    Raises:
        TypeError: it is not a str. ValueError: it is too long, or not valid text.
    """
    if type(words) is str and len(words) <= WORDS_MAX and words.isascii():
        return words
    if type(words) is not str:
        words = _plain_text(words, of)
    if len(words) > WORDS_MAX:
        raise ValueError(
            f"{of} may have at most {WORDS_MAX:,} characters, not {len(words):,}; "
            "keep longer text in the state"
        )
    if not is_text(words):
        raise ValueError(
            f"{of} has a lone surrogate: {words!r:.60}: no text; "
            "word.encode('utf-8', 'replace').decode() makes it one"
        )
    return words


def check_text(text: str, of: str) -> str:
    """Returns a text of any length as a plain str, with its lone surrogates spelled out.

    Raises:
        TypeError: it is not a str.
    """
    if type(text) is not str:
        text = _plain_text(text, of)
    return text if is_text(text) else text.encode("utf-8", "backslashreplace").decode()


def check_key(key: str, of: str = "an idempotency key") -> str:
    """Returns a key as a plain str. Refuses what names no command.

    Raises:
        TypeError: it is not a str. ValueError: it is empty, too long, or not valid text.
    """
    key = check_words(key, of)
    if not key:
        raise ValueError(
            f"{of} is not empty, or two whose names were forgotten would be "
            "taken for one; key=None says that there is none"
        )
    if "\0" in key:
        raise ValueError(f"{of} must not contain NUL: {key!r:.60}")
    return key


def cause_of(
    kind: str,
    what: str,
    key: str | None,
    tags: Iterable[str],
    *,
    group: str | None = None,
    trace: str | None = None,
) -> Cause:
    """Returns the cause of a commit, made of the caller's words.

    Raises:
        TypeError: one is not a text, or the tags are a single text.
        ValueError: one is too long or not valid text, or the key is empty.
    """
    what = check_words(what, "what=, why a commit is made,")
    if key is not None:
        key = check_key(key)
    if group is not None:
        group = check_words(group, "group=")
    if trace is not None:
        trace = check_words(trace, "trace=")
    labels = () if type(tags) is tuple and not tags else words_of(tags, "tags")
    return Cause(kind, what, key=key, group=group, tags=labels, trace=trace)


def check_cause(cause: Cause) -> None:
    """Refuses words of a commit's cause that are not valid text, before anything is written.

    Raises:
        ValueError: one is not valid text. TypeError: one is not a str.
    """
    if not (cause.key or cause.group or cause.trace or cause.tags):
        what = cause.what
        if not what or (type(what) is str and what.isascii()):
            return  # a run's, of most: what is empty is not written
    for word in (cause.what, cause.key, cause.group, cause.trace, *cause.tags):
        if word is None or (type(word) is str and word.isascii()):
            continue
        if not is_a(word, str):
            raise TypeError(f"the words and labels of a commit must be texts, not {shown(word)}")
        if not is_text(word):
            raise ValueError(
                f"a lone surrogate in {word!r:.60}: no text; "
                "word.encode('utf-8', 'replace').decode() makes it one"
            )


def is_text(word: str) -> bool:
    """True if the word can be written as UTF-8."""
    if word.isascii():
        return True
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: object) -> str:
    """Returns a short text that shows a refused value in the message that refuses it.

    Its `repr` is the caller's code, and may fail: the refusal stands nevertheless.
    """
    if type(value) is str:
        return repr(value[:60]) + ("…" if len(value) > 60 else "")
    try:
        return f"{value!r:.60}"
    except Exception:
        return f"a {type(value).__qualname__}"


def _plain_text(value: object, of: str) -> str:
    """Returns the text of an instance of a subclass of str (a StrEnum's member, a framework's) as
    it is stored."""
    if is_a(value, str):
        return exact_types.text(value)
    raise TypeError(f"{of} must be a text, not {shown(value)}")
