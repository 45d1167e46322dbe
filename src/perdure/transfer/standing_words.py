"""The relation of a store to another one, in words; and the command that finishes what fills it."""

from __future__ import annotations

from perdure.model import from_micros
from perdure.storage.standing import Why
from perdure.system import shell


def standing_words(why: Why) -> str:
    """Returns the rest of a sentence that begins with the store."""
    match why.kind:
        case "follows":
            return f"follows {why.url}, and no other"
        case "moved":
            return f"was moved to {why.url}"
        case "moving-out":
            return f"is being moved to {why.url}"
        case "promoted":
            return "was promoted: it is a store of its own"
        case "restoring":
            return f"is being restored from {why.url}"
        case "moving-in":
            return f"is being moved here from {why.url}"
    return f"is not free: {why.kind} {why.url}".rstrip()


def way_to_finish(why: Why, url: str) -> str:
    """Returns the hint that finishes what fills a store; empty if nothing does."""
    if why.kind == "restoring":
        order = shell.perdure("restore", why.url, url, at=from_micros(why.until).isoformat())
    elif why.kind == "moving-in":
        order = shell.perdure("migrate", why.url, url)
    else:
        return ""
    return f"`{order}` continues that, and finishes it"
