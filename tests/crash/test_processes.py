"""Forks, interrupts, and stores that are closed under somebody: each test opens with its story."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.errors import Corrupt, PerdureError, StoreUnavailable
from perdure.storage.appending import Append, Appended, Outcome
from perdure.storage.log.committer import Committer
from perdure.storage.memory.backend import MemoryBackend
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.testing.contract.backend import Pen
from tests.engine.waits import until


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


def in_child(work: Any, seconds: float = 20) -> int:
    """Fork, do it there, and give the exit code; a child that hangs is a failure."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")


def test_i1_a_child_goes_on_when_its_parent_closes(path: str) -> None:
    """The child's new connections took its parent's locks for their own. When the parent closed,
    it found itself alone, and deleted the WAL into which the child was writing."""
    store = perdure.open(path)
    store.agent("parent").update(lambda draft: draft.update(x=1))
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        agent = store.agent("child")
        os.write(writing, b"!")
        for n in range(60):
            with agent.edit() as draft:
                draft["n"] = n
        os._exit(0)
    os.read(reading, 1)
    store.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with perdure.open(path) as store:
        assert store.agent("child").state == {"n": 59}
        store.agent("child").verify()


def test_a_child_forked_while_a_thread_commits_does_not_wait_for_it(path: str) -> None:
    """It inherited a committer with a leader that was not there, and waited for it for ever."""
    store = perdure.open(path)
    busy = store.agent("busy")
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            busy.update(lambda draft: draft.update(n=draft.get("n", 0) + 1))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for n in range(5):
            name = f"child-{n}"
            assert (
                in_child(lambda name=name: store.agent(name).update(lambda d: d.update(x=1))) == 0
            )
    finally:
        stop.set()
        thread.join()
    assert len(store.agents()) == 6
    store.close()


class SlowBackend(MemoryBackend):
    """A commit takes as long as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def append(self, batch: Any) -> list[Outcome]:
        self.begun.set()
        assert self.go_on.wait(20)
        return super().append(batch)


def test_an_interrupt_while_waiting_in_line_blocks_nobody() -> None:
    """Ctrl-C hit a thread that waited behind another's commit. Its commit stayed first in the line,
    was asked to lead, and was not there: every later commit of the process hung."""
    backend = SlowBackend()
    committer = Committer(backend)
    store = perdure.Store(backend)
    store._context.committer = committer
    first = threading.Thread(target=lambda: store.agent("first").update(lambda d: d.update(x=1)))
    first.start()
    assert backend.begun.wait(20)

    here = threading.get_ident()

    def interrupt() -> None:
        until(lambda: any(proposal.waited_for for proposal in committer._queue))
        signal.pthread_kill(here, signal.SIGINT)

    second = store.agent("second")
    threading.Thread(target=interrupt).start()
    # A shell's background process ignores Ctrl-C, and so would Python in it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            second.update(lambda d: d.update(x=1))
    finally:
        signal.signal(signal.SIGINT, before)
    backend.go_on.set()
    first.join(20)
    late = threading.Thread(target=lambda: store.agent("third").update(lambda d: d.update(x=1)))
    late.start()
    late.join(20)
    assert not first.is_alive() and not late.is_alive()
    assert {"first", "third"} <= {info.name for info in store.agents()}


def test_i1_what_comes_after_close_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that waited while the store was closed opened the file again and was acknowledged:
    whoever moved the file away after `close` lost it."""
    backend = SqliteBackend(path)
    pen = Pen(backend)
    pen.write()
    outcomes: list[Any] = []
    append, _ = pen.make()
    writer = backend._writer
    waiting = threading.Thread(target=lambda: outcomes.extend(backend.append([append])))
    let_go = writer._let_go

    def while_it_closes(connection: Any) -> None:
        waiting.start()
        while not writer.lock._waiting:
            time.sleep(0.001)
        let_go(connection)

    monkeypatch.setattr(writer, "_let_go", while_it_closes)
    backend.close()
    waiting.join(20)
    assert isinstance(outcomes[0], StoreUnavailable)
    assert os.listdir(os.path.dirname(path)) == ["store.db"]


