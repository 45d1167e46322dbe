"""Why somebody is better than we are, where somebody is. Each was found by looking: profiles of
both, counted calls, syncs and bytes."""

from __future__ import annotations

from bench.peers.contestants import DELTAS, LIMITS, OURS, SAVERS, compared_with
from bench.peers.results import Work

NOT_LOOKED_AT = "why was not looked at"
CLOSE = 0.95
"""A ratio nearer to 1 than that is no difference that a noisy machine shows."""


def reason(work: Work, name: str) -> str:
    """Empty where they are not better, and for what is ours."""
    if name in OURS:
        return ""
    ratio = work.ratio(name, compared_with(name))
    if ratio is None or ratio >= CLOSE:
        return ""
    return _why(work.key.partition(" at ")[0], name)


def _why(key: str, name: str) -> str:
    if name in LIMITS:
        return "the limit: no state, no log, no proof"
    return WHY.get((key, name)) or WHY.get(("", name)) or WHY.get((key, "")) or NOT_LOOKED_AT


_ROW = "it keeps a row a message, without a chain of hashes, fences or keys"
_WHOLE = "it writes the whole state, which is cheap while that is short"
_NEW = "it writes what is new, without a chain of hashes, fences or keys"
_NO_PYDANTIC = "it loads no pydantic, which is what our typed state is made of"
_SERVER = "its process is only the service: what has the journal is the server, which lives on"
_ANOTHER_PROCESSOR = (
    "its server works on another processor; both together need more than twice our CPU"
)
_FOLD = (
    "it has each state whole; ours reads, proves and applies the commits since the last snapshot, "
    "which is every 114 such messages"
)
_ADDS_UP = "it, too, adds up what was written since a snapshot, but proves none of it by its hash"
_OPENING = (
    "it opens one connection and reads a row or a few; ours opens two, proves that the files are "
    "its own and whole, and then each commit since the last snapshot"
)

WHY: dict[tuple[str, str], str] = {
    ("", "LangGraph, no saver"): "it keeps nothing",
    ("step", "SQLiteSession"): _ROW,
    ("step", "eventsourcing"): _ROW,
    ("step", ""): _WHOLE,
    **{("step", name): _NEW for name in DELTAS},
    ("steps", "SQLiteSession"): _ROW,
    ("steps", "eventsourcing"): _ROW,
    ("steps", "Restate"): _ANOTHER_PROCESSOR,
    ("step", "Restate"): _ANOTHER_PROCESSOR,
    **{
        ("steps", name): "ours has the begin and end of its run in it; its own are not timed"
        for name in SAVERS
    },
    ("concurrent", "DBOS, PostgreSQL"): (
        "a run of ours begins with four or five round trips, and its begin and end are commits"
    ),
    ("concurrent", ""): (
        "ours are runs, whose begin and end are commits as well, and take as long as 15 steps; "
        "with 40 steps each instead of 10 ours need less CPU than eventsourcing and SQLiteSession"
    ),
    ("tokens", ""): (
        "a token of ours is an edit of a typed state: validated, compared, hashed, linked; theirs "
        "is a row"
    ),
    ("kill", "eventsourcing"): f"{_NO_PYDANTIC}; nearly all of this is starting Python",
    ("kill", "Restate"): _SERVER,
    ("start", "eventsourcing"): _NO_PYDANTIC,
    ("start", "Restate"): _SERVER,
    ("memory", "eventsourcing"): f"{_NO_PYDANTIC}: 19 MB of ours",
    ("recent", ""): (
        "it reads rows; ours decodes each commit with its payload, and proves both by their hashes"
    ),
    ("past", "eventsourcing"): "it applies events, too, and proves none of them",
    **{("past", name): _ADDS_UP for name in DELTAS},
    ("past", ""): _FOLD,
    ("fork", ""): (
        "ours is two commits, the fork and its first change, on a state that is folded from the "
        "last snapshot"
    ),
    ("delete", ""): (
        "theirs is a DELETE or two; ours is a commit that says so, for which the branch, its head "
        "and its runs are read, and the log stays"
    ),
    ("delete", "Restate"): "its purge is a record in its server's log",
    ("signals", "Restate"): (
        "its handler stays loaded for a minute; a run of ours that waits is unloaded, and its "
        "signal begins a new turn of it"
    ),
    ("signals", "DBOS, PostgreSQL"): (
        "its workflow waits in a thread; a run of ours is unloaded, and taken up in ten or twelve "
        "round trips"
    ),
    ("files", "SQLiteSession"): _ROW,
    ("files", "eventsourcing"): _ROW,
    ("files", ""): (
        "it has few tables; an empty store of ours has 94 kB, a page for each of its 21 tables and "
        "indexes"
    ),
    ("written", "Restate"): (
        "its log has records; SQLite's, which ours is, has the whole of each page of 4 kB"
    ),
    ("written", ""): (
        "it writes a row; ours writes a row, moves the branch's head, and makes room in its WAL "
        "ahead, which is written twice until that is 4 MB long"
    ),
    ("resume", "SQLiteSession"): "it reads rows; ours proves hashes and validates a typed state",
    ("resume", "eventsourcing"): "it reads rows; ours proves hashes and validates a typed state",
    ("resume", ""): _OPENING,
    ("idle", ""): "our worker looks 20 times a second whether another executor has died",
}
"""By the work, without its length, and the contestant; an empty name is any other. Only what is
known: what nobody looked at says so."""
