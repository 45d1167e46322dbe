"""The roles of roles.sql: each can do what it is for, and nothing beyond."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files

import pytest

import perdure
from perdure.errors import StoreUnavailable
from perdure.model import Message
from perdure.storage.postgres.backend import PostgresBackend
from perdure.testing.pen import Pen
from tests.postgres.conftest import Open
from tests.postgres.server import Server
from tests.postgres.test_faults import schema_of


@pytest.fixture
def roles(server: Server, url: str, backend: PostgresBackend) -> dict[str, str]:
    """A login for each role of one store, and its URL."""
    schema = schema_of(url)
    script = str(files("perdure.storage.postgres") / "roles.sql")
    for _ in range(2):  # it may be run again
        server.run("psql", "-q", "-v", f"schema={schema}", "-f", script, server.url())
    urls = {}
    for role in ("writer", "reader", "auditor"):
        login = f"{schema}_a_{role}"
        server.sql(f"CREATE ROLE {login} LOGIN IN ROLE {schema}_{role}")
        urls[role] = url.replace("perdure@", f"{login}@")
    return urls


def test_a_writer_does_all_of_an_agents_work(roles: dict[str, str]) -> None:
    with perdure.open(roles["writer"]) as store:
        agent = store.agent("a", initial={"x": 1})
        agent.checkpoint("start")
        with agent.edit("more") as draft:
            draft["x"] = 2
        agent.fork("side", at=1)

        @perdure.agent(dict)
        def act(run: perdure.Run[dict]) -> str:
            return "done"

        assert store.run(act, "a") == "done"
        agent.verify()
        gone = store.agent("gone", initial={})
        gone.checkpoint("c")
        store.delete("gone")


def test_only_the_owner_returns_room(roles: dict[str, str], url: str) -> None:
    """The command ended well, and did nothing; the owner's did nothing, too."""
    for role in ("writer", "reader"):
        store = perdure.open(roles[role], create=False)
        with store, pytest.raises(StoreUnavailable, match="does not own"):
            store.shrink()
    with perdure.open(url) as store:
        store.shrink()


def test_i7_a_writer_changes_no_history(
    server: Server, url: str, roles: dict[str, str], open_store: Open
) -> None:
    Pen(open_store(roles["writer"])).write()
    schema = schema_of(url)
    for statement in (
        f"UPDATE {schema}.commits SET payload = ''",
        f"DELETE FROM {schema}.commits",
        f"TRUNCATE {schema}.commits",
        f"DELETE FROM {schema}.keys",
        f"DROP TABLE {schema}.runs",
        f"DELETE FROM {schema}.agents",
        f"CREATE TABLE {schema}.mine (x int)",
        f"UPDATE {schema}.format SET version = 9",
    ):
        with pytest.raises(Exception, match=r"permission denied|must be owner"):
            server.sql(statement, user=f"{schema}_a_writer")


def test_i7_a_writer_who_may_not_trim_does_not_say_that_it_is_done(
    url: str, roles: dict[str, str]
) -> None:
    """Its `trim` was refused, but the log said by then what was to go: copies removed that at once,
    and the owner's next trim did, of which nothing was old."""
    with perdure.open(roles["writer"]) as store:
        agent = store.agent("a", initial={"n": 0})
        for number in range(5):
            agent.save({"n": number})
        with pytest.raises(StoreUnavailable, match="permission denied"):
            agent.trim(before=4)
        assert "@retention" not in [commit.branch for commit in agent.log(all_branches=True)]
    with perdure.open(url) as store:
        assert store.agent("a").trim(before=4).removed


def test_a_reader_sees_everything_and_writes_nothing(
    backend: PostgresBackend, roles: dict[str, str], open_store: Open
) -> None:
    pen = Pen(backend)
    pen.write()
    backend.send(Message("r", "a", "start", "f"))
    reader = open_store(roles["reader"])
    assert [info.name for info in reader.agents()] == ["a"]
    assert len(reader.inbox()) == len(reader.mail().messages) == len(reader.feed().entries) == 1
    assert reader.executors() == []
    assert reader.ready(0, 9) == []
    assert not reader.alive("nobody")
    assert reader.maintain("sizes").commits == 1
    (outcome,) = reader.append([pen.make()[0]])
    assert isinstance(outcome, StoreUnavailable) and "permission denied" in str(outcome)
    for use in (
        lambda: reader.send(Message("r2", "a", "start", "f")),
        lambda: reader.lease(pen.number(), "main", "one"),
        lambda: reader.stand(None),
    ):
        with pytest.raises(StoreUnavailable, match="permission denied"):
            use()


def test_an_auditor_verifies_and_sees_no_messages(roles: dict[str, str], open_store: Open) -> None:
    with perdure.open(roles["writer"]) as store:
        store.agent("a", initial={"x": 1}).checkpoint("start")
    with perdure.open(roles["auditor"]) as store:
        assert store.agent("a").verify().commits == 2
        assert store.agent("a").at("start").state == {"x": 1}
        unread = store.check_pages()  # it was refused for tables that an auditor does not see
    assert {"inbox", "executors"} <= {*unread} and "commits" not in unread
    words = [sys.executable, "-m", "perdure", "--store", roles["auditor"], "verify"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "2 commits" in done.stdout, done
    # It said that every page was read.
    assert f"every page of the store that this user may read; not {', '.join(unread)}" in " ".join(
        done.stdout.split()
    )
    auditor = open_store(roles["auditor"])
    with pytest.raises(StoreUnavailable, match="permission denied"):
        auditor.inbox()
    with pytest.raises(StoreUnavailable, match="permission denied"):
        auditor.executors()
