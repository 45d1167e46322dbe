"""Cursors as all backends keep them: the error for one that is not theirs, and the mark of the
message that one names."""

from __future__ import annotations

import base64
from hashlib import sha256

import msgspec
from msgspec import Struct

from perdure.core.arguments.names import incarnation_of
from perdure.errors import NotFound
from perdure.model import Message

NUMBER_DIGITS = 19
"""A number of so many digits may be none that a database keeps; of thousands, Python reads none."""

CHECK_BYTES = 8


class Mark(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The message that a cursor of `Backend.mail` names.

    A number says too little: a store that was put back from a copy, or a standby that took over
    and lacks the message, gives its number to another one. `agent` and `incarnation` tell whether
    it is gone for good reason: a deletion takes an agent's messages along.
    """

    check: bytes
    agent: str
    incarnation: int


_mark = msgspec.msgpack.Decoder(Mark).decode


def foreign_cursor(url: str) -> NotFound:
    """Returns the error for a cursor that does not lead to a place in this store's feed."""
    return NotFound(
        "the cursor is not a place in this store's feed",
        target=f"store {url}",
        hint="a cursor serves only the store that gave it, and not one that was restored from an "
        "older copy; begin with an empty one: entries that were read already come again",
    )


def number_of(cursor: str) -> int:
    """Returns the number in a cursor, or in a part of it; -1 if there is none."""
    fine = cursor.isdecimal() and cursor.isascii() and len(cursor) < NUMBER_DIGITS
    return int(cursor) if fine else -1


def mark_of(message: Message) -> str:
    """Returns the mark of a message, as a part of a cursor; it stays the same once a commit took
    the message out."""
    mark = Mark(_check(message), message.agent, incarnation_of(message.run))
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(mark)).decode()


def read_mark(text: str, url: str) -> Mark:
    """Returns the mark in a part of a cursor.

    Raises:
        NotFound: it is none.
    """
    try:
        return _mark(base64.b64decode(text.encode(), altchars=b"-_", validate=True))
    except (ValueError, msgspec.MsgspecError) as error:
        raise foreign_cursor(url) from error


def is_marked(message: Message, mark: Mark) -> bool:
    """True if it is the message that the cursor named."""
    return _check(message) == mark.check


def _check(message: Message) -> bytes:
    """Returns a digest of what no commit changes: the value goes when the message is taken out."""
    said = message.run, message.kind, message.name, message.key, message.who, message.at_micros
    return sha256(msgspec.msgpack.encode(said)).digest()[:CHECK_BYTES]
