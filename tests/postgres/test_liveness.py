"""Who is dead: the server sees it, and says it of nobody who lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from perdure.storage.postgres.backend import PostgresBackend
from perdure.storage.postgres.connection import Connection
from perdure.testing.contract.notices import NoticeRecorder
from perdure.testing.pen import Pen
from tests.postgres.conftest import Open
from tests.postgres.proxy import Proxy
from tests.postgres.server import Server
from tests.postgres.test_faults import through

LONG_MS = 600_000
SOON_S = 20.0

PROGRAM = """
import sys, time
from perdure.storage.postgres.backend import PostgresBackend
backend = PostgresBackend(sys.argv[1])
backend.heartbeat(sys.argv[2], 600_000)
print("alive", flush=True)
time.sleep(600)
"""


def soon(what) -> bool:
    until = time.monotonic() + SOON_S
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def test_a_killed_process_is_dead_long_before_its_time_is_up(
    url: str, backend: PostgresBackend
) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, "other"], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    with program, program.stdout:
        assert program.stdout.readline() == "alive\n"
        assert backend.alive("other")
        os.kill(program.pid, signal.SIGKILL)
    assert soon(lambda: not backend.alive("other"))
    (row,) = backend.executors()
    assert (row.id, row.alive) == ("other", False)


def test_a_forked_child_keeps_nobody_alive(url: str, open_store: Open) -> None:
    """A child had the parent's sockets, and lived on: the server did not see the parent's end."""
    looker = open_store(url)
    forking = PROGRAM.replace(
        'print("alive", flush=True)', "import os\nprint(os.fork() or time.sleep(600), flush=True)"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", forking, url, "other"], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    child = int(program.stdout.readline())
    try:
        assert looker.alive("other")
        os.kill(program.pid, signal.SIGKILL)
        program.wait()
        assert soon(lambda: not looker.alive("other"))
    finally:
        os.kill(child, signal.SIGKILL)
        program.stdout.close()


def test_a_connection_that_breaks_is_made_anew_and_nobody_is_dead(
    server: Server, url: str, proxy: Proxy, open_store: Open
) -> None:
    looker = open_store(url)
    one = open_store(through(proxy, server, url))
    heard = NoticeRecorder()
    one.listen("one", heard)
    one.heartbeat("one", LONG_MS)
    for _ in range(3):
        before = one._line._conn
        proxy.refuses = True
        proxy.refuses = False
        assert soon(lambda before=before: one._line._conn not in (None, before))
        assert soon(lambda: "one" in one._line._locked)
        assert looker.alive("one")
    looker.notify("r")
    assert heard.next() == "r"


def test_the_end_of_the_server_is_nobodys_death() -> None:
    """Its locks were gone at once: whoever came back first took all others for dead."""
    server = Server().start()
    try:
        url = server.new_url(retry=30)
        one, looker = PostgresBackend(url), PostgresBackend(url)
        one.heartbeat("one", LONG_MS)
        one.maintain("flush")  # heartbeats need not be durable
        one._line.close()  # it does not come back so soon
        server.stop()
        server.start()
        assert looker.alive("one")
        one.close()
        looker.close()
    finally:
        server.remove()


def test_an_executor_that_ended_is_gone_and_its_time_ends_others(backend: PostgresBackend) -> None:
    backend.heartbeat("one", LONG_MS)
    backend.heartbeat("one", None)
    assert not backend.alive("one")
    assert backend.executors() == []
    backend.heartbeat("two", 0)
    assert not backend.alive("two")


def test_i4_who_lost_its_connection_and_its_lease_is_fenced(
    server: Server, url: str, proxy: Proxy, open_store: Open
) -> None:
    looker = open_store(url)
    zombie = open_store(through(proxy, server, url))
    pen = Pen(zombie)
    pen.write()
    zombie.heartbeat("zombie", LONG_MS)
    lease = zombie.lease(pen.number(), "main", "zombie")
    proxy.refuses = True
    assert soon(lambda: not looker.alive("zombie"))
    looker.lease(pen.number(), "main", "other", over=lease.epoch)
    proxy.refuses = False
    (outcome,) = zombie.append([pen.make(epoch=lease.epoch)[0]])
    assert getattr(outcome, "why", None) == "fenced"


def test_through_a_pooler_it_is_said_once_and_polled(
    server: Server, url: str, open_store: Open, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = Proxy(server.port, as_pooler=True)
    try:
        backend = open_store(through(proxy, server, url))
        backend.listen("one", NoticeRecorder())
        backend.heartbeat("one", LONG_MS)
        backend.listen("two", NoticeRecorder())
        said = [record for record in caplog.records if "pooler" in record.getMessage()]
        assert len(said) == 1
        assert backend.alive("one")
        pen = Pen(backend)
        for _ in range(5):
            pen.write()
        with backend._pool.connection() as connection:
            prepared = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
        assert prepared == (0,)
    finally:
        proxy.close()


def test_a_store_serves_more_threads_than_it_has_connections(url: str, open_store: Open) -> None:
    backend = open_store(url + "&pool_size=2")
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(backend.agents())) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[]] * 12
    assert len(backend._pool.idle) <= 2
    assert all(isinstance(one, Connection) for one in backend._pool.idle)


def test_a_closed_store_leaves_the_files_of_a_forked_child_alone(
    url: str, open_store: Open
) -> None:
    """In a forked child, stores that the parent had closed closed their pipes once more, by numbers
    that belonged to somebody else's files by then."""
    backend = open_store(url)
    backend.listen("x", lambda _: None)()
    backend.heartbeat("x", 10_000)
    backend.close()
    pipes = [os.pipe() for _ in range(8)]  # they take the numbers that have become free
    child = os.fork()
    if child == 0:
        with suppress(OSError):
            for _, end in pipes:
                os.write(end, b"!")
        os._exit(0)
    os.waitpid(child, 0)
    for read, write in pipes:
        os.close(write)
        assert os.read(read, 1) == b"!"
        os.close(read)
