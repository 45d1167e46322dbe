"""Threads of LangGraph's own PostgresSaver: read as it gives them, a thread as of one moment."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.shallow import MIGRATIONS as SHALLOW
from langgraph.checkpoint.serde.types import TASKS
from langgraph.types import Command, Send
from psycopg.types.json import Jsonb

import perdure
from perdure.errors import Corrupt, NotAStore, NotFound, StoreUnavailable, UnsupportedFormat
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.moving.comparison import Comparison
from perdure.integrations.langgraph.moving.move_threads import MovedThread, Mover, open_source
from perdure.integrations.langgraph.moving.postgres import COLUMNS, VERSIONS, PostgresSource
from perdure.system.urls import shown
from tests.cli import langgraph_graphs as graphs
from tests.cli.langgraph_graphs import THREADS, alike, at
from tests.integrations.langgraph.checkpoints import checkpoint, config
from tests.integrations.langgraph.theirs import SECRET, Theirs, filled
from tests.postgres.server import USER, Server


@pytest.fixture(scope="module")
def original() -> Iterator[Theirs]:
    made = filled()
    yield made
    made.drop()


@pytest.fixture
def theirs(original: Theirs) -> Iterator[Theirs]:
    made = Theirs(original.name)
    yield made
    made.drop()


@pytest.fixture
def empty() -> Iterator[Theirs]:
    made = Theirs()
    yield made
    made.drop()


@contextmanager
def source_of(url: str) -> Iterator[PostgresSource]:
    with closing(open_source(url, {})) as found:
        assert isinstance(found, PostgresSource)
        yield found


def move(theirs: Theirs, url: str | Path, *only: str) -> dict[str, MovedThread]:
    with source_of(theirs.url()) as source, perdure.open(url, durability="os") as store:
        mover = Mover(source, {})
        mover.store = store
        return {thread.name: mover.move(thread) for thread in source.threads(only)}


# -- all of it -----------------------------------------------------------------------------


def test_each_thread_comes_over_as_langgraphs_saver_gives_it(
    original: Theirs, tmp_path: Path
) -> None:
    path = tmp_path / "agents.db"
    moved = move(original, path)
    assert list(moved) == THREADS
    assert not any(one.problems for one in moved.values())
    with original.saver() as there, PerdureSaver.from_url(path) as here:
        for name, one in moved.items():
            assert alike(there, here, name) == one.moved == one.thread.checkpoints >= 3
            assert one.thread.bytes > 0 and one.bytes_after > 0
    assert all(one.there == one.moved + one.there for one in move(original, path).values())


def test_into_the_same_database(theirs: Theirs) -> None:
    """Perdure's tables are in a schema of their own; `public` is left as it is."""
    before = theirs.sql("SELECT * FROM checkpoints ORDER BY thread_id, checkpoint_id")
    url = theirs.url()
    moved = move(theirs, url)
    assert not any(one.problems for one in moved.values())
    with theirs.saver() as there, PerdureSaver.from_url(url) as here:
        assert all(alike(there, here, name) for name in THREADS)
    assert theirs.sql("SELECT * FROM checkpoints ORDER BY thread_id, checkpoint_id") == before
    tables = theirs.sql("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'")
    assert {name for (name,) in tables} == {*COLUMNS, VERSIONS}


