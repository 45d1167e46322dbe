"""The tables: the sum of the migrations, made once, refused by programs that are too old."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from perdure.errors import NotFound, UnsupportedFormat
from perdure.model import Lease, Message
from perdure.storage.capabilities import Sent
from perdure.storage.locate import locate
from perdure.storage.postgres import schema, statements
from perdure.storage.postgres.backend import PostgresBackend
from perdure.testing.pen import Pen, a_run
from tests.engine.working import wait_until
from tests.postgres.conftest import Open
from tests.postgres.server import Server
from tests.postgres.test_faults import schema_of

PICTURE = Path(__file__).with_name("schema.txt")

COLUMNS = """
SELECT 'column ' || c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = %s::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND a.attnum > 0
UNION ALL
SELECT 'index ' || pg_get_indexdef(i.indexrelid)
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
WHERE c.relnamespace = %s::regnamespace AND NOT c.relispartition
UNION ALL
SELECT 'function ' || p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')'
FROM pg_proc p WHERE p.pronamespace = %s::regnamespace
ORDER BY 1
"""


def picture(server: Server, name: str) -> str:
    rows = server.sql(COLUMNS, name, name, name)
    text = "".join(f"{row[0]}\n" for row in rows)
    return text.replace(f"{name}.", "").replace(" ON ONLY ", " ON ")


def test_the_schema_is_the_sum_of_the_migrations(
    server: Server, url: str, backend: PostgresBackend, open_store: Open
) -> None:
    """schema.txt is what a reader may look at. Made in one go or migration by migration, split or
    not, a store has just that."""
    numbers = sorted(statements.migrations())
    assert numbers == list(range(1, len(numbers) + 1))
    assert picture(server, schema_of(url)) == PICTURE.read_text()
    split = server.new_url(partitions=3)
    open_store(split)
    assert picture(server, schema_of(split)) == PICTURE.read_text()
    slow = server.new_url()
    address = backend._address.__class__(
        **{name: getattr(backend._address, name) for name in backend._address.__struct_fields__}
        | {"schema": schema_of(slow)}
    )
    with backend._pool.connection() as connection:
        for number in numbers:
            schema.upgrade(connection, address, number)
    assert picture(server, schema_of(slow)) == PICTURE.read_text()


def test_a_store_is_made_once_however_many_open_it(server: Server) -> None:
    url = server.new_url()
    opened: list[PostgresBackend] = []
    problems: list[BaseException] = []

    def open_one() -> None:
        try:
            opened.append(PostgresBackend(url))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=open_one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len({backend._format.store for backend in opened}) == 1
    for backend in opened:
        backend.close()


def test_looking_makes_no_store(server: Server) -> None:
    url = server.new_url()
    with pytest.raises(NotFound, match="no store in schema"):
        PostgresBackend(url, create=False)
    assert server.sql("SELECT 1 FROM pg_namespace WHERE nspname = %s", schema_of(url)) == []


def test_a_newer_schema_that_we_cannot_use_is_refused(
    server: Server, url: str, backend: PostgresBackend
) -> None:
    name = schema_of(url)
    newest = max(statements.migrations())
    server.sql(f"UPDATE {name}.format SET version = {newest + 1}")
    PostgresBackend(url).close()  # it was only added to
    server.sql(f"UPDATE {name}.format SET readable_by = {newest + 1}")
    with pytest.raises(UnsupportedFormat, match="newer") as caught:
        PostgresBackend(url)
    assert str(newest + 1) in str(caught.value)
    backend._pool.forget()  # a program that runs finds it out at its next connection
    with pytest.raises(UnsupportedFormat):
        backend.agents()
    (outcome,) = backend.append([Pen(backend).make()[0]])
    assert isinstance(outcome, UnsupportedFormat)


NEWER = """
ALTER TABLE {schema}.agents ADD COLUMN newer text;
ALTER TABLE {schema}.commits ADD COLUMN newer text;
ALTER TABLE {schema}.refs ADD COLUMN newer text;
ALTER TABLE {schema}.keys ADD COLUMN newer text;
ALTER TABLE {schema}.snapshots ADD COLUMN newer text;
ALTER TABLE {schema}.leaves ADD COLUMN newer text;
ALTER TABLE {schema}.runs ADD COLUMN newer text;
ALTER TABLE {schema}.inbox ADD COLUMN newer text;
ALTER TABLE {schema}.executors ADD COLUMN newer text;
ALTER TABLE {schema}.standings ADD COLUMN newer text;
CREATE INDEX runs_newer ON {schema}.runs (newer);
"""


@pytest.mark.parametrize("partitions", [0, 3])
def test_programs_of_the_version_before_go_on_while_a_newer_one_adds_to_the_tables(
    server: Server, open_store: Open, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    """Each connection has its statements prepared, and each session its plans: of tables as they
    were. Writers do not end for an update, and see no error."""
    url = server.new_url(partitions=partitions)
    old = open_store(url)
    ended = threading.Event()
    problems: list[BaseException] = []
    writers = [threading.Thread(target=_write, args=(old, n, ended, problems)) for n in range(3)]
    for writer in writers:
        writer.start()
    number = max(statements.migrations()) + 1
    with monkeypatch.context() as newer:
        newer.setattr(schema, "migrations", lambda: {**statements.migrations(), number: NEWER})
        new = open_store(url)
        assert new._format.version == number
    before = len(new.agents())
    while len(new.agents()) < before + 20:
        assert not problems, problems
    ended.set()
    for writer in writers:
        writer.join()
    assert problems == []
    again = open_store(url)  # the old program, started anew
    for one in (old, again, new):
        Pen(one, f"last-{id(one)}").write()
    assert picture_of(old) == picture_of(again) == picture_of(new)


def _write(
    backend: PostgresBackend, number: int, ended: threading.Event, problems: list[BaseException]
) -> None:
    """All that an agent's life needs, again and again."""
    try:
        for turn in itertools.count():
            if ended.is_set():
                return
            name = f"a{number}-{turn}"
            pen = Pen(backend, name)
            pen.write(runs=[replace(a_run(f"{name}/f/main"), agent=name)])
            assert isinstance(backend.send(Message(f"{name}/f/main", name, "signal", "s")), Sent)
            backend.heartbeat(name, 60_000)
            lease = backend.lease(pen.number(), "main", name)
            assert isinstance(lease, Lease)
            (mail,) = backend.inbox(f"{name}/f/main")
            pen.write(epoch=lease.epoch, consumed=[mail.no])
            pen.write(epoch=lease.epoch)
            pen.write(epoch=lease.epoch, key=("k", b"asked"))
            assert len(backend.read(pen.number(), 1, 9)) == 4
            backend.feed()
            backend.ready(backend.now(), 5)
    except BaseException as error:
        problems.append(error)


