"""A machine with a PostgreSQL server, whose disk keeps what was synced, and whose power goes."""

from __future__ import annotations

import atexit
import ctypes
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.postgres.server import START_S, Server
from tests.powerloss.lossy.disk import Names
from tests.powerloss.lossy.folder import LossyFolder

DURABLE = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    # Small, so that much comes to the disk in a short time: evictions, checkpoints, new segments.
    "shared_buffers": "1MB",
    "max_wal_size": "4MB",
    "min_wal_size": "2MB",
    "wal_buffers": "64kB",
    "checkpoint_timeout": "30s",
    "bgwriter_delay": "10ms",
    "autovacuum_naptime": "1s",
    "max_connections": "40",
    # After a power loss nothing unsynced is left that would have to be synced first, file by file.
    "recovery_init_sync_method": "syncfs",
}
IPC_RMID = 0  # of shmctl(2)
READY = "ready to accept connections"

_system = ctypes.CDLL(None, use_errno=True)


class ServerGoneError(Exception):
    """The server does not start from what the power loss left."""


class Machine(Server):
    """See the module. Its data, seen from outside, is what its disk has.

    Args:
        settings: over `DURABLE`.
        names: what makes names lasting on its disk.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str], names: Names, seed: str) -> None:
        folder.mkdir(parents=True)
        self._names: Names = names
        self._seed = seed
        self._boots = 0
        self._disk: LossyFolder | None = None
        super().__init__(DURABLE | dict(settings), folder=folder)

    def _initialize(self) -> None:
        subprocess.run(["cp", "-a", str(_new_cluster()), str(self.data)], check=True)

    @property
    def disk(self) -> LossyFolder:
        """While it has power."""
        assert self._disk is not None
        return self._disk

    def _configure(self) -> None:
        """And lay the disk over its data."""
        super()._configure()
        shelf = self.folder / "shelf"
        shutil.rmtree(shelf, ignore_errors=True)
        shelf.mkdir()
        self._boots += 1
        self._disk = LossyFolder(self.data, shelf, self._names, f"{self._seed} {self._boots}")
        self._inside = self._disk.entrance

    def _command(self) -> list[str]:
        return super()._command() if self._as else self._inside

    def boot(self, cut_after: int | None = None) -> bool:
        """Start, and wait until it takes connections; False: the power went before. `cut_after`: it
        goes after so many changes of the disk.

        Raises:
            ServerGoneError: it does not start.
        """
        log = self.folder / "log"
        seen = log.stat().st_size if log.exists() else 0
        self.launch()
        if cut_after is not None:
            self.disk.cut_after(cut_after)
        until = time.monotonic() + START_S
        while READY.encode() not in log.read_bytes()[seen:]:
            if self.disk.is_frozen(0.02):
                return False
            if not self.runs or time.monotonic() > until:
                raise ServerGoneError(f"the server does not start: {self._reason()}")
        return True

    def _reason(self) -> str:
        """What it ended with, between all those who heard that it does not take connections yet."""
        words = self.last_words()
        fatal = [line for line in words.splitlines() if "FATAL" in line or "PANIC" in line]
        fatal = [line for line in fatal if "the database system is" not in line]
        return fatal[-1] if fatal else words

    def lose_power(self, kept: float) -> Mapping[str, int]:
        """Everything that runs on it ends at once, and the disk loses what was not synced, but for
        a share of it, drawn by chance. What was lost."""
        process = self._process
        assert process is not None
        process.send_signal(signal.SIGSTOP)  # it makes no new ones meanwhile
        children = _read(Path(f"/proc/{process.pid}/task/{process.pid}/children")).split()
        maps = [_read(Path(f"/proc/{one}/maps")) for one in (process.pid, *children)]
        gone = []
        for child in map(int, children):
            with suppress(ProcessLookupError):
                gone.append(os.pidfd_open(child))
                os.kill(child, signal.SIGKILL)
        process.kill()
        disk, self._disk = self.disk, None
        lost = disk.lose_power(kept)  # who waits for the disk can end now
        for child in gone:
            select.select([child], [], [])
            os.close(child)
        self.stop(signal.SIGKILL)
        _forget_shared_memory("".join(maps))
        # It names processes of before; on this machine they may be others by now.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        return lost

    def remove(self) -> None:
        if self._process is not None:
            self.lose_power(0)
        elif self._disk is not None:  # it was not even started
            self._disk.end()
        super().remove()


def _read(path: Path) -> str:
    """Of a process; nothing, where it has ended."""
    with suppress(OSError):
        return path.read_text()
    return ""


def _forget_shared_memory(maps: str) -> None:
    """A machine without power has none. The next server would look for it by its own lock file,
    which we delete."""
    for line in maps.splitlines():
        *_, number, name = line.split(maxsplit=5)
        if name.startswith("/dev/shm/PostgreSQL."):
            Path(name.removesuffix(" (deleted)")).unlink(missing_ok=True)
        elif name.startswith("/SYSV"):
            _system.shmctl(int(number), IPC_RMID, None)


@cache
def _new_cluster() -> Path:
    """The data of a server that has not been started yet, with small segments."""
    made = Server()
    atexit.register(shutil.rmtree, made.folder, ignore_errors=True)
    made.run("pg_resetwal", "--wal-segsize=1", "-D", str(made.data))
    return made.data