def test_graphs_go_on_from_where_they_were(original: Theirs, tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    move(original, path)
    with PerdureSaver.from_url(path) as saver:
        found = graphs.review(saver).invoke(Command(resume="yes"), at("asked"))
        assert found["log"] == ["draft", "draft", "said yes"]
        with pytest.raises(ValueError, match="no second"):
            graphs.fan(saver).invoke(None, at("fan/größe"))
        found = graphs.diary(saver).invoke({"log": ["later"]}, at("diary"))
        assert found["log"] == [
            "day 0",
            "wrote 1",
            "day 1",
            "wrote 3",
            "day 2",
            "wrote 5",
            "later",
            "wrote 7",
        ]


def test_deltas_have_the_history_they_had(original: Theirs, tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    move(original, path, "diary")
    seeds = 0
    with original.saver() as there, PerdureSaver.from_url(path) as here:
        for one in list(there.list(at("diary"))):  # theirs hangs when it is asked meanwhile
            theirs = there.get_delta_channel_history(config=one.config, channels=["log"])
            assert here.get_delta_channel_history(config=one.config, channels=["log"]) == theirs
            seeds += "seed" in theirs["log"]
    assert seeds


def test_the_index_of_each_write_is_kept(
    original: Theirs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LangGraph repeats a task's writes when it resumes; those that are there must count."""
    here: set[Any] = set()
    real = PerdureSaver.put_writes

    def noting(self: Any, at: Any, writes: Any, task: str, path: str = "") -> None:
        where = list(at["configurable"].values())[:3]
        for index, (channel, _) in enumerate(writes):
            here.add((*where, task, path, WRITES_IDX_MAP.get(channel, index), channel))
        real(self, at, writes, task, path)

    monkeypatch.setattr(PerdureSaver, "put_writes", noting)
    move(original, tmp_path / "agents.db")
    assert here == set(
        original.sql(
            "SELECT thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel "
            "FROM checkpoint_writes"
        )
    )


def test_again_only_what_is_new_comes(theirs: Theirs, tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    move(theirs, path)
    with theirs.saver() as saver:
        graphs.talk(saver, "chat", 1)
    moved = move(theirs, path)
    assert {name for name, one in moved.items() if one.moved} == {"chat"}
    with theirs.saver() as there, PerdureSaver.from_url(path) as here:
        assert alike(there, here, "chat")


# -- as of one moment ----------------------------------------------------------------------


def test_a_thread_is_read_as_of_one_moment(theirs: Theirs) -> None:
    with source_of(theirs.url()) as source, theirs.saver() as saver:
        every = source.checkpoints("chat")
        graphs.talk(saver, "chat", 1)
        saver.delete_thread("travel")
        head = saver.get_tuple(at("chat"))
        assert head is not None
        assert source.checkpoints("travel") == []
        found = source.checkpoints("chat")
        assert len(found) > len(every) and found[-1].id == head.checkpoint["id"]
        before = source.read("chat", found[-1])
        saver.put_writes(head.config, [("more", 1)], "task")
        saver.delete_thread("chat")
        assert source.read("chat", found[-1]) == before
        assert source.write_keys("chat", found[-1]) == []


def test_nobody_is_held_up(theirs: Theirs) -> None:
    with source_of(theirs.url()) as source:
        source.checkpoints("chat")
        [(locks,)] = theirs.sql(
            "SELECT array_agg(DISTINCT l.mode) FROM pg_locks AS l JOIN pg_class AS c "
            "ON c.oid = l.relation JOIN pg_stat_activity AS a ON a.pid = l.pid "
            "WHERE c.relname LIKE 'checkpoint%%' AND a.backend_type = 'client backend'"
        )
        assert locks == ["AccessShareLock"]
        with pytest.raises(Exception, match="read-only"):
            source._database.rows("DELETE FROM checkpoints RETURNING 1")
        source.checkpoints("travel")  # what went wrong with one thread is over with it


@pytest.fixture
def standby() -> Iterator[Server]:
    """A server that can only be read, with one thread."""
    primary = Server({"wal_level": "replica"}).start()
    copy: Server | None = None
    try:
        with PostgresSaver.from_conn_string(primary.url()) as saver:
            saver.setup()
            graphs.talk(saver, "chat", 1)
        folder = primary.folder / "standby"
        primary.run(
            "pg_basebackup",
            "-D",
            str(folder / "data"),
            "-h",
            "127.0.0.1",
            "-U",
            USER,
            "-p",
            str(primary.port),
            "-R",
            "--checkpoint=fast",
            "--no-sync",
        )
        copy = Server(folder=folder).start()
        yield copy
    finally:
        if copy is not None:
            copy.remove()
        primary.remove()


def test_a_standby_is_enough(standby: Server) -> None:
    assert standby.sql("SELECT pg_is_in_recovery()") == [(True,)]
    with source_of(standby.url()) as source:
        [thread] = source.threads()
        found = source.checkpoints(thread.name)
        assert len(found) == thread.checkpoints >= 3
        messages = source.read("chat", found[-1]).checkpoint["channel_values"]["messages"]
        assert [one.content for one in messages] == ["question 0", "a 1"]


# -- tables of other times -----------------------------------------------------------------


def old_checkpoint(number: int, values: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {**checkpoint(values, id=f"1ef4f797-8335-6428-8001-{number:012}")}
    made["channel_versions"] = dict.fromkeys(values, f"{number:032}.0.5")
    return {**made, "v": 1, "pending_sends": []}


@pytest.mark.parametrize("version", [3, 5, 8])
def test_tables_of_old_versions(empty: Theirs, tmp_path: Path, version: int) -> None:
    """Writes had no path, and those for the next step's tasks were found at the parent."""
    for number, statement in enumerate(PostgresSaver.MIGRATIONS[: version + 1]):
        empty.sql(statement)
        empty.sql("INSERT INTO checkpoint_migrations VALUES (%s)", number)
    serde = PostgresSaver.__new__(PostgresSaver).serde
    parent = None
    for number in (1, 2):
        made = old_checkpoint(number, {"messages": [], "n": number})
        del made["channel_values"]["messages"]
        empty.sql(
            "INSERT INTO checkpoints VALUES ('old', '', %s, %s, NULL, %s, '{\"step\": 1}')",
            made["id"],
            parent,
            Jsonb(made),
        )
        empty.sql(
            "INSERT INTO checkpoint_blobs VALUES ('old', '', 'messages', %s, %s, %s)",
            made["channel_versions"]["messages"],
            *serde.dumps_typed([HumanMessage(f"Hi {number}")]),
        )
        for index, channel in enumerate((TASKS, "log")):
            empty.sql(
                "INSERT INTO checkpoint_writes VALUES ('old', '', %s, 'task', %s, %s, %s, %s)",
                made["id"],
                index,
                channel,
                *serde.dumps_typed(Send("node", number)),
            )
        parent = made["id"]
    path = tmp_path / "agents.db"
    assert not move(empty, path)["old"].problems
    with empty.saver() as there, PerdureSaver.from_url(path) as here:
        there.setup()  # as of today it reads them, too
        assert alike(there, here, "old") == 2
        head: Any = here.get_tuple(at("old"))
        assert head.checkpoint["channel_values"][TASKS] == [Send("node", 1)]
        assert [one[1] for one in head.pending_writes] == [TASKS, "log"]


def test_tables_that_are_newer(theirs: Theirs) -> None:
    theirs.sql("INSERT INTO checkpoint_migrations VALUES (%s)", len(PostgresSaver.MIGRATIONS))
    with pytest.raises(UnsupportedFormat, match=r"are of version 10, and .* knows 9") as caught:
        open_source(theirs.url(), {})
    assert "pip install --upgrade langgraph-checkpoint-postgres" in caught.value.hint


def test_tables_of_the_shallow_saver(empty: Theirs) -> None:
    for statement in SHALLOW:
        empty.sql(statement)
    with pytest.raises(NotAStore, match="ShallowPostgresSaver, which keeps no history") as caught:
        open_source(empty.url(), {})
    assert "app.update_state" in caught.value.hint


def test_no_tables_and_those_of_others(empty: Theirs) -> None:
    with pytest.raises(NotAStore, match="no table 'checkpoints' in schema public") as caught:
        open_source(empty.url(), {})
    assert "?schema=name" in caught.value.hint
    empty.sql("CREATE TABLE checkpoints (thread_id text, n int)")
    with pytest.raises(NotAStore, match="table 'checkpoints' has no column 'checkpoint'"):
        open_source(empty.url(), {})
    perdure.open(empty.url()).close()
    with pytest.raises(NotAStore, match="no table 'checkpoints' in schema perdure"):
        open_source(empty.url("perdure"), {})
    with pytest.raises(NotAStore, match="in a schema that this user may look into"):
        open_source(empty.url("nowhere"), {})


def test_tables_in_another_schema(theirs: Theirs) -> None:
    theirs.sql('CREATE SCHEMA "My Graphs"')
    for (table,) in theirs.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        theirs.sql(f'ALTER TABLE public.{table} SET SCHEMA "My Graphs"')
    for more in ("schema=My%20Graphs", "options=-csearch_path%3D%22My%5C%20Graphs%22"):
        with source_of(f"{theirs.url()}?{more}") as source:
            assert [one.name for one in source.threads()] == THREADS
            assert len(source.checkpoints("asked")) >= 3
            assert source.bytes > 0


# -- what cannot come ----------------------------------------------------------------------


def test_a_checkpoint_that_langgraphs_saver_cannot_read(theirs: Theirs, tmp_path: Path) -> None:
    """A channel with a backslash, which its statement trips over; and one without a version of
    its format, and metadata that are a list. The others come."""
    with theirs.saver() as saver:
        made = checkpoint({"a\\q": [1]})
        metadata: Any = {"source": "loop", "step": 1, "parents": {}}
        saver.put(config("slash"), made, metadata, made["channel_versions"])
    theirs.sql("UPDATE checkpoints SET checkpoint = checkpoint - 'v' WHERE thread_id = 'chat'")
    theirs.sql("UPDATE checkpoints SET metadata = '[]' WHERE thread_id = 'asked'")
    moved = move(theirs, tmp_path / "agents.db")
    left = {name: one.problems[0] for name, one in moved.items() if one.problems}
    assert sorted(left) == ["asked", "chat", "slash"]
    assert left["asked"].words.endswith("continue from: 'metadata' is a list")
    assert left["chat"].words == "LangGraph's own saver cannot read it (KeyError: 'v')"
    assert "invalid input syntax for type bytea" in left["slash"].words


def test_values_that_were_pickled(theirs: Theirs, tmp_path: Path) -> None:
    theirs.sql("UPDATE checkpoint_blobs SET type = 'pickle' WHERE thread_id = 'chat'")
    problems = move(theirs, tmp_path / "agents.db", "chat")["chat"].problems
    assert problems[0].where.endswith(", state.__start__")
    assert problems[0].words.startswith("it was pickled: reading it would run code")


def test_orphans_are_counted(theirs: Theirs) -> None:
    with theirs.saver() as saver:
        saver.put_writes(config("chat", "1f-not-there"), [("log", 1), ("n", 2)], "task")
        saver.put_writes(config("only writes", "1f-not-there"), [("log", 1)], "task")
    with source_of(theirs.url()) as source:
        found = {one.name: one.orphans for one in source.threads()}
        assert found == {**dict.fromkeys(THREADS, 0), "chat": 2}
        with pytest.raises(NotFound, match="'chta'") as caught:
            source.threads(["chta"])
        assert "'chat'" in caught.value.hint


def test_threads_are_listed_without_reading_large_values(original: Theirs) -> None:
    with source_of(original.url()) as source:
        every = source.threads()
        assert [one.name for one in every] == THREADS
        assert source.threads(["chat"]) == [one for one in every if one.name == "chat"]
        size = "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class"
        tables = "relkind = 'r' AND relname LIKE 'checkpoint%%'"
        assert source.bytes == original.sql(f"{size} WHERE {tables}")[0][0]


# -- who may come in -----------------------------------------------------------------------


@pytest.fixture
def guarded(theirs: Theirs) -> Theirs:
    """With a user who needs a password, and may see nothing."""
    theirs.server.guard(SECRET)
    return theirs


def all_words(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error)


def url_of(theirs: Theirs, password: str) -> str:
    return theirs.url(user="guarded", password=quote(password, ""))


@pytest.mark.parametrize("password", ["", "wr0ng-w0rd", SECRET[:-1]])
def test_a_wrong_password_is_said_and_never_shown(guarded: Theirs, password: str) -> None:
    with pytest.raises(StoreUnavailable, match="wrong user or password") as caught:
        open_source(url_of(guarded, password), {})
    assert caught.value.hint
    if password:
        assert password not in all_words(caught.value)
        assert quote(password, "") not in all_words(caught.value)


def test_missing_rights_are_said(guarded: Theirs) -> None:
    url = url_of(guarded, SECRET)
    with pytest.raises(StoreUnavailable, match="permission denied for table") as caught:
        open_source(url, {})
    assert "GRANT SELECT" in caught.value.hint
    guarded.sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO guarded")
    with source_of(url) as source:
        assert len(source.threads()) == len(THREADS)
        assert SECRET not in source.name


def test_rows_that_a_user_may_not_see_are_no_shorter_history(guarded: Theirs) -> None:
    guarded.sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO guarded")
    guarded.sql("ALTER TABLE checkpoint_writes ENABLE ROW LEVEL SECURITY")
    with source_of(url_of(guarded, SECRET)) as source:
        with pytest.raises(StoreUnavailable, match="row-level security") as caught:
            source.threads()
        assert "BYPASSRLS" in caught.value.hint


def test_places_that_are_none(theirs: Theirs) -> None:
    with pytest.raises(NotFound, match="no such database"):
        open_source(theirs.server.url(database="nowhere"), {})
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        open_source("postgresql://127.0.0.1:1/x", {})
    for url in (
        "postgresql://a:b@c@host/db",
        "postgresql://a:b#c@host/db",
        "postgresql://h:hush/x",
    ):
        with pytest.raises(ValueError, match="PostgreSQL URL") as caught:
            open_source(url, {})
        assert "hush" not in all_words(caught.value)


def test_a_server_that_goes_away(theirs: Theirs) -> None:
    with source_of(theirs.url()) as source:
        found = source.checkpoints("chat")
        theirs.sql(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s AND "
            "pid <> pg_backend_pid()",
            theirs.name,
        )
        with pytest.raises(StoreUnavailable) as caught:
            source.read("chat", found[0])
        assert "run the same command again" in caught.value.hint


def test_the_comparison_sees_what_a_saver_changes(theirs: Theirs) -> None:
    with source_of(theirs.url()) as source:
        [first, *_] = source.checkpoints("chat")
        one = source.read("chat", first)
        theirs.sql("UPDATE checkpoints SET metadata = '{}' WHERE thread_id = 'chat'")
        source.checkpoints("chat")
        assert "metadata" in (Comparison().of(one, source.read("chat", first)) or "")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://me:hush@host:5432/db", "postgresql://me@host:5432/db"),
        (
            "postgresql://me:hush@host/db?schema=s&password=hush&sslmode=require",
            "postgresql://me@host/db?schema=s&sslmode=require",
        ),
        ("postgres:///db?sslpassword=hush", "postgres:///db"),
        ("postgresql://me:hu@sh@host/db", "postgresql://me@host/db"),
        ("agents.db", "agents.db"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
    ],
)
def test_urls_are_shown_without_passwords(url: str, said: str) -> None:
    assert shown(url) == said


def test_damage_is_named(theirs: Theirs) -> None:
    theirs.sql("UPDATE checkpoints SET checkpoint = '[]' WHERE thread_id = 'travel'")
    with source_of(theirs.url()) as source:
        found = source.checkpoints("travel")
        with pytest.raises(Corrupt, match="cannot read it") as caught:
            source.read("travel", found[0])
        assert str(found[0]) in caught.value.target
