"""The database of a round, where that is a server: it is killed, too, and started again."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from perdure.storage.postgres.backend import PostgresBackend
from tests.postgres.server import Server

LIFE_S = 3.0
"""How long the server lives, on average."""

AWAY_S = 1.0
RETRY_S = 15

WAYS: tuple[Callable[[Server], None], ...] = (
    Server.crash,
    lambda server: server.stop(signal.SIGKILL),
    lambda server: server.stop(signal.SIGQUIT),
    lambda server: server.stop(signal.SIGINT),
)


class Database:
    """A private server of its own folder. Nothing here waits for it, but for its first start."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self._dice = dice
        folder.mkdir(parents=True)
        self._server = Server({"fsync": "on", "full_page_writes": "on"}, folder=folder).start()
        self.url = self._server.url("perdure", retry=RETRY_S)
        try:
            PostgresBackend(self.url).close()  # loaded and made here, and not in each process
        except BaseException:
            self.end()
            raise
        self.kills = 0
        self._back_at = 0.0
        self._ends_at = time.monotonic() + dice.uniform(0.3, 1.0)  # once even in a short round

    def attend(self, *, spare: bool) -> None:
        """Kill it, or start it, when it is time; unless it is to be spared."""
        now = time.monotonic()
        if self._server.runs:
            if now >= self._ends_at and not spare:
                self._dice.choice(WAYS)(self._server)
                self.kills += 1
                self._back_at = time.monotonic() + self._dice.uniform(0, 2 * AWAY_S)
        elif now >= self._back_at:
            self._ends_at = now + 0.5 + self._dice.expovariate(1 / LIFE_S)
            self._server.launch()  # it may end at once, where others of its own are there still

    def end(self) -> None:
        """Its folder stays, for whoever wants to look."""
        self._server.stop(signal.SIGQUIT)
