"""Several machines in one: network namespaces with a wire each to a switch, which can be cut."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess

import pytest

NET = "198.18.0"
"""For tests of networks (RFC 2544). Each set of machines has it for itself."""


class Machines:
    """A switch, whose own machine has the server, and hosts with a wire to it.

    Only the namespaces made here are touched, under names that begin with a random prefix; what is
    in one, goes with it.

    Raises:
        pytest.skip.Exception: this machine, or user, cannot have network namespaces.
    """

    def __init__(self, *hosts: str) -> None:
        self._prefix = f"perdure-{os.getpid()}-{secrets.token_hex(3)}"
        self._made: list[str] = []
        self.hub = f"{self._prefix}-hub"
        self.address = f"{NET}.1"
        if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("setpriv") is None:
            pytest.skip("network namespaces need root, and the programs ip and setpriv")
        try:
            self._make(self.hub)
        except RuntimeError as error:
            pytest.skip(f"no network namespaces on this machine: {error}")
        try:
            self._ip("-n", self.hub, "link", "add", "switch", "type", "bridge")
            self._ip("-n", self.hub, "address", "add", f"{self.address}/24", "dev", "switch")
            self._ip("-n", self.hub, "link", "set", "switch", "up")
            for number, host in enumerate(hosts):
                self._wire(host, f"{NET}.{number + 2}")
        except BaseException:
            self.remove()
            raise

    def _make(self, name: str) -> None:
        self._ip("netns", "add", name)
        self._made.append(name)
        self._ip("-n", name, "link", "set", "lo", "up")

    def _wire(self, host: str, address: str) -> None:
        name = self.name(host)
        self._make(name)
        self._ip(
            "-n",
            self.hub,
            "link",
            "add",
            f"to-{host}",
            "type",
            "veth",
            "peer",
            "name",
            "wire",
            "netns",
            name,
        )
        self._ip("-n", self.hub, "link", "set", f"to-{host}", "master", "switch", "up")
        self._ip("-n", name, "address", "add", f"{address}/24", "dev", "wire")
        self._ip("-n", name, "link", "set", "wire", "up")

    def name(self, host: str) -> str:
        """Of a host's namespace."""
        return f"{self._prefix}-{host}"

    def on(self, host: str) -> list[str]:
        """What a command stands behind that is to run on a host."""
        return ["ip", "netns", "exec", self.name(host)]

    def cut(self, host: str) -> None:
        """Nothing comes through its wire any more, and nobody is told."""
        self._ip("-n", self.hub, "link", "set", f"to-{host}", "down")

    def mend(self, host: str) -> None:
        self._ip("-n", self.hub, "link", "set", f"to-{host}", "up")

    def remove(self) -> None:
        """Their processes must have ended."""
        while self._made:
            self._ip("netns", "delete", self._made.pop())

    def _ip(self, *arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
