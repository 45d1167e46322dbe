"""A store's or database's URL: what libpq gets of it, and how it may be shown."""

from __future__ import annotations

from collections.abc import Container
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

POSTGRES = ("postgres", "postgresql")


def is_postgres(words: str) -> bool:
    scheme, found, _ = words.partition("://")
    return bool(found) and scheme in POSTGRES


def shown(words: str) -> str:
    """The URL without what nobody else may see; a path as it is."""
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


def read_postgres(url: str, own: Container[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """What libpq gets of a PostgreSQL URL, as keyword arguments of `psycopg.connect`; and those
    options of its query that are ours.

    Args:
        own: their names.

    Raises:
        ValueError: libpq cannot read it.
    """
    import psycopg  # of an extra: who has such a URL has it
    from psycopg.conninfo import conninfo_to_dict

    base, _, query = url.partition("?")
    if base.count("@") > 1 or "#" in url:
        raise ValueError(
            "a PostgreSQL URL with an '@' or '#' in its password: write them as %40 and %23"
        )
    options = parse_qsl(query, keep_blank_values=True)
    kept = urlencode([one for one in options if one[0] not in own], quote_via=quote)
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
    return conninfo, {name: value for name, value in options if name in own}
