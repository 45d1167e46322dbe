"""What a URL, a user or a database sets beside: kept out of the way, or refused by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import perdure
from perdure.errors import StoreUnavailable
from perdure.model import Checkpoint
from perdure.storage.postgres.backend import PostgresBackend
from perdure.storage.standing import ClosedError, Why
from perdure.testing.pen import Pen, refused
from tests.postgres.bouncer import Bouncer
from tests.postgres.conftest import Open
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
def settings(server: Server) -> Iterator[Callable[..., None]]:
    """Sets something for the user's sessions until the end of the test."""
    names: list[str] = []

    def put(name: str, value: str) -> None:
        names.append(name)
        server.sql(f"ALTER ROLE {USER} SET {name} = '{value}'")

    yield put
    for name in names:
        server.sql(f"ALTER ROLE {USER} RESET {name}")


@pytest.mark.parametrize("made_before", [True, False])
def test_texts_with_backslashes_are_what_they_are(
    url: str, settings: Callable[..., None], made_before: bool
) -> None:
    """Where `standard_conforming_strings` was off for the user, our functions read their own texts
    otherwise: a second commit "could not get in between those of others"."""
    if made_before:
        perdure.open(url).close()
    settings("standard_conforming_strings", "off")  # as before PostgreSQL 9.1
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("standard_conforming_strings", "off"),
        ("default_transaction_isolation", "repeatable read"),
        ("bytea_output", "escape"),
    ],
)
def test_behind_a_pooler_it_is_refused(
    server: Server, url: str, settings: Callable[..., None], name: str, value: str
) -> None:
    """There a session is set for whoever has it next."""
    settings(name, value)
    bouncer = Bouncer(server)
    try:
        with pytest.raises(StoreUnavailable, match=f"{name} is {value}") as refused:
            perdure.open(bouncer.url(url))
        assert f"ALTER ROLE name SET {name} = " in refused.value.hint
    finally:
        bouncer.end()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_i4_who_waited_for_the_end_of_an_agent_is_refused(
    server: Server, url: str, open_store: Open, settings: Callable[..., None], level: str
) -> None:
    """An application had `repeatable read` set for its role. A commit that had waited while its
    agent was closed did not see that, and got in behind what the mover had read: it was lost."""
    settings("default_transaction_isolation", level)
    backend = open_store(url)
    pen = Pen(backend)
    pen.write()
    schema = url.partition("schema=")[2]
    why = Why("moved", "sqlite:////elsewhere.db").standing().why
    with psycopg.connect(server.own_url) as closing, ThreadPoolExecutor(1) as pool:
        closing.execute(f"LOCK TABLE {schema}.standings IN ACCESS EXCLUSIVE MODE")
        closing.execute(f"SELECT {schema}.stand_1(%s, true, %s)", (pen.number(), why))
        late = pool.submit(backend.append, [pen.make(key=("k", b""))[0]])
        while not server.sql("SELECT 1 FROM pg_locks WHERE NOT granted"):
            assert not late.done()
        closing.commit()
        (outcome,) = late.result()
    assert isinstance(outcome, ClosedError), outcome


def test_refusals_are_read_however_bytes_are_shown(
    url: str, open_store: Open, settings: Callable[..., None]
) -> None:
    """Old applications have `bytea_output = escape`. A used key, or a name that was taken, was a
    ValueError, which hid the outcomes of all other commits of its batch."""
    settings("bytea_output", "escape")
    backend = open_store(url)
    pen = Pen(backend)
    pen.write(key=("k", b"\xff"), checkpoint=Checkpoint("point", 1, "", "dict", (1, 0)))
    assert refused(backend.append([pen.make(key=("k", b"\xff"))[0]])[0]) == "key"
    taken = pen.make(checkpoint=Checkpoint("point", 1, "", "dict", (1, 0)))[0]
    assert refused(backend.append([taken])[0]) == "exists"


def test_a_line_that_is_silent_is_not_ended(url: str, settings: Callable[..., None]) -> None:
    """The connection that proves that an executor lives is silent for seconds. A database whose
    sessions may not be idle ended it: a process in the middle of a tool counted as dead, another
    one took its run, and called the tool again."""
    settings("idle_session_timeout", "5min")
    backend = PostgresBackend(url)
    try:
        backend.heartbeat("one", 60_000)
        asked = "SELECT current_setting('idle_session_timeout')"
        found: list[object] = []
        with backend._line._lock:
            backend._line._use(lambda db: found.append(db.execute(asked).fetchone()))
        assert found == [("0",)]
    finally:
        backend.close()
