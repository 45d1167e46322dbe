"""How the agent's process calls the card company, and the moments in which it kills itself.

Used inside the environments of all contestants, so it needs nothing but Python. The company's
address, the moment, and where to report come by the environment: where no moment is named, nothing
dies.
"""

from __future__ import annotations

import json
import os
import select
import signal
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode

CENTS = 4200
COMPANY = "CRASH_COMPANY"
MOMENT = "CRASH_MOMENT"
REPORT = "CRASH_REPORT"
TIMEOUT_S = 60.0

BEFORE = "before"
"""Whatever the contestant writes before a call is written; the request is not sent."""
CHARGED = "charged"
"""The company has charged, and its answer lies unread in our socket."""
READ = "read"
"""The answer is read; the call has not returned to the contestant yet."""
NEXT = "next"
"""The contestant has let the agent go on to what comes after the call."""
ENDED = "ended"
"""The contestant has said that all is done; nobody was told."""

FINISHED, ASKS, DOUBTS = "finished", "asks", "in doubt"
"""What `report` is given: the run has a result; it waits for a person; it ended with an error that
names the doubt."""

MOMENTS = (BEFORE, CHARGED, READ, NEXT, ENDED)


def moment(name: str) -> None:
    """Dies here as `kill -9` does, if this is the moment that was named."""
    if os.environ.get(MOMENT) == name:
        os.kill(os.getpid(), signal.SIGKILL)


def charge(order: str, key: str = "") -> str:
    """Charge the card for an order; the company's name for the charge."""
    connection = HTTPConnection("127.0.0.1", int(os.environ[COMPANY]), timeout=TIMEOUT_S)
    connection.connect()
    moment(BEFORE)
    headers = {"Idempotency-Key": key} if key else {}
    connection.request("POST", "/charges", json.dumps({"order": order, "cents": CENTS}), headers)
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    if not poll.poll(TIMEOUT_S * 1000):
        raise TimeoutError("the card company does not answer")
    moment(CHARGED)
    with connection.getresponse() as response:
        made = json.loads(response.read())
    connection.close()
    moment(READ)
    return str(made["id"])


def charges(**of: str) -> list[dict[str, Any]]:
    """Ask the company what it charged, by `order` or by `key`."""
    connection = HTTPConnection("127.0.0.1", int(os.environ[COMPANY]), timeout=TIMEOUT_S)
    connection.request("GET", f"/charges?{urlencode(of)}")
    with connection.getresponse() as response:
        found: list[dict[str, Any]] = json.loads(response.read())
    connection.close()
    return found


def report(status: str, said: object) -> None:
    """Tell whoever started this process how the run stands; nothing is told after `ENDED`."""
    moment(ENDED)
    with open(os.environ[REPORT], "w", encoding="utf-8") as told:
        told.write(json.dumps({"status": status, "said": str(said)}))
