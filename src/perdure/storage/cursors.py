"""What all backends say of a feed's cursor that is not theirs."""

from __future__ import annotations

from perdure.errors import NotFound


def foreign_cursor(url: str) -> NotFound:
    """For a cursor that does not lead to a place in this store's feed."""
    return NotFound(
        "that is no place in this store's feed", target=f"store {url}",
        hint="a cursor serves only the store that gave it, and not one that was restored from an "
        "older copy; begin with an empty one: what was had already comes again",
    )  # fmt: skip
