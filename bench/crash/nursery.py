"""Where the agent's processes are started: `MODULE`; runs in the contestant's environment.

It imports the module, and forks it for every start, so that hundreds of starts do not import a
framework hundreds of times. Nothing else is shared: it has no thread, and opens nothing.

    → {"ready": "bench.crash.agents.dbos_agent"}
    ← {"arguments": [FOLDER, ORDER, …], "environment": {…}, "log": PATH}
    → {"pid": 4711}
    ← {"limit_s": 60}                            wait; ended when it takes longer
    → {"status": 0, "late": false}
    ← {"kill_at": 3}                             or trace it instead: see `tracer`
    → {"attached": 4}                            so many threads
    → {"status": -9, "writes": ["…", "…", "…"]}
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from importlib import import_module
from typing import Any

from bench.crash.tracer import Tracer


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(name: str) -> None:
    module = import_module(name)
    if threading.active_count() > 1:
        raise AssertionError(f"{name} started threads when it was imported; forks would lack them")
    say(ready=name)
    while line := sys.stdin.readline():
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(asked)
            module.main(*asked["arguments"])
            return
        say(pid=pid)
        _attend(pid)


def _become(asked: dict[str, Any]) -> None:
    """The child's own environment, and nothing of the pipes."""
    os.environ.update(asked["environment"])
    log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, place in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, place)
    os.close(nothing)
    os.close(log)


def _attend(pid: int) -> None:
    """Until the child has ended, which nobody outlives."""
    line = sys.stdin.readline()
    asked = json.loads(line) if line else {"limit_s": 0}
    if "kill_at" in asked:
        tracer = Tracer(pid, asked["kill_at"])
        say(attached=tracer.attach())
        say(status=tracer.follow(), writes=tracer.writes)
        return
    ended = os.pidfd_open(pid)
    late = not select.select([ended], [], [], asked["limit_s"])[0]
    os.close(ended)
    if late:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    say(status=os.waitstatus_to_exitcode(status), late=late)


if __name__ == "__main__":
    main(*sys.argv[1:])
