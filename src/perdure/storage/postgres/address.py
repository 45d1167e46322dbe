"""A store's URL: libpq's part, our own options, and the form that may be shown.

No part of a password is ever shown: not in a store's URL, and not in an error.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct

from perdure.system import processors
from perdure.system.urls import TRUSTED, read_postgres

SCHEMA = "perdure"
OWN = ("schema", "partitions", "pool_size", "pool_timeout", "deadline", "retry", "awake")
"""Options of the URL's query that are ours; libpq does not see them."""

PARTITIONS_MAX = 1024

AWAKE_S = 0.001
"""Three times what a commit beside local disks takes. A process that may use less than a whole
processor waits asleep, unless told otherwise: it would be stopped for the rest of each period."""

_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,49}")

DEFAULTS: dict[str, Any] = {
    "application_name": "perdure",
    "connect_timeout": 10,
    # A host that is gone without a word is noticed after half a minute, not after two hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
"""The options for libpq that the URL does not set."""


class Address(Struct, frozen=True):
    """The address of a store.

    Attributes:
        conninfo: libpq's part, as keyword arguments of `psycopg.connect`.
        shown: the URL without a password.
        partitions: hash partitions of the tables of a store that is made now; 0: none.
        pool_timeout_s: how long a caller waits for a free connection.
        deadline_s: how long a caller waits for the server's answer.
        retry_s: how long an open store tries to reach a server that is away.
        awake_s: how long a thread that commits again and again waits awake for an answer.
    """

    conninfo: dict[str, Any]
    shown: str
    schema: str
    partitions: int
    pool_size: int
    pool_timeout_s: float
    deadline_s: float
    retry_s: float
    awake_s: float

    def hide(self, text: str) -> str:
        """Returns somebody else's text without the password."""
        for name in ("password", "sslpassword"):
            secret = self.conninfo.get(name)
            if secret:
                text = text.replace(str(secret), "***").replace(quote(str(secret), ""), "***")
        return text


def parse(url: str) -> Address:
    """Reads a URL.

    Raises:
        ValueError: libpq cannot read it, or an option is out of its bounds.
    """
    conninfo, options = read_postgres(url, OWN)
    schema = options.get("schema", SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema):
        raise ValueError(
            f"schema {schema!r} must be small letters, digits and underscores, at most 50 of them"
        )
    if "," in str(conninfo.get("host", "")):
        conninfo.setdefault("target_session_attrs", "read-write")
    return Address(
        {**DEFAULTS, **conninfo},
        _shown(conninfo, schema),
        schema,
        int(_number(options, "partitions", 0, 0, PARTITIONS_MAX)),
        int(_number(options, "pool_size", 8, 1, 1000)),
        _number(options, "pool_timeout", 30, 0.001, 3600),
        _number(options, "deadline", 30, 0.01, 3600),
        _number(options, "retry", 10, 0, 3600),
        _number(options, "awake", AWAKE_S if processors.allowed() >= 1 else 0, 0, 1),
    )


def _number(options: dict[str, str], name: str, default: float, least: float, most: float) -> float:
    try:
        value = float(options.get(name, default))
    except ValueError:
        value = most + 1
    if not least <= value <= most or (name in ("partitions", "pool_size") and value % 1):
        raise ValueError(f"option {name} of the URL must be a number from {least:g} to {most:g}")
    return value


def _shown(conninfo: dict[str, Any], schema: str) -> str:
    """Returns one spelling for each store, from what libpq understood: URLs that lead to one store
    are compared by it (`urls.same_store`). It keeps the options that establish trust, because it
    may be used to connect. (`urls.shown` only removes the password from a given URL.)"""
    user = f"{quote(str(conninfo['user']), '')}@" if conninfo.get("user") else ""
    hosts = str(conninfo.get("host", "")).split(",")
    ports = str(conninfo.get("port", "")).split(",")
    if len(ports) < len(hosts):
        ports = ports * len(hosts)
    where = ",".join(
        _host(host) + (f":{port}" if port else "") for host, port in zip(hosts, ports, strict=False)
    )
    database = quote(str(conninfo.get("dbname", "")), "")
    kept = {"schema": schema} if schema != SCHEMA else {}
    kept |= {name: str(conninfo[name]) for name in TRUSTED if conninfo.get(name)}
    query = urlencode(kept, safe="/,:", quote_via=quote)
    return f"postgresql://{user}{where}/{database}" + (f"?{query}" if query else "")


def _host(host: str) -> str:
    """Returns a host as it stands in a URL, where a colon begins the port: an IPv6 address is in
    brackets, and in any other name, a socket's directory, say, a colon is written as %3A."""
    if ":" in host and not host.startswith(("/", "@")):
        return f"[{quote(host, ':')}]"
    return quote(host, "")
