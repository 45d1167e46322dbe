"""What a URL, a user or a database sets beside: kept out of the way, or refused by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import perdure
from perdure.errors import StoreUnavailable
from tests.postgres.bouncer import Bouncer
from tests.postgres.server import USER, Server


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("sslmode=maybe", "sslmode"),
        ("target_session_attrs=any-old", "target_session_attrs"),
        ("channel_binding=x", "channel_binding"),
        ("gssencmode=x", "gssencmode"),
        ("ssl_min_protocol_version=x", "ssl_min_protocol_version"),
        ("replication=x", "replication"),
        ("options=-cno_such_setting=1", "options"),
        ("options=--x", "options"),
        ("connect_timeout=x", "connect_timeout"),
        ("keepalives_idle=x", "keepalives_idle"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_its_name(url: str, option: str, name: str) -> None:
    """ "The server cannot be reached: check host, port and network", it was, or that a value cannot
    be stored."""
    with pytest.raises(ValueError, match=f"option {name} of the URL"):
        perdure.open(f"{url}&{option}")


@pytest.fixture
def backslashes(server: Server) -> Iterator[Callable[[], None]]:
    """Lets texts of the user's sessions have escapes, as they had before PostgreSQL 9.1."""

    def off() -> None:
        server.sql(f"ALTER ROLE {USER} SET standard_conforming_strings = off")

    yield off
    server.sql(f"ALTER ROLE {USER} RESET standard_conforming_strings")


@pytest.mark.parametrize("made_before", [True, False])
def test_texts_with_backslashes_are_what_they_are(
    url: str, backslashes: Callable[[], None], made_before: bool
) -> None:
    """Where `standard_conforming_strings` was off for the user, our functions read their own texts
    otherwise: a second commit "could not get in between those of others"."""
    if made_before:
        perdure.open(url).close()
    backslashes()
    with perdure.open(url) as store:
        agent = store.agent("a\\b", dict)
        with agent.edit("c\\d") as draft:
            draft["e\\f"] = ["\\", b"\\\x00"]
        agent.checkpoint("g\\h")

        @perdure.agent(dict)
        def act(run: perdure.Run[dict]) -> object:
            return run.wait_for("i\\j")

        store.start(act, "k\\l").signal("i\\j", b"\\")
        assert store.run(act, "k\\l") == b"\\"
    with perdure.open(url) as store:
        agent = store.agent("a\\b", dict)
        assert agent.state == {"e\\f": ["\\", b"\\\x00"]}
        assert [commit.cause.what for commit in agent.log()][-2:] == ["c\\d", "g\\h"]
        agent.verify()


def test_behind_a_pooler_it_is_refused(
    server: Server, url: str, backslashes: Callable[[], None]
) -> None:
    """There a session is set for whoever has it next."""
    backslashes()
    bouncer = Bouncer(server)
    try:
        with pytest.raises(StoreUnavailable, match="standard_conforming_strings is off") as refused:
            perdure.open(bouncer.url(url))
        assert "ALTER ROLE" in refused.value.hint
    finally:
        bouncer.end()
