"""A standby is the same call in another process: it takes over when the owner dies, or seems to."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from tests.engine import programs
from tests.engine.pausing import pause

FOREVER_S = 3600.0
BOUND_S = 300
spawn = multiprocessing.get_context("spawn")


class Executor:
    """A process that runs the migration."""

    def __init__(self, folder: Path, policy: str, ttl_s: float) -> None:
        self._answers, theirs = spawn.Pipe(duplex=False)
        args = (str(folder), policy, ttl_s, theirs)
        self.process = spawn.Process(target=programs.execute, args=args)
        self.process.start()
        theirs.close()
        self.inside = folder / f"inside-{self.process.pid}"

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait_inside(self) -> None:
        until = time.monotonic() + BOUND_S
        while not self.inside.exists():
            assert time.monotonic() < until and self.process.is_alive()
            time.sleep(0.01)

    def answer(self) -> Any:
        assert self._answers.poll(BOUND_S), "stuck"
        return self._answers.recv()


class Site:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.executors: list[Executor] = []

    def start(self, policy: str = "retry", ttl_s: float = FOREVER_S) -> Executor:
        self.executors.append(Executor(self.folder, policy, ttl_s))
        return self.executors[-1]

    def hold(self) -> None:
        (self.folder / "hold").touch()

    def let_go(self) -> None:
        (self.folder / "hold").unlink()

    def effects(self) -> list[str]:
        return [line.split()[0] for line in (self.folder / "effects").read_text().splitlines()]

    def keys(self) -> int:
        return len(set((self.folder / "effects").read_text().splitlines()))

    def agent(self) -> Any:
        return perdure.open(self.folder / "m.db").agent("m")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    for executor in site.executors:
        executor.process.kill()
        executor.process.join()


DONE = ("result", [100, 200, 300])


def test_asked_for_at_once_it_is_executed_once(site: Site) -> None:
    """Two processes met at an agent that was not there yet: one of them failed with a Conflict."""
    executors = [site.start() for _ in range(3)]
    assert [executor.answer() for executor in executors] == [DONE] * 3
    assert site.effects() == ["1", "2", "3"]


def test_a_standby_takes_over_at_once_when_the_owner_is_killed(site: Site) -> None:
    site.hold()
    owner = site.start()
    owner.wait_inside()
    standby = site.start()
    time.sleep(0.5)
    assert not standby.inside.exists(), "it stands by"
    site_effects = site.effects()
    owner.signal(signal.SIGKILL)
    standby.wait_inside()  # long before the lease expires: the owner's lock is free
    site.let_go()
    assert standby.answer() == DONE
    assert site_effects == ["1"] and site.effects() == ["1", "2", "3"]
    site.agent().verify()


@pytest.mark.parametrize("policy", ["retry", "ask"])
def test_i4_a_paused_owner_is_fenced_when_it_wakes(site: Site, policy: str) -> None:
    site.hold()
    zombie = site.start(policy, ttl_s=0.6)
    zombie.wait_inside()
    assert zombie.process.pid is not None
    pause(zombie.process.pid)
    successor = site.start(policy, ttl_s=10)
    if policy == "ask":
        kind, words = successor.answer()
        assert kind == "NeedsAttention" and "move#2" in words
        settled = site.agent()
        assert [commit.cause.kind for commit in settled.log()][-1] == "run-stopped"
    else:
        successor.wait_inside()
    site.let_go()
    if policy == "retry":
        assert successor.answer() == DONE
    before = site.agent().log(newest_first=True).__next__().seq
    zombie.signal(signal.SIGCONT)
    answer = zombie.answer()
    agent = site.agent()
    late = [commit for commit in agent.log() if commit.seq > before]
    if policy == "retry":
        assert answer == DONE, "it gives what the successor recorded"
        assert late == [], "and nothing of its own is in the log"
        # Its own call came to its end: fencing protects the log, a key protects the world.
        assert site.effects() == ["1", "2", "3", "2"] and site.keys() == 3
    else:
        assert answer[0] == "NeedsAttention" and "move#2" in answer[1]
        assert [c.cause.kind for c in late] == ["run-resumed", "run-stopped"]
        assert site.effects() == ["1", "2"], "the successor repeated nothing"
    epochs = [commit.epoch for commit in agent.log() if commit.epoch]
    assert epochs == sorted(epochs) and len(set(epochs)) >= 2
    agent.verify()
