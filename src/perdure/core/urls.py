"""A store's or database's URL, as it may be shown: without its password."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

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
