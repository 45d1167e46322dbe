"""Notices, where strangers send, the dead left sockets and the slow do not read."""

import logging
import os
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.sockets import HEAD
from perdure.testing.contract.notices import NEVER_S, SOON_S, NoticeRecorder, in_child
from tests.crash.elsewhere import end, listen_elsewhere


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


@pytest.fixture
def backend(path: str) -> Iterator[SqliteBackend]:
    backend = SqliteBackend(path)
    yield backend
    backend.close()


def socket_of(path: str, executor: str) -> Path:
    return Path(f"{path}-executors/{executor}.sock")


def send(path: Path, *datagrams: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        for datagram in datagrams:
            stranger.sendto(datagram, str(path))


def test_another_process_is_told(path: str, backend: SqliteBackend) -> None:
    """A signal that waits for the next poll makes every answer to a run a second late. Nothing
    polls there: what it says it has heard of."""
    process = listen_elsewhere(path)
    try:
        backend.notify("a/f/main")
        assert process.stdout is not None and process.stdout.readline() == "a/f/main\n"
    finally:
        end(process)


def test_the_socket_of_the_dead_is_removed(path: str, backend: SqliteBackend) -> None:
    """A killed listener leaves its socket behind. A thousand restarts later, each notice tried a
    thousand of them."""
    end(listen_elsewhere(path))
    assert socket_of(path, "other").exists()
    backend.notify("r")
    assert not socket_of(path, "other").exists()


def test_the_sockets_of_the_dead_are_tidied_with_their_locks(
    path: str, backend: SqliteBackend
) -> None:
    """Where nobody ever notified, nothing removed them. And a socket beside a lock file is no
    executor of its own, which would have to be tidied as one."""
    end(listen_elsewhere(path, ttl_ms=0))
    backend.listen("mine", NoticeRecorder())
    backend.heartbeat("mine", 60_000)
    names = {entry.name for entry in Path(path + "-executors").iterdir()}
    assert names == {"mine", "mine.sock"}


def test_the_socket_of_one_that_lives_is_left(path: str, backend: SqliteBackend) -> None:
    """It stopped listening the hard way and is about to open it again under the same name."""
    backend.heartbeat("mine", 60_000)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unread:
        unread.bind(str(socket_of(path, "mine")))
    backend.notify("r")
    assert socket_of(path, "mine").exists()
    heard = NoticeRecorder()
    backend.listen("mine", heard)
    backend.notify("r")
    assert heard.next() == "r"


def test_ending_leaves_no_socket_and_no_thread(path: str, backend: SqliteBackend) -> None:
    before = threading.active_count()
    for _ in range(3):
        backend.listen("one", NoticeRecorder())()
    backend.listen("two", NoticeRecorder())
    backend.close()
    until = time.monotonic() + SOON_S
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.005)
    assert threading.active_count() == before
    assert list(Path(path + "-executors").iterdir()) == []


def test_garbage_is_not_listened_to(path: str, backend: SqliteBackend) -> None:
    """Any program of this user may write to the socket."""
    heard = NoticeRecorder()
    backend.listen("one", heard)
    garbage = b"", b"\0", b"hello", HEAD, os.urandom(10_000), HEAD.upper() + b"r"
    send(socket_of(path, "one"), *garbage, HEAD + b"\xff\xfe", HEAD + b"r")
    assert heard.next() == "\ufffd\ufffd"  # an id that no run has
    assert heard.next() == "r"
    assert heard.nothing()


def test_a_full_buffer_holds_up_nobody(path: str, backend: SqliteBackend) -> None:
    """A stopped process (Ctrl-Z, a debugger) still has its socket, and reads nothing from it. Who
    waited for that would wait for ever."""
    process = listen_elsewhere(path)
    heard = NoticeRecorder()
    backend.listen("one", heard)
    try:
        process.send_signal(signal.SIGSTOP)
        for _ in range(5000):
            backend.notify("r")
        assert heard.next() == "r"
    finally:
        end(process)


def test_an_id_too_long_for_a_datagram_is_left_to_polling(backend: SqliteBackend) -> None:
    heard = NoticeRecorder()
    backend.listen("one", heard)
    for run_id in ("x" * 10_000_000, "\ud800"):
        backend.notify(run_id)
    backend.notify("r")
    assert heard.next() == "r"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems poll there")
def test_a_long_path_is_listened_at(tmp_path: Path) -> None:
    """The name of a Unix socket has 108 bytes; a store in a deep folder could not be notified."""
    folder = tmp_path.joinpath(*["a long name of a folder " * 4] * 3)
    folder.mkdir(parents=True)
    backend = SqliteBackend(str(folder / "store.db"))
    heard = NoticeRecorder()
    stop = backend.listen("one", heard)
    assert socket_of(str(folder / "store.db"), "one").is_socket()
    backend.notify("r")
    assert heard.next() == "r"
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        backend.notify("r")
    assert len(os.listdir("/proc/self/fd")) == descriptors
    stop()
    assert not socket_of(str(folder / "store.db"), "one").exists()
    backend.close()


def test_where_nobody_can_listen_polling_serves(
    path: str, backend: SqliteBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that cannot be made, or an id that is too long for any name."""
    Path(path + "-executors").write_text("in the way")
    with caplog.at_level(logging.INFO, "perdure.sqlite"):
        backend.listen("one", NoticeRecorder())()
        backend.notify("r")
    assert "cannot listen" in caplog.text
    os.unlink(path + "-executors")
    backend.listen("x" * 300, NoticeRecorder())()
    backend.notify("r")


def test_who_may_not_write_to_the_store_may_not_notify(path: str, backend: SqliteBackend) -> None:
    for mode in (0o600, 0o660):
        os.chmod(path, mode)
        stop = backend.listen("one", NoticeRecorder())
        assert stat.S_IMODE(socket_of(path, "one").stat().st_mode) == mode
        stop()


def test_a_child_keeps_no_socket_of_its_parent(path: str, backend: SqliteBackend) -> None:
    """It kept the inherited socket open: after its parent's end it seemed to be read, and was not
    removed for as long as the child lived."""
    reading, writing = os.pipe()

    def child() -> None:
        before = len(os.listdir("/proc/self/fd"))
        listening = SqliteBackend(path)
        listening.listen("parent", NoticeRecorder())
        assert len(os.listdir("/proc/self/fd")) > before
        begun, has_begun = os.pipe()
        if os.fork() == 0:
            os.close(writing)
            os.write(has_begun, b"!")
            os.read(reading, 1)  # until the test ends
            os._exit(0)
        os.read(begun, 1)
        os._exit(0)  # as a kill: nothing is tidied

    assert in_child(child) == 0
    assert socket_of(path, "parent").exists()
    backend.notify("r")
    assert not socket_of(path, "parent").exists()
    os.close(writing)
    os.close(reading)


def test_a_child_may_listen_itself(path: str, backend: SqliteBackend) -> None:
    mine = NoticeRecorder()
    backend.listen("parent", mine)

    def child() -> None:
        heard = NoticeRecorder()
        stop = backend.listen("child", heard)
        backend.notify("from the child")
        assert heard.next() == "from the child"
        stop()

    assert in_child(child) == 0
    assert mine.next() == "from the child"
    time.sleep(NEVER_S)
    assert [entry.name for entry in Path(path + "-executors").iterdir()] == ["parent.sock"]
