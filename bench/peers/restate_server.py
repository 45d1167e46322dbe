"""Restate's server, from its package for npm: set up, started, ended. `python -m …` sets it up.

It lies in Restate's environment, `.venv-peers-restate`. requirements/peers-restate.npm has the
exact versions, and what each package must hash to.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-peers-restate"
PYTHON = ENVIRONMENT / "bin" / "python"
BINARY = ENVIRONMENT / "server" / "restate-server"
PINS = ROOT / "requirements" / "peers-restate.npm"
PROCESSORS = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
START_S = 60.0
LOOK_S = 0.1


class NotSetUp(Exception):
    """The server cannot be had here; with why."""


def missing() -> str:
    """Why there is no Restate here; "" if there is."""
    if not (ENVIRONMENT / "stamp").exists():  # it is written when all is installed
        return "its SDK is not set up here: `make bench-peers` does it"
    return "" if BINARY.exists() else "its server is not set up here: `make bench-peers` does it"


def pin() -> tuple[str, str, str]:
    """The package for this platform, its version, and its SHA-512.

    Raises:
        NotSetUp: its makers package none for this platform.
    """
    processor = PROCESSORS.get(platform.machine().lower(), platform.machine())
    ending = f"-{sys.platform}-{processor}"
    for line in PINS.read_text("utf-8").splitlines():
        if not line.startswith("#") and line.split()[0].endswith(ending):
            name, version, digest = line.split()
            return name, version, digest.removeprefix("sha512-")
    raise NotSetUp(f"there is no server for {sys.platform} on {platform.machine()}")


def install() -> None:
    """Fetch the pinned package with npm, and unpack the server, unless that was done.

    Raises:
        NotSetUp: npm is not there, or fails, or gives something else than is pinned.
    """
    name, version, digest = pin()
    mark = BINARY.with_name("version")
    if mark.exists() and mark.read_text("utf-8") == f"{name} {version} {digest}":
        return
    with tempfile.TemporaryDirectory() as folder:
        package = _packed(f"{name}@{version}", Path(folder))
        found = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
        if found != digest:
            raise NotSetUp(f"npm gave another {name} {version}: its SHA-512 is {found}")
        BINARY.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(package) as archive:
            member = archive.getmember("package/bin/restate-server")
            member.name = BINARY.name
            archive.extract(member, BINARY.parent, filter="data")
    BINARY.chmod(0o755)
    mark.write_text(f"{name} {version} {digest}", "utf-8")


def _packed(package: str, folder: Path) -> Path:
    command = ["npm", "pack", "--silent", "--ignore-scripts", package]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError:
        raise NotSetUp("npm is not installed") from None
    found = list(folder.glob("*.tgz"))
    if done.returncode or len(found) != 1:
        raise NotSetUp(f"npm cannot fetch {package}: {done.stderr.strip()[-300:]}")
    return found[0]


def free_port() -> int:
    """A port of loopback that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RestateServer:
    """One server with its data in a folder. Use it in a ``with``; it ends with it.

    As shipped but for where it listens (loopback, free ports), one partition instead of 24, which
    starts sooner, and its telemetry, which is off.

    Attributes:
        ingress, admin: where to call services, and to register them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ports = [free_port() for _ in range(3)]
        self.ingress, self.admin, self._node = (f"127.0.0.1:{port}" for port in ports)
        self.start()

    def start(self) -> None:
        """Start it, again with what it has in its folder, and wait until it serves.

        Raises:
            NotSetUp: it ended, or does not come up.
        """
        environment = {
            **os.environ,
            "RESTATE_INGRESS__BIND_ADDRESS": self.ingress,
            "RESTATE_BIND_ADDRESS": self._node,
            "RESTATE_ADMIN__BIND_ADDRESS": self.admin,
            "DO_NOT_TRACK": "1",
            "RESTATE_DISABLE_TELEMETRY": "true",
        }
        with (self._folder / "restate.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    BINARY,
                    "--base-dir",
                    self._folder / "restate-data",
                    "--node-name",
                    "bench",
                    "--default-num-partitions",
                    "1",
                    "--listen-mode",
                    "tcp",
                    "--no-logo",
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + START_S
        while not (
            self._healthy(f"http://{self.admin}/health")
            and self._healthy(f"http://{self.ingress}/restate/health")
        ):
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise NotSetUp(f"the server does not come up; see {self._folder / 'restate.log'}")
            time.sleep(LOOK_S)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> RestateServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._process.kill()
        self._process.wait()

    @staticmethod
    def _healthy(url: str) -> bool:
        try:
            with urllib.request.urlopen(url, timeout=1.0) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def main() -> int:
    try:
        install()
    except NotSetUp as reason:
        print(f"no Restate here: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
