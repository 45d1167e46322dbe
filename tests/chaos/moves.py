"""Lives of stores: agents leave, come and are copied while others write to them, and each process
that moves them is killed, with SIGKILL, again and again. The same call once more finishes what
was begun, and both stores then agree.

A life forks its processes: whoever plays one has neither threads nor an open store.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import datetime
from functools import partial
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import perdure
from perdure.cli import failures
from perdure.cli.app import app
from perdure.core.values import codec
from perdure.model import AgentInfo, from_micros
from perdure.replication import DoneBeforeError, following, migrate, promote, restore
from perdure.retention.trimming import carry_out
from perdure.storage.capabilities import Backend
from perdure.storage.log.reader import LogReader
from perdure.storage.retention import RETENTION
from perdure.transfer.living_agents import living
from perdure.verification.verify import verify_log
from tests.between.moments import Moments
from tests.postgres.server import shared
from tests.simulation.following import compare, works
from tests.simulation.house import House, backend_of, logs

HANGS_S = 300.0
TRIES_MAX = 5
"""So often one who moves is killed, at most, before the one who is not."""

CALLS_MAX = 120
"""One is killed before one of so many calls of a backend, or of statements of one."""

SOON_S = (0.003, 0.03, 0.3)
"""Or at any moment of such a span."""

WRITERS = 2
PAUSE_S = 0.01
CARRIED = 2
DONE = (None, failures.OK, failures.CONFLICT, failures.NOT_FOUND)
"""How a command may end: it is done, or was done already, or its agent is gone."""

REFUSED = 3
"""The exit code of a process that did nothing, as it said in words."""

Deed = Callable[[], object]


class MovesError(AssertionError):
    """Stores do not agree, or a process ended as none may."""


class RefusedError(Exception):
    """What is to be done cannot be done, for a good reason."""


# -- processes -----------------------------------------------------------------------------------


class Child:
    """A process of its own, forked from this one.

    Args:
        does: what it does, and ends.
        folder: where it leaves the traceback of an exception.

    Attributes:
        status: how it ended; None: it lives.
    """

    _numbers = itertools.count()

    def __init__(self, does: Deed, folder: Path) -> None:
        self._said = folder / f"child-{next(self._numbers)}"
        self.status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _live(does, self._said)

    def wait(self) -> bool:
        """Waits for its end. Returns False if it was killed.

        Raises:
            MovesError: it hangs, or raised.
        """
        until = time.monotonic() + HANGS_S
        while not self.has_ended():
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGABRT)  # with its stacks
                raise MovesError("a process hangs")
            time.sleep(0.002)
        self.check()
        return self.status != -signal.SIGKILL

    def has_ended(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def check(self) -> None:
        if self.has_ended() and self.status not in (0, REFUSED, -signal.SIGKILL):
            raise MovesError(f"ended with {self.status}\n{self._said.read_text()}")

    def kill(self) -> bool:
        """Kills it. Returns False if it had ended by then.

        Raises:
            MovesError: it had raised.
        """
        if not self.has_ended():
            os.kill(self.pid, signal.SIGKILL)
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.check()
        return self.status == -signal.SIGKILL


def _live(does: Deed, said: Path) -> None:
    status = 1
    try:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT, 0o600), 2)
        does()
        status = 0
    except RefusedError:
        status = REFUSED
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# -- one life ------------------------------------------------------------------------------------


class Life:
    """A store that others write to, and what is done with it.

    Attributes:
        counts: how often something was done, and killed, by its name.
    """

    def __init__(self, folder: Path, seed: str, kind: str) -> None:
        self.random = Random(seed)
        self.counts: Counter[str] = Counter()
        self._folder = folder
        self._kind = kind
        self._writers: list[Child] = []
        self._names = itertools.count()
        self.source = self._new_url()
        self._run(lambda: _write(self.source, 0, 40))

    def play(self) -> None:
        """Does one thing with the store. It, and the copy, have to work afterwards."""
        deeds = (self._restore, self._carry, self._replicate, self._promote, self._migrate)
        try:
            self.random.choice(deeds)()
        finally:
            self._end_writers()

    # Each of them

    def _restore(self) -> None:
        """To a moment that is over, while others write."""
        with self._written():
            at, known = self._asked(_some_moment, self.source, self.random.random())
            target = self._new_url()
            done = self._until_done("restore", lambda: _restore(self.source, target, at))
        if not done:
            return  # what it needs was removed while it was at it
        self._run(lambda: check_moment(self.source, target, at, known))
        self._run(lambda: _works(target, self.random.random()))

    def _carry(self) -> None:
        """Export some agents, and import them elsewhere, while others write."""
        target, file, carried = self._new_url(), self._folder / "carried.jsonl", list[str]()
        with self._written():
            for name in self._asked(_names_of, self.source)[:CARRIED]:
                file.unlink(missing_ok=True)
                export = ["--store", self.source, "export", name, "-o", str(file), "--force"]
                self._until_done("export", partial(_command, export))
                if not file.exists():
                    continue  # it was deleted meanwhile
                take_in = ["--store", target, "import", str(file), "--create"]
                self._until_done("import", partial(_command, take_in))
                carried.append(name)
        self._run(lambda: check_carried(self.source, target, carried))
        self._run(lambda: _write(target, next(self._names), 10))  # who runs wait for stayed behind

    def _replicate(self) -> str:
        target = self._new_url()
        with self._written():
            self._until_done("replicate", lambda: _replicate(self.source, target))
        self._until_done("replicate", lambda: _replicate(self.source, target))
        self._run(lambda: _compare(self.source, target))
        return target

    def _promote(self) -> None:
        target, lost = self._replicate(), self.random.random() < 0.3
        self._until_done("promote", lambda: _promote(target, lost))
        self._run(lambda: _compare(self.source, target))
        self._run(lambda: _works(target, self.random.random()))

    def _migrate(self) -> None:
        target = self._new_url()
        with self._written():
            self._until_done("migrate", lambda: _migrate(self.source, target))
        self._run(lambda: _compare(self.source, target, arrived=True))
        self._run(lambda: _works(target, self.random.random()))

    # With processes

    def _until_done(self, name: str, deed: Deed) -> bool:
        """Does it in processes that are killed, and then in one that is not. Returns False if it is
        refused."""
        for _ in range(self.random.randint(1, TRIES_MAX)):
            child, wait_s = self._mortal(deed)
            time.sleep(wait_s)
            if child.kill() if wait_s else not child.wait():
                self.counts[f"{name}, killed"] += 1
            self._revive()
        last = Child(deed, self._folder)
        if not last.wait():
            raise MovesError("a process was killed by somebody else")
        self.counts[name if last.status == 0 else f"{name}, refused"] += 1
        return last.status == 0

    def _mortal(self, deed: Deed) -> tuple[Child, float]:
        """Returns who does it, and after how many seconds it is to be killed; 0: it kills
        itself."""
        if self.random.random() < 0.4:
            return Child(deed, self._folder), self.random.choice(SOON_S) * self.random.random()
        number, statements = self.random.randint(1, CALLS_MAX), self.random.random() < 0.5
        moments = Moments(number, _die, statements=statements, everywhere=True)

        def dies() -> None:
            with moments.counted():
                deed()

        return Child(dies, self._folder), 0.0

    @contextmanager
    def _written(self) -> Iterator[None]:
        """Others write to the store in this block, and are killed, too."""
        for _ in range(WRITERS):
            self._writers.append(self._new_writer())
        yield
        self._end_writers()

    def _revive(self) -> None:
        """Sometimes one who writes is killed, and another one comes."""
        if self._writers and self.random.random() < 0.3:
            place = self.random.randrange(len(self._writers))
            self._writers[place].kill()
            self.counts["writers, killed"] += 1
            self._writers[place] = self._new_writer()

    def _new_writer(self) -> Child:
        number = next(self._names)
        return Child(lambda: _write(self.source, number), self._folder)

    def _end_writers(self) -> None:
        while self._writers:
            self._writers.pop().kill()

    def _run(self, deed: Deed) -> None:
        if not Child(deed, self._folder).wait():
            raise MovesError("a process was killed by somebody else")

    def _asked(self, question: Callable[..., Any], *args: Any) -> Any:
        """Returns what another process finds out: this one has no store open."""
        answer = self._folder / f"answer-{next(self._names)}"
        self._run(lambda: answer.write_bytes(codec.encode(question(*args))))
        return codec.decode(answer.read_bytes())

    def _new_url(self) -> str:
        if self._kind == "postgres" and self.random.random() < 0.7:
            return shared().new_url()
        return str(self._folder / f"store-{next(self._names)}.db")


# -- what a process does -------------------------------------------------------------------------


def _write(url: str, number: int, deeds: int = sys.maxsize) -> None:
    with perdure.open(url, durability="os") as store:
        house = House(store, Random(f"{url} {number}"), names=3, count=1000 * number)
        for _ in range(deeds):
            if os.getppid() == 1:
                return  # nobody is left to end it
            try:
                house.go_on(1)
            except perdure.PerdureError:  # it moved, or was taken over
                time.sleep(PAUSE_S)


def _command(words: list[str]) -> None:
    """A command of the shell. What the store says to it may be that it is done already."""
    with redirect_stdout(StringIO()):
        code = app(words, standalone_mode=False)
    assert code in DONE, f"{words}: {code}"


def _restore(source: str, target: str, at: datetime) -> None:
    try:
        restore(source, target, at, take_incomplete=True)
    except DoneBeforeError:
        return
    except perdure.Conflict as error:
        if "while it was restored" not in str(error):
            raise
        raise RefusedError from error


def _replicate(source: str, target: str) -> None:
    with following(source, target) as follower:
        follower.drain()


def _promote(target: str, lost: bool) -> None:
    with suppress(DoneBeforeError):
        promote(target, source_is_lost=lost)


def _migrate(source: str, target: str) -> None:
    with suppress(DoneBeforeError):
        migrate(source, target)


def _some_moment(source: str, share: float) -> tuple[datetime, dict[str, int]]:
    """The moment of a commit: the last share of them is later. And the last commit that each agent
    has by now."""
    with perdure.open(source) as store:
        times, known = list[int](), dict[str, int]()
        for info in logs(backend_of(store)):
            known[f"{info.name} {info.incarnation}"] = info.seq
            if not info.purged:
                commits = LogReader(backend_of(store), info).commits()
                times += [commit.at_micros for commit in commits]
        return from_micros(sorted(times)[int(share * (len(times) - 1))]), known


def _names_of(source: str) -> list[str]:
    with perdure.open(source) as store:
        return [info.name for info in store.agents()]


# -- what has to be so ---------------------------------------------------------------------------


def _compare(source: str, target: str, *, arrived: bool = False) -> None:
    with perdure.open(source) as one, perdure.open(target) as other:
        for info in living(backend_of(one)):  # who trimmed may have been killed after its word
            carry_out(backend_of(one), LogReader(backend_of(one), info))
        compare(one, other, arrived=arrived)


def _works(target: str, seed: float) -> None:
    with perdure.open(target, durability="os") as store:
        works(store, House(store, Random(seed), names=3, count=10**7), 10)


def _heads(backend: Backend, info: AgentInfo, last: int) -> Sequence[bytes]:
    return [row.header for row in backend.read(info.no, 1, last)]


def check_moment(source: str, target: str, at: datetime, known: dict[str, int]) -> None:
    """Each log there verifies, and is that of the source up to the moment, commit by commit.

    Args:
        known: the last commit that each agent had when the moment was chosen. What was on its way
            then, with an earlier time, may have come behind the restore.
    """
    with perdure.open(source) as one, perdure.open(target) as other:
        ours, theirs = backend_of(one), backend_of(other)
        there = logs(theirs)
        lacking = _known_by(ours, at) - {(info.name, info.incarnation) for info in there}
        assert not lacking, f"{lacking} did not arrive"
        for info in there:
            verify_log(theirs, LogReader(theirs, info))
            was = ours.agent(info.name, info.incarnation)
            assert was is not None, f"{info.name} came from nowhere"
            if was.purged or info.purged:
                continue  # since
            seq = info.seq
            if LogReader(theirs, info).commit(seq).branch == RETENTION:
                seq -= 1  # its own word of what was removed since
            before, now = _heads(ours, was, seq), _heads(theirs, info, seq)
            assert now == before, f"{info.name} is another one"
            last = known.get(f"{info.name} {info.incarnation}", 0)
            later = [*LogReader(ours, was).commits(seq + 1, last)] if seq < last else []
            said = [from_micros(commit.at_micros) for commit in later[:1]]
            assert not said or said[0] > at, f"{info.name} lacks what was there at {said[0]}"


def _known_by(backend: Backend, at: datetime) -> set[tuple[str, int]]:
    """Returns the logs that began by a moment, and of which nothing was removed since."""
    found = set()
    for info in logs(backend):
        commits = [] if info.purged else [*LogReader(backend, info).commits()]
        whole = commits and not any(commit.trimmed for commit in commits)
        if whole and from_micros(min(commit.at_micros for commit in commits)) <= at:
            found.add((info.name, info.incarnation))
    return found


def check_carried(source: str, target: str, names: Iterable[str]) -> None:
    """The copies of agents verify, and each is the begin of its source's log."""
    with perdure.open(source) as one, perdure.open(target) as other:
        ours, theirs = backend_of(one), backend_of(other)
        for name in names:
            copy = theirs.agent(name)
            assert copy is not None, f"{name} did not arrive"
            verify_log(theirs, LogReader(theirs, copy))
            was = ours.agent(name, copy.incarnation)
            assert was is not None, f"{name} came from nowhere"
            if not was.purged:
                before, now = _heads(ours, was, copy.seq), _heads(theirs, copy, copy.seq)
                assert now == before, f"{name} is another one"


# -- many ----------------------------------------------------------------------------------------


def lives(folder: Path, seed: str, kind: str, until: float) -> Counter[str]:
    """Plays one life after another until a time of the monotonic clock, and at least one.

    Raises:
        MovesError: with the seed of the life.
    """
    counts: Counter[str] = Counter()
    _command(["import", "--help"])  # what is imported for it, each process has
    while not counts or time.monotonic() < until:
        name = f"{seed}-{counts['lives']}"
        life_folder = folder / name
        life_folder.mkdir(parents=True)
        try:
            life = Life(life_folder, name, kind)
            life.play()
        except BaseException as error:
            error.add_note(f"the life {name}, in {life_folder}")
            raise
        shutil.rmtree(life_folder)
        counts += life.counts
        counts["lives"] += 1
    return counts
