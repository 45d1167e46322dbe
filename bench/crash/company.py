"""A card company: `LEDGER [--keys]`; HTTP on loopback, the port is chosen by the system.

    POST /charges {"order", "cents"}    charges; with --keys once for each Idempotency-Key
    GET  /charges?order=…&key=…         what was charged, for those who ask

A charge is in the ledger, and on disk, before it is answered. It says on stdout where it listens,
and of each charge. Told {"answer": false} on stdin, it lets those who charge wait for their answers
until {"answer": true}; it ends with its stdin.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEY_HEADER = "Idempotency-Key"


class Ledger:
    """Charges, one JSON object a line; each is on disk when `charge` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        path.touch()

    def charge(self, order: str, cents: int, key: str, once: bool) -> tuple[dict[str, Any], bool]:
        """The charge; and whether it was made now, not before under the same key."""
        with self._lock:
            made = read(self._path)
            if once and key:
                for charge in made:
                    if charge["key"] == key:
                        return charge, False
            charge = {"id": f"charge-{len(made) + 1}", "order": order, "cents": cents, "key": key}
            with self._path.open("a", encoding="utf-8") as ledger:
                ledger.write(json.dumps(charge) + "\n")
                ledger.flush()
                os.fsync(ledger.fileno())
            return charge, True


def read(path: Path) -> list[dict[str, Any]]:
    """The charges in a ledger, in the order in which they were made."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


class Desk(BaseHTTPRequestHandler):
    """Takes requests. The options are the class's, set once before it listens."""

    path_of_ledger: Path
    ledger: Ledger
    once = False
    answering: threading.Event

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers.get(KEY_HEADER, "")
        charge, new = self.ledger.charge(asked["order"], asked["cents"], key, self.once)
        if new:
            say({"charged": charge["order"]})
        self.answering.wait()
        self._answer(charge)

    def do_GET(self) -> None:
        wanted = parse_qs(urlsplit(self.path).query)
        self._answer(
            [
                charge
                for charge in read(self.path_of_ledger)
                if all(charge[name] == value for name, (value,) in wanted.items())
            ]
        )

    def _answer(self, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: the ledger says it."""


class Company(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that was killed does not hear the answer. That is its trouble, not ours."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def main(ledger: str, *options: str) -> None:
    Desk.path_of_ledger, Desk.ledger = Path(ledger), Ledger(Path(ledger))
    Desk.once, Desk.answering = "--keys" in options, threading.Event()
    Desk.answering.set()
    server = Company(("127.0.0.1", 0), Desk)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say({"port": server.server_address[1]})
    for line in sys.stdin:
        answering = json.loads(line)["answer"]
        (Desk.answering.set if answering else Desk.answering.clear)()
        say({"answering": answering})


if __name__ == "__main__":
    main(*sys.argv[1:])
