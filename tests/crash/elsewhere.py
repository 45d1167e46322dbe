"""Another process that lives as an executor of a store and listens, until it is killed."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys, threading
from perdure.storage.sqlite.backend import SqliteBackend
backend = SqliteBackend(sys.argv[1])
backend.heartbeat("other", int(sys.argv[2]))
backend.listen("other", lambda run: print(run, flush=True))
print("listening", flush=True)
threading.Event().wait()
"""


def listen_elsewhere(path: str, ttl_ms: int = 60_000) -> subprocess.Popen[str]:
    """As the executor "other"; it prints what it hears."""
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, path, str(ttl_ms)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "listening\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
