"""What all backends say of a feed's cursor that is not theirs."""

from __future__ import annotations

from perdure.errors import NotFound

NUMBER_DIGITS = 19
"""A number of so many digits may be none that a database keeps; of thousands, Python reads none."""


def foreign_cursor(url: str) -> NotFound:
    """For a cursor that does not lead to a place in this store's feed."""
    return NotFound(
        "that is no place in this store's feed",
        target=f"store {url}",
        hint="a cursor serves only the store that gave it, and not one that was restored from an "
        "older copy; begin with an empty one: what was had already comes again",
    )


def number_of(cursor: str) -> int:
    """The number that a cursor, or a part of it, is; -1: it is none, or empty."""
    fine = cursor.isdecimal() and cursor.isascii() and len(cursor) < NUMBER_DIGITS
    return int(cursor) if fine else -1
