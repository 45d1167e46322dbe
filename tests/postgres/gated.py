"""`python -m tests.postgres.gated URL FOLDER HOST TTL_S`: a worker whose tool waits at a gate.

In the folder, `at-HOST-AGENT` is there once the tool is called on that host, and `gate-HOST` lets
it go on. What happens is logged to stderr, and so is where each thread is, on SIGUSR1.
"""

from __future__ import annotations

import faulthandler
import logging
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import perdure
from perdure.engine.dispatch.worker import Worker
from tests.chaos.world import World

folder = Path()
host = ""


def find(agent: str) -> Any:
    key, token = perdure.idempotency_key(), perdure.fencing_token()
    return host if World(folder).look(agent, key, token) else perdure.NOT_DONE


@perdure.tool(on_crash="probe", probe=find)
def pass_gate(agent: str) -> str:
    (folder / f"at-{host}-{agent}").touch()
    while not (folder / f"gate-{host}").exists():
        time.sleep(0.01)
    World(folder).act(agent, "pass", perdure.idempotency_key(), perdure.fencing_token())
    return host


@perdure.agent(dict)
def gated(run: perdure.Run[dict[str, Any]]) -> str:
    with run.edit("begun") as draft:
        draft["begun"] = True
    by = pass_gate(run.agent)
    with run.edit("passed") as draft:
        draft["by"] = by
    return by


def main(url: str, where: str, name: str, ttl_s: str) -> None:
    global folder, host
    folder, host = Path(where), name
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    faulthandler.register(signal.SIGUSR1)
    with perdure.open(url, lease_ttl=timedelta(seconds=float(ttl_s))) as store:
        Worker(store, [gated]).run(signals=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
