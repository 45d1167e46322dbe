"""What is recorded: a store in use, with a mark wherever something was acknowledged to its user."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import apsw
from msgspec import Struct

import perdure
from perdure.errors import StoreUnavailable
from perdure.model import Lease, Message
from perdure.retention import trimming as retention
from perdure.storage.appending import Appended
from perdure.storage.group_policy import GROUPED
from perdure.storage.sqlite import housekeeper, writer
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.storage.sqlite.connection import connect
from perdure.store import Store
from perdure.testing.pen import Pen
from tests.powerloss import lazy_steps, support
from tests.powerloss.recording import Operation, Tape

NAME = "store.db"
ACKNOWLEDGED = "acknowledged"
EFFECT = "effect "
FORMAT_1 = Path(__file__).parents[1] / "compat" / "fixtures" / "format-1.db"


class Recording(Struct, frozen=True):
    """A tape that was recorded. `before`: the files that were there."""

    workload: str
    seed: int
    before: Mapping[str, bytes]
    operations: list[Operation]


class Desk:
    """Where a workload works: one store's path on a tape, and a source of chance."""

    def __init__(self, tape: Tape, folder: Path, rng: random.Random) -> None:
        self.tape = tape
        self.path = str(folder / NAME)
        self.rng = rng

    def backend(self, **more: Any) -> SqliteBackend:
        return SqliteBackend(self.path, vfs=self.tape.name, **more)

    @contextmanager
    def store(self, group: perdure.GroupPolicy = GROUPED, **policy: Any) -> Iterator[Store]:
        store = Store(self.backend(group=group), perdure.SnapshotPolicy(**policy))
        self.acknowledged()
        try:
            yield store
        finally:
            store.close()
            self.acknowledged()

    def acknowledged(self) -> None:
        """All that was done up to now was acknowledged."""
        self.tape.mark(ACKNOWLEDGED)

    @contextmanager
    def syncs_failing(self) -> Iterator[None]:
        """The first sync fails, and of those that follow some."""
        left = iter([True, *(self.rng.random() < 0.25 for _ in range(6))])
        self.tape.fails = lambda name: next(left, False)
        yield
        self.tape.fails = lambda name: False

    def text(self, most: int) -> str:
        """Something that does not compress."""
        return self.rng.randbytes(self.rng.randint(1, most) // 2 + 1).hex()

    def move_wal(self) -> None:
        """What the housekeeper does when the WAL has grown, at a moment of our own."""
        connection = connect(self.path, synchronous="FULL", create=False, vfs=self.tape.name)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        connection.close()
        self.acknowledged()


def edits(desk: Desk) -> None:
    """Commits of all sizes, with keys and checkpoints; the store is closed and opened again."""
    for opened in range(3):
        with desk.store() as store:
            for number in range(7):
                name = desk.rng.choice(["a", "b"])
                agent = store.agent(name)
                with agent.edit("message", key=f"{opened}-{number}") as draft:
                    draft["text"] = desk.text(desk.rng.choice([10, 200, 9000, 30_000]))
                desk.acknowledged()
                if number == 3:
                    agent.checkpoint(f"point-{opened}")
                    desk.acknowledged()


def branches(desk: Desk) -> None:
    """Forks, rollbacks, undo and redo, adoption, snapshots of long lists, an agent that is deleted
    and made again."""
    with desk.store(every_commits=3) as store:
        agent = store.agent("a")
        for number in range(6):
            with agent.edit("grow", key=f"k-{number}") as draft:
                messages = draft.setdefault("messages", [])
                messages.extend(desk.text(60) for _ in range(desk.rng.randint(20, 60)))
            desk.acknowledged()
        done: list[Callable[[], object]] = [
            lambda: agent.fork("what-if", at=3),
            lambda: _edit(store.agent("a").branch("what-if"), "other way", desk),
            agent.undo,
            agent.redo,
            lambda: agent.checkpoint("before"),
            lambda: _edit(agent, "more", desk),
            lambda: agent.rollback("before"),
            lambda: agent.adopt("what-if"),
            desk.move_wal,
            lambda: _edit(store.agent("gone"), "begin", desk),
            lambda: store.delete("gone"),
            lambda: _edit(store.agent("gone"), "begin anew", desk),
        ]
        for act in done:
            act()
            desk.acknowledged()


def _edit(agent: Any, why: str, desk: Desk) -> None:
    agent.refresh()
    with agent.edit(why) as draft:
        draft["text"] = desk.text(500)


def moving_the_wal(desk: Desk) -> None:
    """The WAL is moved into the main file, begun anew, emptied, deleted, and made again."""
    for _ in range(3):
        with desk.store() as store:
            for number in range(9):
                with store.agent("a").edit("message") as draft:
                    draft[f"text-{number % 4}"] = desk.text(desk.rng.choice([50, 5000, 20_000]))
                desk.acknowledged()
                if number in (2, 3, 6):
                    desk.move_wal()
            if desk.rng.random() < 0.5:
                store.close()
                continue
            backend = desk.backend()
            backend.maintain("clean")
            desk.acknowledged()
            with store.agent("b").edit("after the WAL was emptied") as draft:
                draft["text"] = desk.text(3000)
            desk.acknowledged()
            backend.close()


def housekeeping(desk: Desk) -> None:
    """The real housekeeper moves the WAL, on its own thread, every few pages; commits go on."""
    with mock.patch.object(housekeeper, "CHECKPOINT_PAGES", 12), desk.store() as store:
        for _ in range(25):
            with store.agent(desk.rng.choice(["a", "b"])).edit("message") as draft:
                draft["text"] = desk.text(desk.rng.choice([50, 9000]))
            desk.acknowledged()


def writers(desk: Desk) -> None:
    """Two backends on one file, as two processes have it: each its own connections, writing in
    turn and at once, one moving the WAL, one closing before the other."""
    with desk.store() as one:
        two = Store(desk.backend())
        for number in range(12):
            for store, name in ((one, "a"), (two, "b")):
                if desk.rng.random() < 0.8:
                    agent = store.agent(name if desk.rng.random() < 0.7 else "shared")
                    agent.refresh() if number else None
                    agent.update(lambda draft: draft.update(text=desk.text(4000)))
                    desk.acknowledged()
            if number % 4 == 3:
                desk.move_wal()
        threads = [
            threading.Thread(target=_several, args=(store, name, desk.text(3000)))
            for store, name in ((one, "a"), (two, "b"), (two, "shared"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        desk.acknowledged()
        two.close()
        one.agent("a").update(lambda draft: draft.update(text="the last one"))
        desk.acknowledged()


def _several(store: Store, name: str, text: str) -> None:
    for number in range(4):
        with store.agent(name).edit("at once") as draft:
            draft["at_once"] = f"{number} {text}"


def runs(desk: Desk) -> None:
    """A run from its start to its end; what comes for it is in the inbox meanwhile."""
    with desk.store(every_commits=4) as store:
        support.perform(store, desk.acknowledged, lambda did: desk.tape.mark(EFFECT + did))


def steps(desk: Desk) -> None:
    """A run of steps that do not wait for the disk, and of tools that do."""
    with desk.store(perdure.GroupPolicy(5, 3600), every_commits=4) as store:
        lazy_steps.perform(store, desk.acknowledged, lambda did: desk.tape.mark(EFFECT + did))


def migration(desk: Desk) -> None:
    """A store of the first format is brought up to date, and used."""
    with desk.store() as store:
        for number in range(3):
            with store.agent(f"new-{number}").edit("message") as draft:
                draft["text"] = desk.text(3000)
            desk.acknowledged()


def purging(desk: Desk) -> None:
    """Agents are deleted and purged in small parts, others are written to in between, and the
    room of the first is used again."""
    with desk.store(every_commits=3) as store:
        backend = store._context.backend
        for number in range(2):
            agent = store.agent(f"gone-{number}")
            for edit in range(6):
                with agent.edit("grow", key=f"k-{edit}") as draft:
                    messages = draft.setdefault("messages", [])
                    messages.extend(desk.text(60) for _ in range(desk.rng.randint(20, 60)))
                desk.acknowledged()
            store.delete(f"gone-{number}", purge=True)
            desk.acknowledged()
            (gone,) = backend.to_purge()
            more = True
            while more:
                more = backend.purge(gone.no, desk.rng.randint(1, 6))
                desk.acknowledged()
                with store.agent("stays").edit("message") as draft:
                    draft["text"] = desk.text(3000)
                desk.acknowledged()
                if desk.rng.random() < 0.3:
                    desk.move_wal()


def trimming(desk: Desk) -> None:
    """A log grows, with branches and checkpoints, and its past goes, a few payloads at a time,
    beside commits of others."""
    with desk.store(every_commits=3) as store, mock.patch.object(retention, "PART", 3):
        agent = store.agent("trimmed")
        for window in range(3):
            for edit in range(10):
                with agent.edit("grow", key=f"k-{window}-{edit}") as draft:
                    messages = draft.setdefault("messages", [])
                    messages.extend(desk.text(60) for _ in range(desk.rng.randint(1, 20)))
                    del messages[:-60]
                desk.acknowledged()
            agent.fork(f"side-{window}", at=agent.seq - desk.rng.randint(0, 3))
            agent.checkpoint(f"point-{window}")
            desk.acknowledged()
            backend = store._context.backend

            def trim(*args: Any, real: Any = backend.trim) -> bool:
                done: bool = real(*args)
                desk.acknowledged()
                with store.agent("stays").edit("message") as draft:
                    draft["text"] = desk.text(3000)
                desk.acknowledged()
                return done

            with mock.patch.object(backend, "trim", trim):
                agent.trim(agent.seq - desk.rng.randint(0, 5))
            desk.acknowledged()
            desk.move_wal()


def inbox(desk: Desk) -> None:
    """Messages that no run has taken yet, leases, and executors come and go."""
    backend = desk.backend()
    store = Store(backend)
    desk.acknowledged()
    with store.agent("a").edit("begin") as draft:
        draft["n"] = 0
    desk.acknowledged()
    for number in range(8):
        backend.send(Message(f"a/f/{number}", "a", "start", "f", key=f"start-{number}"))
        desk.acknowledged()
        backend.heartbeat(f"executor-{number % 3}", 3_600_000)
        lease = backend.lease(1, "main", f"executor-{number % 3}")
        assert isinstance(lease, Lease)
        desk.acknowledged()
        backend.lease(1, "main", f"executor-{number % 3}", release=lease.epoch)
        desk.acknowledged()
    store.close()
    desk.acknowledged()


def failing_syncs(desk: Desk) -> None:
    """Now and then syncs fail, and the system forgets what it had to write. What is acknowledged
    afterwards is there all the same; what failed is done, or not, or unknown."""
    with desk.store() as store:
        for number in range(8):
            with (
                desk.syncs_failing() if number % 2 else nullcontext(),
                suppress(StoreUnavailable),
                store.agent("a").edit("message") as draft,
            ):
                draft[f"text-{number % 3}"] = desk.text(9000)
            with store.agent("b").edit("go on") as draft:
                draft["text"] = desk.text(300)
            desk.acknowledged()
    for number in range(5):  # nobody reads: the file is not even open twice
        backend = desk.backend()
        pen = Pen(backend, f"writes-only-{number}")
        pen.write(value=desk.text(5000))
        desk.acknowledged()
        with desk.syncs_failing():
            (outcome,) = backend.append([pen.make(value=desk.text(9000))[0]])
        if isinstance(outcome, Appended):
            desk.acknowledged()
        backend.close()


WORKLOADS: dict[str, Callable[[Desk], None]] = {
    "edits": edits,
    "branches": branches,
    "moving-the-wal": moving_the_wal,
    "housekeeping": housekeeping,
    "writers": writers,
    "runs": runs,
    "steps": steps,
    "inbox": inbox,
    "purging": purging,
    "trimming": trimming,
    "migration": migration,
    "failing-syncs": failing_syncs,
}


def record(name: str, seed: int, folder: Path, synchronous: str | None = None) -> Recording:
    """Perform a workload in an empty folder.

    Args:
        synchronous: what SQLite shall wait for instead of what the backend asks it for: a control,
            in which promises are broken.
    """
    if name == "migration":
        shutil.copy(FORMAT_1, folder / NAME)
    tape = Tape(str(folder))
    with ExitStack() as stack:
        if synchronous is not None:
            weaker = partial(_connect_weaker, synchronous)
            stack.enter_context(mock.patch.object(writer, "connect", weaker))
        stack.enter_context(tape.recording())
        WORKLOADS[name](Desk(tape, folder, random.Random(f"{name} {seed}")))
    return Recording(name, seed, tape.before, tape.operations)


def _connect_weaker(weak: str, path: str, *, synchronous: str, **more: Any) -> apsw.Connection:
    return connect(path, synchronous=weak, **more)
