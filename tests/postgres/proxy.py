"""A wire between a store and its server that can be cut at a chosen moment, or be a pooler."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Literal

Cut = Literal["", "request", "answer"]
KEY_DATA = b"K" + struct.pack("!i", 12)
"""How a server's message begins that tells its process id."""


class Proxy:
    """Listens on a free loopback port, and passes on what comes.

    `cut`: what happens to the next message of a client, once: its "request" does not reach the
    server; or its "answer", which the server gave, does not come back. Both end the connection.
    `for_good`: from that cut on, before the client can know of it, the proxy refuses all others.
    `links`: all connections that came, and those behind them.
    `refuses`: new connections are ended at once, and so are all that there are.
    """

    def __init__(self, port: int, *, as_pooler: bool = False) -> None:
        self._target = ("127.0.0.1", port)
        self._as_pooler = as_pooler
        self.cut: Cut = ""
        self.cuts = 0
        self.for_good = False
        self._refuses = False
        self.links: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def refuses(self) -> bool:
        return self._refuses

    @refuses.setter
    def refuses(self, value: bool) -> None:
        self._refuses = value
        if value:
            self._end_all_but(None)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refuses:
                client.close()
                continue
            server = socket.create_connection(self._target)
            self.links.append((client, server))
            if self._refuses:  # said since it was looked at, by one who did not see this link yet
                self._end(client, server)
                continue
            answer_lost = threading.Event()
            for work in (self._up, self._down):
                threading.Thread(
                    target=work, args=(client, server, answer_lost), daemon=True
                ).start()

    def _up(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                with self._lock:
                    cut, self.cut = self.cut, ""
                if cut:
                    self.cuts += 1
                    if self.for_good:
                        self._refuses = True
                        self._end_all_but(client)
                if cut == "request":
                    break
                if cut == "answer":
                    lost.set()
                server.sendall(data)
        if not lost.is_set():
            self._end(client, server)

    def _down(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        first = True
        with suppress(OSError):
            while data := server.recv(65536):
                if lost.is_set():
                    break
                if self._as_pooler and KEY_DATA in data and first:
                    at = data.index(KEY_DATA) + len(KEY_DATA)
                    data = data[:at] + struct.pack("!i", 1) + data[at + 4 :]
                    first = False
                client.sendall(data)
        self._end(client, server)

    def _end_all_but(self, spared: socket.socket | None) -> None:
        for link in self.links:
            if link[0] is not spared:
                self._end(*link)

    def _end(self, client: socket.socket, server: socket.socket) -> None:
        for one in (client, server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def close(self) -> None:
        self.refuses = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
