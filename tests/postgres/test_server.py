"""Private servers end with whoever started them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

END_S = 60.0

OWNER = """
import sys
from tests.postgres.server import Server
server = Server().start()
print(server._process.pid, server.folder, flush=True)
sys.stdin.read()
"""


def test_a_killed_owner_leaves_no_server_behind() -> None:
    """`kill -9` of a test run left its servers running, and their folders in /tmp, for ever."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        assert Path(f"/proc/{pid}").exists()
        owner.kill()
    until = time.monotonic() + END_S
    while _runs(int(pid)) or Path(folder).exists():
        assert time.monotonic() < until, "the server, or its folder, is there still"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    """A zombie does not: nobody may be there to ask how it ended."""
    try:
        os.kill(pid, 0)
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
