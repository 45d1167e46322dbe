"""PostgreSQL's errors translated into the one tree: what happened, to which store, and the way out.

Words of the server that may hold a password or host pass through `Address.hide`, and psycopg's
error is not chained to ours if it shows how the connection was to be made.
"""

from __future__ import annotations

import re

import psycopg
from psycopg import errors

from perdure.errors import (
    Corrupt,
    NotFound,
    PerdureError,
    StoreUnavailable,
    Unstorable,
    UnsupportedFormat,
)
from perdure.storage.postgres.address import Address

RESTORE = "run `perdure verify`, and restore the database from a copy; do not write to it"


class DeadlineError(Exception):
    """The server did not answer in time.

    `undone`: True if it confirmed the cancellation; otherwise its progress is unknown.
    """

    def __init__(self, *, undone: bool) -> None:
        super().__init__("the server did not answer in time")
        self.undone = undone


class InDoubtError(Exception):
    """The COMMIT returned, but was done on this server only."""


class AwayError(StoreUnavailable):
    """The server cannot be reached now, or cannot be written to; it may be back soon."""


def is_lost(error: BaseException) -> bool:
    """True if the error only says that the connection is gone, and nothing about the statement."""
    if isinstance(error, DeadlineError):
        return not error.undone
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return error.sqlstate is None or error.sqlstate[:2] == "08" or error.sqlstate in _SHUT_DOWN


_SHUT_DOWN = {"57P01", "57P02", "57P03", "57P05"}

AGAIN = (errors.SerializationFailure, errors.DeadlockDetected)
"""Nothing of the transaction was done, and the same one may succeed."""


def refused_option(error: BaseException) -> ValueError | None:
    """Returns the error for a value that libpq, or the server before it let us in, refused for one
    of the connection's options: another try would fail, too, and the server can be reached."""
    for words in _REFUSED:
        if found := re.search(words, str(error)):
            name = found.groupdict().get("name", "options")
            return ValueError(
                f"option {name} of the URL (or of libpq's environment): no such value"
            )
    return None


_REFUSED = (
    r'invalid integer value ".*" for connection option "(?P<name>\w+)"',
    r'invalid "?(?P<name>\w+)"? value',
    r"bad value for (?P<name>\w+)",
    r'invalid value for parameter "(?P<name>replication)"',
    r"invalid command-line argument|unrecognized configuration|invalid value for parameter"
    r"|FATAL: +--?\w+ requires a value",
)


def translate(error: BaseException, address: Address) -> PerdureError:
    """Returns the error of the tree."""
    target = f"store {address.shown}"
    if isinstance(error, PerdureError):
        return error
    if isinstance(error, DeadlineError):
        return AwayError(
            f"the server did not answer within {address.deadline_s:g} s",
            target=target,
            hint="look up what it waits for (pg_stat_activity): a lock, a full disk, or a "
            "synchronous standby that is gone; ?deadline=SECONDS in the URL waits longer",
        )
    if isinstance(error, InDoubtError):
        return StoreUnavailable(
            str(error),
            target=target,
            outcome="unknown",
            hint="bring the synchronous standby back, or take it out of synchronous_standby_names; "
            "then look at the agent's log, or make the same call with an idempotency key",
        )
    words = " ".join(address.hide(str(error)).split())
    if isinstance(error, psycopg.ProgrammingError | psycopg.DataError) and error.sqlstate is None:
        # An error of the client's own: the server never saw it, and another try would fail, too.
        return Unstorable(words, target=target, hint="nothing was sent; give it another value")
    state = getattr(error, "sqlstate", None) or _state_of(words)
    if isinstance(error, OSError):
        state = "OWN"
    if state in ("XX001", "XX002"):
        return Corrupt(words, target=target, hint=RESTORE)
    if state == "3D000":
        return NotFound(
            f"there is no such database ({words})",
            target=target,
            hint="create it: CREATE DATABASE name ENCODING 'UTF8'",
        )
    if state in ("42P01", "42883", "42703", "3F000"):
        return UnsupportedFormat(
            f"its tables are not those of this perdure ({words})",
            target=target,
            hint="they were dropped or changed; restore the schema from a copy",
        )
    known = state if state in _UNAVAILABLE else state[:2]
    problem, hint = _UNAVAILABLE.get(known, ("the database refused", "see its log"))
    kind = AwayError if known in _AWAY else StoreUnavailable
    return kind(f"{problem} ({words})", target=target, hint=hint, no_room=known == "53")


def _state_of(words: str) -> str:
    """Returns the SQLSTATE from the words: libpq does not pass the server's code on while it
    connects."""
    return next((state for part, state in _SAID.items() if re.search(part, words)), "")


_SAID = {
    r"could not create socket": "OWN",
    r"invalid page|could not read block": "XX001",
    r"certificate|does not support SSL|SSL error: .*alert": "TLS",
    r"authentication failed|no password supplied": "28P01",
    r'database ".*" does not exist': "3D000",
    r'role ".*" does not exist|no pg_hba.conf entry|not permitted to log in': "28000",
    r"permission denied": "42501",
    r"too many|connection slots": "53300",
    r"starting up|shutting down|not yet accepting|recovery": "57P03",
    r"session is read-only|not in hot standby|is in hot standby": "25006",
}

_AWAY = ("", "OWN", "08", "57", "25006", "53300")

_UNAVAILABLE: dict[str, tuple[str, str]] = {
    "": (
        "the server cannot be reached",
        "check host, port and network; the call may be made again when it is up",
    ),
    "OWN": (
        "this process can open no connection",
        "it may have too many open files: close some, or raise the limit (`ulimit -n`); then the "
        "call may be made again",
    ),
    "08": ("the connection was lost", "the call may be made again"),
    "25006": (
        "the server is read-only",
        "it is a standby, or set read-only: name the primary in the URL, or all hosts "
        "(postgresql://a,b/db), of which the one that can be written to is taken",
    ),
    "TLS": (
        "TLS failed, and nothing was sent",
        "check the URL's sslmode and sslrootcert: which authority vouches for the server, and "
        "under which name",
    ),
    "28P01": ("wrong user or password", "check the URL's user and password, or ~/.pgpass"),
    "28": ("this user may not log in", "check the URL, and the server's pg_hba.conf"),
    "42501": (
        "permission denied",
        "give this user the role for what it does; docs/postgres.md tells which there are",
    ),
    "53300": (
        "the server has no connection free",
        "its max_connections must have room for those of all processes; ?pool_size=N in the URL",
    ),
    "53": ("the server is out of resources", "free disk, memory or connections, and try again"),
    "55P03": ("a lock could not be taken in time", "make the call again"),
    "57014": (
        "the server cancelled the statement",
        "its statement_timeout, or an operator, did; raise the limit for this user",
    ),
    "57": ("the server is shutting down or starting", "the call may be made again"),
    "58": ("the server has an input/output error", "see its log; the disk may be failing"),
    "40": ("other transactions conflicted too often", "make the call again"),
}
