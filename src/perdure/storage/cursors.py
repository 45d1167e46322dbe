"""The error of all backends for a feed's cursor that is not theirs."""

from __future__ import annotations

from perdure.errors import NotFound

NUMBER_DIGITS = 19
"""A number of so many digits may be none that a database keeps; of thousands, Python reads none."""


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