def is_waited_for(server: Server, table: str) -> bool:
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
    return bool(server.sql(waiting, table))


def test_a_look_that_an_update_waited_for_is_made_again(
    server: Server, url: str, backend: PostgresBackend
) -> None:
    """An update had one table and wanted the next; a look had that, and wanted the first. The
    server ended the look, and a worker heard that "others were in the way too often": of a look,
    which was tried once."""
    found: list[object] = []
    name = schema_of(url)
    while not found:
        look = threading.Thread(target=lambda: found.append(backend.ready(backend.now(), 5)))
        with psycopg.connect(server.url()) as update:
            update.execute(f"LOCK TABLE {name}.refs")
            look.start()
            wait_until(lambda: is_waited_for(server, f"{name}.refs"))
            try:  # the look has read it, and waits for the other
                update.execute(f"LOCK TABLE {name}.runs")
            except psycopg.errors.DeadlockDetected:
                update.rollback()  # on a slow machine the server ends this one: once more
                look.join(60)
                found.clear()
        look.join(60)
    assert found == [[]]


def test_an_update_gives_way_to_who_waits_for_it(
    server: Server, url: str, backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other way round: nobody is ended for an update. It lets go of what it has, in less time
    than the server takes to look for deadlocks, and begins anew."""
    number = max(statements.migrations()) + 1
    monkeypatch.setattr(schema, "migrations", lambda: {**statements.migrations(), number: NEWER})
    name = schema_of(url)
    opened: list[PostgresBackend] = []
    update = threading.Thread(target=lambda: opened.append(PostgresBackend(url)))
    with psycopg.connect(server.url()) as reader:
        reader.execute(f"SELECT count(*) FROM {name}.runs")
        update.start()
        wait_until(lambda: is_waited_for(server, f"{name}.runs"))
        reader.execute(f"SELECT count(*) FROM {name}.agents")  # which the update has
    update.join(60)
    (newer,) = opened
    assert newer._format.version == number
    newer.close()


def picture_of(backend: PostgresBackend) -> list[object]:
    return [(info, backend.read(info.no, 1, 99)) for info in backend.agents()]


def test_stores_in_one_database_do_not_see_each_other(server: Server, open_store: Open) -> None:
    one, other = open_store(server.new_url()), open_store(server.new_url())
    Pen(one).write()
    assert other.agents() == []


def test_the_url_chooses_the_backend(server: Server) -> None:
    for url in (server.new_url(), server.new_url().replace("postgresql:", "postgres:")):
        backend = locate(url)
        assert isinstance(backend, PostgresBackend)
        backend.close()


def test_without_psycopg_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from perdure.storage.locate import locate\n"
        "try: locate('postgresql://h/d')\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "pip install 'perdure[postgres]'" in done.stdout


def test_texts_come_back_as_they_were(backend: PostgresBackend) -> None:
    """PostgreSQL's texts have no NUL; a run's problem, the words of some error, may."""
    from perdure.testing.pen import a_run

    odd = "a\0b\x1a1\x1a0\x1a é \U0001f600"
    pen = Pen(backend)
    pen.write(runs=[a_run("r", problem=odd, waits=odd)], key=(odd, b"asked"))
    (row,) = backend.runs()
    assert (row.problem, row.waits) == (odd, odd)
    assert backend.key(pen.number(), odd) == (1, b"asked")
