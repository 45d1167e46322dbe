"""Cuts the power of a server's machine at moments drawn by chance, again and again."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

import perdure
from perdure.errors import PerdureError
from perdure.model import Durability
from tests.chaos.world import World
from tests.powerloss.lossy.disk import Names
from tests.powerloss.postgres.clients import Acknowledged, Notes
from tests.powerloss.postgres.machine import Machine, ServerGoneError
from tests.powerloss.postgres.promises import broken, broken_at_the_end
from tests.source_tree import ROOT

CHANGES = (60, 600, 1500)
"""Of the disk, at most so many until the next cut: some come soon."""

RECOVERY_CHANGES = 400
KEPT = (0.0, 0.0, 0.1, 0.5, 0.9, 1.0)
NAMES: tuple[Names, ...] = ("in order", "apart")
SYNCS = ("fdatasync", "fsync", "open_datasync", "open_sync")
"""How a server may sync its log."""

FINISH_S = 120.0
RETRY_S = 60


class ClientsGoneError(Exception):
    """They met what no client may meet."""


class Way(Struct, frozen=True):
    """How a server is run.

    Attributes:
        settings: of it.
        durability: that clients ask for.
        control: something must be found. What was acknowledged in the moment between the end of the
            disk and that of the server does not count then.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    durability: Durability = "sync"
    control: bool = False


AS_IT_IS = Way()
CONTROLS = {
    "fsync=off": Way({"fsync": "off"}, control=True),
    "full_page_writes=off": Way({"full_page_writes": "off"}, control=True),
    "durability=os": Way(durability="os", control=True),
}
"""What must be found out."""

SPARED = {"synchronous_commit=off": Way({"synchronous_commit": "off"})}
"""What harms a server's other users: a commit at `sync` asks for more by itself."""


class Outcome(Struct):
    """What cuts came to."""

    cuts: int = 0
    in_recovery: int = 0
    kills: int = 0
    syncs: int = 0
    lost_pages: int = 0
    lost_names: int = 0
    edits: int = 0
    signals: int = 0
    runs: int = 0
    effects: int = 0
    violations: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        return (
            f"{self.cuts} cuts, {self.in_recovery} of them while the server recovered; "
            f"{self.kills} times the clients were killed, too; {self.syncs} syncs; "
            f"{self.lost_pages} pages and {self.lost_names} names were lost that were not synced; "
            f"{self.edits} edits, {self.signals} signals and {self.runs} runs acknowledged, "
            f"{self.effects} effects; {len(self.violations)} promises broken"
        )


class Cuts:
    """One server, and its clients.

    Args:
        folder: for all of it; made here.
    """

    def __init__(self, folder: Path, seed: str, way: Way = AS_IT_IS) -> None:
        self._dice = random.Random(seed)
        self._way = way
        self._folder = folder
        settings = {"wal_sync_method": self._dice.choice(SYNCS), **way.settings}
        self._machine = Machine(folder / "server", settings, self._dice.choice(NAMES), seed)
        self._url = self._machine.url("perdure", retry=RETRY_S)
        self._notes = Notes(folder)
        self._clients: subprocess.Popen[bytes] | None = None
        self._outcome = Outcome()
        self._frozen_ns = 0
        World(folder)

    def run(self, cuts: int) -> Outcome:
        """So many, and what comes of them; no more after a broken promise."""
        try:
            self._machine.boot()
            perdure.open(self._url).close()
            while self._outcome.cuts < cuts and not self._outcome.violations:
                self._work_until_cut()
                self._lose_power()
                self._come_back()
            if not self._outcome.violations:
                self._finish()
        except (ServerGoneError, ClientsGoneError) as error:
            self._outcome.violations.append(str(error))
        finally:
            if self._clients is not None:
                self._clients.kill()
                self._clients.wait()
            self._machine.remove()
        self._count()
        return self._outcome

    def _work_until_cut(self) -> None:
        if self._clients is None:
            self._clients = self._hire()
            self._await_more_notes()
        self._machine.disk.cut_after(self._dice.randint(0, self._dice.choice(CHANGES)))
        while not self._machine.disk.is_frozen(0.05):
            self._look_at_clients()

    def _hire(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "tests.powerloss.postgres.clients",
            self._url,
            str(self._folder),
            self._way.durability,
        ]
        with open(self._folder / "errors", "ab") as errors:
            return subprocess.Popen(command, stderr=errors, cwd=ROOT)

    def _await_more_notes(self) -> None:
        """The first that new clients have."""
        known = len(self._notes.all())
        while len(self._notes.all()) == known:
            self._look_at_clients()
            time.sleep(0.02)

    def _look_at_clients(self) -> None:
        if self._clients is not None and self._clients.poll() is not None:
            errors = (self._folder / "errors").read_text(errors="replace")
            raise ClientsGoneError(f"the clients ended: {errors[-3000:]}")

    def _lose_power(self) -> None:
        if self._clients is not None and self._dice.random() < 0.3:
            self._clients.kill()
            self._clients.wait()
            self._clients = None
            self._outcome.kills += 1
        self._frozen_ns = self._machine.disk.frozen_ns
        lost = self._machine.lose_power(self._dice.choice(KEPT))
        self._outcome.cuts += 1
        self._outcome.syncs += lost["syncs"]
        self._outcome.lost_pages += lost["pages"]
        self._outcome.lost_names += lost["names"]

    def _come_back(self) -> None:
        """Start from what is left, maybe at the second or third attempt, and look."""
        acknowledged = [
            one for one in self._notes.all() if not self._way.control or one.at_ns < self._frozen_ns
        ]
        while self._dice.random() < 0.25:
            if self._machine.boot(self._dice.randint(0, RECOVERY_CHANGES)):
                self._machine.disk.cut_after(10**9)
                if not self._machine.disk.is_frozen():
                    break
            self._lose_power()
            self._outcome.in_recovery += 1
        else:
            self._machine.boot()
        self._look(acknowledged, at_the_end=False)

    def _look(self, acknowledged: list[Acknowledged], *, at_the_end: bool) -> None:
        look = broken_at_the_end if at_the_end else broken
        try:
            with perdure.open(self._url, create=False) as store:
                self._outcome.violations += look(store, self._folder, acknowledged)
        except PerdureError as error:
            self._outcome.violations.append(f"{type(error).__name__}: {error}")

    def _finish(self) -> None:
        """All come to their ends, with the power on."""
        self._notes.stop()
        clients = self._clients = self._clients or self._hire()
        try:
            code = clients.wait(FINISH_S)
        except subprocess.TimeoutExpired:
            self._outcome.violations.append("what is left does not come to its end")
            return
        if code:
            self._look_at_clients()
        self._look(self._notes.all(), at_the_end=True)

    def _count(self) -> None:
        kinds = [one.kind for one in self._notes.all()]
        outcome, world = self._outcome, World(self._folder)
        outcome.edits, outcome.signals = kinds.count("edit"), kinds.count("signal")
        outcome.runs = kinds.count("done")
        agents = (self._folder / "world").iterdir()
        outcome.effects = sum(len(world.effects(path.name)) for path in agents)


def cut(base: Path, seed: str, cuts: int, way: Way = AS_IT_IS) -> Outcome:
    """In a folder of its own, which is deleted."""
    folder = base / f"cuts-{seed.replace(' ', '-')}"
    try:
        return Cuts(folder, seed, way).run(cuts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
