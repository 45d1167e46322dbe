"""A PostgreSQL store's URL as it shows it leads to the store again."""

from __future__ import annotations

import pytest

from perdure.storage.postgres.address import parse
from perdure.system.urls import WHOLE, same_store

pytest.importorskip("psycopg")

SHAPES = [
    "postgresql://ann@[::1]:54733/y?schema=six",
    "postgresql://ann@[::1]/y",
    "postgresql://ann@127.0.0.1:5432,[::1]:5433/y",
    "postgresql://[fe80::1%25eth0]:5432/y",
    "postgresql:///y?host=::1&port=5433",
    "postgresql://ann@/y?host=/srv/a:b",
    "postgresql://ann@%2Fvar%2Frun%2Fpg,[::1]:5432/y",
    "postgresql://a%3Ab@db.example:5432/x%2Fy",
]


@pytest.mark.parametrize("url", SHAPES)
def test_what_a_store_shows_leads_to_it_again(url: str) -> None:
    """An IPv6 host lost its brackets: `store.url` was postgresql://ann@::1:54733/y, which libpq
    cannot read. A follower kept that as its source, so `promote` could not reach a source that was
    up, and proposed to take it for lost; so did a socket's directory with a colon in it."""
    there = parse(url)
    again = parse(there.shown)
    assert {name: again.conninfo.get(name) for name in ("host", "user", "dbname")} == {
        name: there.conninfo.get(name) for name in ("host", "user", "dbname")
    }
    assert ports(again.conninfo) == ports(there.conninfo)
    assert (again.schema, again.shown) == (there.schema, there.shown)


def ports(conninfo: dict[str, object]) -> list[str]:
    hosts = str(conninfo["host"]).split(",")
    given = str(conninfo.get("port", "")).split(",")
    return given * len(hosts) if len(given) < len(hosts) else given


def test_a_source_that_was_kept_without_brackets_is_the_same_store() -> None:
    shown = parse("postgresql://ann@[::1]:54733/y?schema=six").shown
    assert same_store("postgresql://ann@::1:54733/y?schema=six", shown)
    assert not same_store("postgresql://ann@::2:54733/y?schema=six", shown)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", ["x", "", "1.5", "1e3", "٣", "9999999999999"])
def test_an_option_that_is_no_number_is_refused_by_its_name(name: str, value: str) -> None:
    """`connect_timeout=x` was a value that cannot be stored, with a hint to give another one."""
    with pytest.raises(ValueError, match=rf"option {name} of the URL must be a whole number"):
        parse(f"postgresql://ann:secret@db.example/y?{name}={value}")
    assert parse(f"postgresql://db.example/y?{name}=%205").conninfo[name].strip() == "5"


def test_what_libpq_takes_for_no_limit_is_taken() -> None:
    assert parse("postgresql://db.example/y?connect_timeout=-1").conninfo["connect_timeout"] == "-1"
    with pytest.raises(ValueError, match="keepalives_idle"):
        parse("postgresql://db.example/y?keepalives_idle=-1")
