"""What the kernel says about processes: bytes sent to the disk, CPU, memory, and syncs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

STRACE = shutil.which("strace")
SYNCS = ("-f", "-qq", "-e", "trace=fsync,fdatasync")


def family(pid: int) -> list[int]:
    """A process and its children, such as a server's."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *map(int, children)]


def written_bytes(pids: Iterable[int]) -> int:
    """Bytes of pages that the processes have sent to the disk, so far.

    A page of 4 KiB counts each time that it is written after it was on disk: what an append of
    500 B costs the disk, not what it passes to `write`.
    """
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/io").read_text()
        except OSError:  # it has just ended
            continue
        total += int(text.split("write_bytes:")[1].split()[0])
    return total


def cpu_s(pid: int) -> float:
    """User and system time of all threads, so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Tracer:
    """Counts syncs of what runs under it, and of servers that it was attached to."""

    def __init__(self, folder: Path) -> None:
        self._files = [folder / "syncs"]

    @property
    def under(self) -> list[str]:
        """What to put before a command."""
        assert STRACE is not None
        return [STRACE, *SYNCS, "--seccomp-bpf", "-o", str(self._files[0])]

    @contextmanager
    def attached(self, pid: int | None) -> Iterator[None]:
        """To that process and its children, present and future; None: to nothing."""
        if pid is None:
            yield
            return
        assert STRACE is not None
        trace = self._files[0].with_name("server-syncs")
        self._files.append(trace)
        pids = [part for one in family(pid) for part in ("-p", str(one))]
        with subprocess.Popen([STRACE, *SYNCS, "-o", str(trace), *pids]) as tracer:
            while not trace.exists():
                time.sleep(0.01)
            try:
                yield
            finally:
                tracer.send_signal(signal.SIGINT)  # it lets go of what it traces

    @property
    def syncs(self) -> int:
        """So far. A call that was interrupted in the trace has two lines, and one "sync("."""
        return sum(
            line.count("sync(")
            for file in self._files
            if file.exists()
            for line in file.read_text("utf-8", "replace").splitlines()
        )
