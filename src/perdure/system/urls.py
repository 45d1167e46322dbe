"""URLs of stores and databases: the part that libpq gets, and the form that may be shown."""

from __future__ import annotations

import os
import re
from collections.abc import Container
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from perdure.system.late_imports import loading

POSTGRES = ("postgres", "postgresql")
SQLITE = "sqlite:///"


def is_postgres(words: str) -> bool:
    scheme, found, _ = words.partition("://")
    return bool(found) and scheme in POSTGRES


def shown(words: str) -> str:
    """Returns the URL without its secrets; a path as it is."""
    scheme, _, rest = words.partition("://")
    if not is_postgres(words):
        return words
    base, _, query = rest.partition("?")
    login, at, place = base.rpartition("@")
    kept = [
        (name, value)
        for name, value in parse_qsl(query, keep_blank_values=True)
        if "password" not in name.lower()
    ]
    who = login.partition(":")[0] + at
    return f"{scheme}://{who}{place}" + (f"?{urlencode(kept, safe='/,:')}" if kept else "")


TRUSTED = (
    "hostaddr",
    "sslmode",
    "sslrootcert",
    "sslcrl",
    "sslcrldir",
    "sslcert",
    "sslkey",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "channel_binding",
    "require_auth",
    "gssencmode",
    "krbsrvname",
)
"""Options by which libpq knows that it talks to the right server, and is not overheard. They are no
secrets, and go where the URL goes: without them whoever answers there would be believed."""


POSITIVE = ("keepalives_idle", "keepalives_interval", "keepalives_count")
WHOLE = ("connect_timeout", "keepalives", *POSITIVE, "tcp_user_timeout")
"""Options of libpq that are whole numbers."""

_WHOLE = re.compile(r" *[+-]?[0-9]{1,9} *")


def same_store(one: str, other: str) -> bool:
    """True if two URLs, as stores give them, are of one store, however it is reached."""
    return _place(one) == _place(other)


def _place(url: str) -> str:
    base, _, query = url.partition("?")
    if url.startswith(SQLITE):
        return SQLITE + os.path.realpath(url.removeprefix(SQLITE))  # behind links of folders
    if not is_postgres(url):
        return url
    left = [(name, value) for name, value in parse_qsl(query) if name not in TRUSTED]
    # Followers made by an earlier version store an IPv6 host without its brackets.
    base = base.replace("[", "").replace("]", "")
    return f"{base}?{urlencode(left)}"


def read_postgres(url: str, own: Container[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns libpq's part of a PostgreSQL URL, as keyword arguments of `psycopg.connect`; and
    those options of its query that are ours.

    Args:
        own: the names of our options.

    Raises:
        ValueError: libpq cannot read it.
    """
    with loading:
        import psycopg  # of an extra: who has such a URL has it
        from psycopg.conninfo import conninfo_to_dict

    base, _, query = url.partition("?")
    if base.count("@") > 1 or "#" in url:
        raise ValueError(
            "a PostgreSQL URL with an '@' or '#' in its password: write them as %40 and %23"
        )
    options = parse_qsl(query, keep_blank_values=True)
    theirs = [one for one in options if one[0] not in own]
    known_names = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    for name, value in theirs:
        # With an '@' after it, an apparent option may be the end of a password.
        if name not in known_names and "@" not in query:
            raise ValueError(f"libpq knows no option {name!r:.60} of a PostgreSQL URL")
        if name == "client_encoding" and value.lower() not in ("utf8", "utf-8", "auto"):
            raise ValueError("client_encoding in the URL must be UTF8")
    kept = urlencode([one for one in theirs if one[0] != "client_encoding"], quote_via=quote)
    conninfo: dict[str, Any] = {}
    try:
        conninfo = conninfo_to_dict(base + ("?" + kept if kept else ""))
        ports = str(conninfo.get("port", "")).split(",")
        known = all(not port or port.isdigit() for port in ports)
    except psycopg.Error:
        known = False
    if not known:  # libpq would say what it stumbled over: a part of the password, maybe
        raise ValueError(
            "libpq cannot read this PostgreSQL URL: write it as "
            "postgresql://user:password@host:port/database?schema=name, with special characters "
            "of the password as %XX"
        ) from None
    for name in WHOLE:
        value = str(conninfo.get(name, 0))
        if not _WHOLE.fullmatch(value) or ("-" in value and name in POSITIVE):
            raise ValueError(f"option {name} of the URL must be a whole number")
    return conninfo, {name: value for name, value in options if name in own}
