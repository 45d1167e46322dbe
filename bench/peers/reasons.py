"""Why somebody is better than we are, where somebody is."""

from __future__ import annotations

from bench.peers.contestants import LIMITS, PERDURE
from bench.peers.results import Work

NOT_LOOKED_AT = "why was not looked at"
CLOSE = 0.95
"""A ratio nearer to 1 than that is no difference that a noisy machine shows."""


def reason(work: Work, name: str) -> str:
    """Empty where they are not better."""
    ratio = work.ratio(name, PERDURE)
    if ratio is None or ratio >= CLOSE:
        return ""
    return _why(work.key.partition(" at ")[0], name)


def _why(key: str, name: str) -> str:
    if name in LIMITS:
        return "the limit: no state, no log, no proof"
    return WHY.get((key, name)) or WHY.get((key, "")) or NOT_LOOKED_AT


_ROW = "it keeps a row a message, without a chain of hashes, fences or keys"
_WHOLE = "it writes the whole state, which is cheap while that is short"

WHY: dict[tuple[str, str], str] = {
    ("step", "SQLiteSession"): _ROW,
    ("step", "eventsourcing"): _ROW,
    ("step", "SqliteSaver"): _WHOLE,
    ("steps", "SQLiteSession"): _ROW,
    ("steps", "eventsourcing"): _ROW,
    ("files", "SQLiteSession"): _ROW,
    ("files", "eventsourcing"): _ROW,
    ("resume", "SQLiteSession"): "it reads rows; ours proves hashes and validates a typed state",
    ("resume", "eventsourcing"): "it reads rows; ours proves hashes and validates a typed state",
    ("idle", ""): "our worker looks 20 times a second whether another executor has died",
}
"""By the work, without its length, and the contestant; with an empty name: whoever it is. Only what
is known; what nobody looked at says so."""
