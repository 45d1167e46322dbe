"""Workers on several machines, a server on another, and wires that are cut."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from tests.chaos.processes import Site
from tests.chaos.world import World
from tests.postgres.crew import Crew
from tests.postgres.gated import gated
from tests.postgres.machines import Machines
from tests.postgres.server import Server

IMPATIENT: dict[str, Any] = {"deadline": 2, "retry": 1, "connect_timeout": 2}
SOON_S = 60.0


@pytest.fixture
def machines() -> Iterator[Machines]:
    made = Machines("a", "b")
    yield made
    made.remove()


@pytest.fixture
def away(machines: Machines) -> Iterator[Server]:
    """A server on a machine of its own."""
    server = Server(inside=machines.hub, host=machines.address).start()
    yield server
    server.remove()


class Gates:
    """Workers at a gate, on hosts; see gated.py."""

    def __init__(self, machines: Machines, url: str, folder: Path) -> None:
        self._machines = machines
        self._url = url
        self._folder = folder
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        World(folder)

    def hire(self, host: str, ttl_s: float) -> None:
        command = [
            *self._machines.on(host),
            sys.executable,
            "-m",
            "tests.postgres.gated",
            self._url,
            str(self._folder),
            host,
            str(ttl_s),
        ]
        with open(self._folder / f"log-{host}", "ab") as log:
            self._workers[host] = subprocess.Popen(command, stderr=log)

    def kill(self, host: str) -> None:
        self._workers[host].kill()
        self._workers[host].wait()

    def open(self, host: str) -> None:
        (self._folder / f"gate-{host}").touch()

    def has_come(self, host: str, agent: str) -> bool:
        """Whether an agent's run is at the gate on a host."""
        return (self._folder / f"at-{host}-{agent}").exists()

    def said(self, host: str, words: str) -> bool:
        return words in (self._folder / f"log-{host}").read_text()

    def wait(self, what: Callable[[], bool]) -> float:
        """How many seconds it took."""
        began = time.monotonic()
        while not what():
            assert time.monotonic() - began < SOON_S, self._stories()
            time.sleep(0.005)
        return time.monotonic() - began

    def _stories(self) -> str:
        """What the workers logged, and where each of their threads is."""
        for worker in self._workers.values():
            worker.send_signal(signal.SIGUSR1)
        time.sleep(1)
        logs = sorted(self._folder.glob("log-*"))
        return "\n".join(f"{path.name}:\n{path.read_text()[-8000:]}" for path in logs)

    def end(self) -> None:
        for host in self._workers:
            self.kill(host)


@pytest.fixture
def gates(machines: Machines, away: Server, tmp_path: Path) -> Iterator[Gates]:
    made = Gates(machines, away.url("perdure", **IMPATIENT), tmp_path)
    yield made
    made.end()


def test_i4_a_worker_that_is_cut_off_is_fenced(
    machines: Machines, away: Server, gates: Gates, tmp_path: Path
) -> None:
    """It is in the middle of a tool when its wire is cut. Its run goes on elsewhere when its lease
    is up; back on the wire, it ends its tool: neither the world nor the log takes that."""
    with perdure.open(away.own_url) as store:
        handle = store.start(gated, "x")
        gates.hire("a", 2.0)
        gates.wait(lambda: gates.has_come("a", "x"))
        gates.open("b")
        gates.hire("b", 2.0)
        machines.cut("a")
        took_s = gates.wait(lambda: gates.has_come("b", "x"))
        print(f"cut off: taken over after {took_s:.2f} s, the lease being 2 s")
        assert handle.result(timeout=timedelta(seconds=SOON_S)) == "b"
        machines.mend("a")
        gates.open("a")
        # It hears that its lease is over; or the store is still away for its commit, and then it
        # finds that the run is done.
        gates.wait(lambda: gates.said("a", "x/gated/main lost") or gates.said("a", "main done"))
        agent = store.agent("x")
        assert agent.state == {"begun": True, "by": "b"}
        agent.verify()
        epochs = [commit.epoch for commit in agent.log()]
        assert epochs == sorted(epochs)
    assert [effect.op for effect in World(tmp_path).effects("x")] == ["pass"]


def test_a_killed_worker_is_replaced_long_before_its_lease_is_up(
    away: Server, gates: Gates
) -> None:
    """Its connection's end shows its death: the lease, of ten minutes, is not waited for."""
    with perdure.open(away.own_url) as store:
        for host in ("a", "b"):
            gates.hire(host, 600.0)
        handle = store.start(gated, "x")
        gates.wait(lambda: gates.has_come("a", "x") or gates.has_come("b", "x"))
        first, second = ("a", "b") if gates.has_come("a", "x") else ("b", "a")
        gates.wait(lambda: len(store.runner.context.backend.executors()) >= 2)
        gates.open(second)
        gates.kill(first)
        took_s = gates.wait(lambda: gates.has_come(second, "x"))
        print(f"killed: taken over after {took_s:.2f} s")
        assert handle.result(timeout=timedelta(seconds=SOON_S)) == second


def test_all_goes_on_while_a_machine_is_cut_off_and_comes_back(
    machines: Machines, away: Server, tmp_path: Path
) -> None:
    """All kinds of agents on two machines, one of which loses its wire twice in their midst."""
    url = away.url("perdure", **IMPATIENT)
    crew = Crew(Site(tmp_path, 1, 2, "sync", 2.0, url))
    try:
        crew.hire("work", before=machines.on("a"))
        crew.hire("work", before=machines.on("b"))
        crew.hire("care", before=machines.on("b"))
        for _ in range(2):
            crew.await_effects(4)
            machines.cut("a")
            crew.await_effects(4)
            machines.mend("a")
        crew.finish(before=machines.on("b"))
    finally:
        crew.end()
