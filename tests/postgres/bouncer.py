"""A private PgBouncer before a private server."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

from tests.postgres.server import START_S, USER, Server, free_port, unprivileged

SETTINGS = """\
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = {connections}
server_round_robin = 1
logfile = {folder}/log
"""


class Bouncer:
    """In transaction mode: each transaction may get another session of the server.

    Raises:
        pytest.skip.Exception: there is none on this machine.
    """

    def __init__(self, server: Server, connections: int = 4) -> None:
        program = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if program is None:
            pytest.skip("no PgBouncer on this machine: Debian's package is called pgbouncer")
        self.port = free_port()
        self._server = server
        self._folder = Path(tempfile.mkdtemp(prefix="perdure-bouncer-"))
        self._folder.chmod(0o755)
        who = unprivileged()
        if who:
            os.chown(self._folder, who["user"], who["group"])
        (self._folder / "users").write_text(f'"{USER}" ""\n')
        self._connections = connections
        self._configure(server)
        self._process = subprocess.Popen(
            [program, "-q", str(self._folder / "ini")], start_new_session=True, **who
        )
        try:
            self._await()
        except BaseException:
            self.end()
            raise

    def _configure(self, server: Server) -> None:
        (self._folder / "ini").write_text(
            SETTINGS.format(
                server=server.port,
                port=self.port,
                folder=self._folder,
                connections=self._connections,
            )
        )

    def lead_to(self, server: Server) -> None:
        """From now on another server is behind it; who is connected notices nothing."""
        self._configure(server)
        self._process.send_signal(signal.SIGHUP)

    def _await(self) -> None:
        until = time.monotonic() + START_S
        while True:
            try:
                psycopg.connect(self.url(self._server.url())).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"it did not start:\n{self.last_words()}") from None
            time.sleep(0.02)

    def url(self, url: str) -> str:
        """The way to a store of the server that leads through here."""
        return url.replace(f":{self._server.port}/", f":{self.port}/")

    def last_words(self) -> str:
        log = self._folder / "log"
        return log.read_text()[-2000:] if log.exists() else ""

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
