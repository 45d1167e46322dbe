"""Stops a process as Ctrl-Z does, at a moment at which it holds up nobody else."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

LOCKS = Path("/proc/locks")
LOOKS = 10
"""The list of all locks of the machine is read in parts: where others change, one may be missed."""


def pause(process_id: int) -> None:
    """Stop it outside of any transaction that writes: stopped in the middle of a heartbeat's, it
    has the store's lock, and who waits for that gives up before the test goes on."""
    while True:
        os.kill(process_id, signal.SIGSTOP)
        _wait_until_stopped(process_id)
        if not any(any(_locks_it_writes_under(process_id)) for _ in range(LOOKS)):
            return
        os.kill(process_id, signal.SIGCONT)
        time.sleep(0.005)


def _wait_until_stopped(process_id: int) -> None:
    """The signal is on its way to each thread; elsewhere than on Linux nobody can tell."""
    threads = Path(f"/proc/{process_id}/task")
    while threads.exists() and any(map(_runs, threads.glob("*/stat"))):
        time.sleep(0.001)


def _runs(status: Path) -> bool:
    try:
        return status.read_text().rpartition(")")[2].split()[0] not in "TtZX"
    except OSError:  # it ended
        return False


def _locks_it_writes_under(process_id: int) -> Iterator[str]:
    for line in LOCKS.read_text().splitlines() if LOCKS.exists() else ():
        # 3: POSIX  ADVISORY  WRITE 4711 fe:00:3663288 120 120
        _, kind, _, mode, owner, *_ = line.replace("->", "").split()
        if (kind, mode, owner) == ("POSIX", "WRITE", str(process_id)):
            yield line