def test_i1_after_damage_is_found_nothing_more_is_read_or_acknowledged(path: str) -> None:
    """The WAL was deleted under the store. The commit was refused; the same call made again found
    its key in the deleted WAL, and was answered as done."""
    with perdure.open(path) as store:
        agent = store.agent("a")
        agent.update(lambda draft: draft.update(x=1))
        os.unlink(path + "-wal")
        os.unlink(path + "-shm")
        for _ in range(2):
            with pytest.raises(Corrupt, match="deleted"):
                agent.update(lambda draft: draft.update(x=2), "pay", key="k")


@pytest.mark.parametrize("durability", ["os", "group"])
def test_a_power_cut_of_an_unsynced_store_is_an_end_and_no_damage(
    path: str, tmp_path: Path, durability: Any
) -> None:
    """A page in the middle of the WAL had not reached the disk, later ones had. That is what was
    agreed to; the store called itself damaged, and did not open any more."""
    backend = SqliteBackend(path, durability=durability)
    pen = Pen(backend)
    for n in range(30):
        pen.write(value=n)
    copy = str(tmp_path / "copy.db")
    Path(copy).write_bytes(Path(path).read_bytes())
    wal = bytearray(Path(path + "-wal").read_bytes())
    middle = len(wal) * 2 // 3 // 4096 * 4096
    wal[middle : middle + 4096] = bytes(4096)
    Path(copy + "-wal").write_bytes(wal)
    backend.close()
    backend = SqliteBackend(copy)
    seqs = [row.seq for row in backend.read(1, 1, 99)]
    assert seqs == list(range(1, len(seqs) + 1)) and 1 < len(seqs) < 30
    backend.close()


def test_i1_a_failed_flush_is_not_forgotten(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first fsync failed, the second said yes; but the kernel had called lost pages clean."""
    with perdure.open(path, durability="group") as store:
        store.agent("a").update(lambda draft: draft.update(x=1))
        with monkeypatch.context() as broken:

            def fails(descriptor: int) -> None:
                raise OSError(errno.EIO, "I/O error")

            broken.setattr(os, "fdatasync", fails)
            with pytest.raises(StoreUnavailable) as caught:
                store.flush()
            assert caught.value.outcome == "unknown"
        before = os.path.getsize(path)
        store.flush()  # moves what may be lost into the main file, and syncs that
        assert os.path.getsize(path) > before


OPENER = """
import sys, perdure
for _ in range(150):
    perdure.open(sys.argv[1]).close()
"""


def test_opening_beside_a_writer_finds_no_damage(path: str) -> None:
    """34 of 9,704 openings called the store damaged: they had counted the frames of the WAL, and
    then looked at them, while somebody wrote in between."""
    with perdure.open(path, durability="os") as store:
        agent = store.agent("a")
        agent.update(lambda draft: draft.update(n=0))
        opener = subprocess.Popen(
            [sys.executable, "-c", OPENER, path], stderr=subprocess.PIPE, text=True
        )
        n = 0
        while opener.poll() is None:
            n += 1
            with agent.edit() as draft:
                draft["n"] = n
        assert opener.stderr is not None
        assert opener.returncode == 0, opener.stderr.read()
        opener.stderr.close()


def test_i2_what_cannot_be_bound_fails_alone(path: str) -> None:
    """A lone surrogate in one commit's row failed the commits of all threads beside it."""
    backend = SqliteBackend(path)
    good, bad = Pen(backend, "good"), Pen(backend, "bad")
    good.write()
    bad.write()
    broken: Append = bad.make(key=("caf\udce9", b"x"))[0]
    outcomes = backend.append([good.make()[0], broken])
    assert isinstance(outcomes[0], Appended)
    assert isinstance(outcomes[1], Exception)
    assert not isinstance(outcomes[1], apsw.Error | PerdureError)
    backend.close()


def test_the_wal_does_not_grow_under_steady_load(path: str) -> None:
    """There was always a commit that the checkpoint beside it had not moved, so the WAL was never
    begun anew: it grew with each commit until the writer paused."""
    backend = SqliteBackend(path, durability="os")
    pen = Pen(backend)
    for n in range(6000):
        pen.write(value=n)
    size = os.path.getsize(path + "-wal")
    backend.close()
    assert size < 30_000_000  # it was 50 MB; two checkpoints late are 12 MB
