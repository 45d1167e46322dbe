"""A store's random life, and a follower that is away for random spans and killed at random moments:
whatever came in whatever order, it becomes the same store, and works once it is promoted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import perdure
from perdure import Store
from perdure.core.format import chain
from perdure.model import FINISHED
from perdure.replication import migrate, promote
from perdure.storage.capabilities import Backend, Shipment
from perdure.storage.log.reader import LogReader
from perdure.transfer.follower import Follower
from perdure.verification.verify import verify_log
from tests.simulation.house import REFUSED, House, backend_of, logs
from tests.state.copies import picture

WAIT_MAX_S = 5.0
Open = Callable[[str], Store]


class Killed(Exception):
    """The follower's process ended here."""


class Mortal:
    """A target whose follower is killed before, or right after, one of its shipments."""

    def __init__(self, backend: Backend, random: Random) -> None:
        self._backend = backend
        self._random = random
        self._left = random.randrange(1, 8)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def ship(self, shipment: Shipment) -> None:
        self._left -= 1
        if self._left == 0 and self._random.random() < 0.5:
            raise Killed
        self._backend.ship(shipment)
        if self._left == 0:
            raise Killed


def follow(open_: Open, source_url: str, target_url: str, seed: int) -> list[str]:
    """One life; what was done, for whoever looks for a reason.

    Raises:
        AssertionError: the copy is not the same.
    """
    random = Random(f"following {seed}")
    source, target = open_(source_url), open_(target_url)
    house = House(source, random)
    for _ in range(random.randint(2, 6)):
        house.go_on(random.choice((1, 5, 25)))
        for _ in range(random.randint(1, 3)):
            _look(source, target, random, house)
    if random.random() < 0.5:
        _finish(source, target, house)
    promote(target_url, source_url)
    compare(source, target)
    works(target, house)
    return house.deeds


def move(open_: Open, source_url: str, target_url: str, seed: int) -> list[str]:
    """The same of a migration while the agents live on."""
    random = Random(f"moving {seed}")
    source, target = open_(source_url), open_(target_url)
    house = House(source, random)
    house.go_on(random.choice((10, 40, 80)))

    def meanwhile(_: Any) -> None:
        try:
            house.go_on(random.choice((0, 1, 5)))
        except perdure.StoreUnavailable:  # its agent has moved
            house.deeds[-1] += ": closed"

    migrate(source_url, target_url, on_moved=meanwhile, on_step=meanwhile)
    compare(source, target, arrived=True)
    works(target, house)
    return house.deeds


def _look(source: Store, target: Store, random: Random, house: House) -> None:
    """A follower's time, from its begin to its end, or its being killed."""
    mortal: Any = Mortal(backend_of(target), random)
    follower = Follower(_Busy(backend_of(source), house, random), mortal)
    try:
        follower.begin()
        for _ in range(random.randint(1, 4)):
            follower.step(limit=random.choice((1, 3, 10, 1000)))
            house.deeds.append("  looked")
            if random.random() < 0.3:
                house.go_on(random.randint(1, 4))
    except Killed:
        house.deeds.append("  killed")


class _Busy:
    """A source in which things happen between the reads of one look, too."""

    def __init__(self, backend: Backend, house: House, random: Random) -> None:
        self._backend = backend
        self._house = house
        self._random = random

    def __getattr__(self, name: str) -> Any:
        if name in ("mail", "inbox", "agent", "read", "snapshot") and self._random.random() < 0.1:
            self._house.go_on(self._random.choice((1, 1, 3)))
        return getattr(self._backend, name)


def _finish(source: Store, target: Store, house: House) -> None:
    follower = Follower(backend_of(source), backend_of(target))
    follower.begin()
    follower.drain()
    for name in house.names:  # of whom it has everything, it seems
        with suppress(*REFUSED):
            source.purge(name)

    def drained() -> None:
        follower.drain()
        assert follower.lag().commits == 0
        _compare(source, target, arrived=False)

    eventually(drained)
    house.deeds.append("  drained")


def compare(source: Store, target: Store, *, arrived: bool = False) -> None:
    """As `_compare`, which waits for nothing."""
    eventually(lambda: _compare(source, target, arrived=arrived))


def eventually(check: Callable[[], None]) -> None:
    """PostgreSQL's feeds hold back what is younger than the oldest transaction of the whole server,
    which may be somebody else's: its vacuum, say."""
    until = time.monotonic() + WAIT_MAX_S
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _compare(source: Store, target: Store, *, arrived: bool) -> None:
    """Logs, byte by byte, rows of runs, names, keys, and inboxes with what was taken out of them.

    Args:
        arrived: numbers of messages may differ.
    """
    source.purge()
    for info in logs(backend_of(source)):
        copy = backend_of(target).agent(info.name, info.incarnation)
        assert not info.purged or (copy is not None and copy.purged), f"{info} is readable"
    target.purge()  # whose copy of what is to go may be gone already, and the other way round
    here, there = picture(backend_of(source)), picture(backend_of(target))
    ours, theirs = here.pop("inbox"), there.pop("inbox")
    for name in here.keys() | there.keys():
        assert same(here.get(name), there.get(name)), name
    if arrived:
        ours, theirs = ([message_as_sent(one) for one in mail] for mail in (ours, theirs))
        ours, theirs = sorted(ours), sorted(theirs)
    assert ours == theirs
    ours, theirs = _known(source), _known(target)
    different = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
    assert ours == theirs, f"only one of them knows: {different}"
    for info in logs(backend_of(target)):
        verify_log(backend_of(target), LogReader(backend_of(target), info))


def same(ours: Any, theirs: Any) -> bool:
    """Equal; else it is said where not."""
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return all(same(one, other) for one, other in zip(ours, theirs, strict=True))
    if ours != theirs:
        print(f"source: {ours!r:.1500}\ntarget: {theirs!r:.1500}")
    return bool(ours == theirs)


def message_as_sent(message: Any) -> tuple[Any, ...]:
    return message.run, message.kind, message.name, message.key, repr(message.value)


def _known(store: Store) -> list[tuple[Any, ...]]:
    """All messages that are there or were taken out: none of them is put in a second time."""
    found, cursor = [], ""
    while (part := backend_of(store).mail(cursor)).messages:
        found += [message_as_sent(message) for message in part.messages]
        cursor = part.cursor
    return sorted(found)


def works(store: Store, house: House, deeds: int = 30) -> None:
    """What was at the source goes on here, to its end."""
    house.store = store
    house.go_on(deeds)
    left = []
    for _ in range(300):
        house.serve("")
        left = store.runs(unfinished=True)
        if not left:
            break
        for run in left:
            _help(store, house, run.id)
    else:
        raise AssertionError(f"these do not end: {left}")
    assert all(run.status in FINISHED for run in store.runs())
    for info in logs(backend_of(store)):
        reader = LogReader(backend_of(store), info)
        verify_log(backend_of(store), reader)
        if not info.purged:
            assert chain.commit_id(backend_of(store).read(info.no, info.seq, info.seq)[0].header)


def _help(store: Store, house: House, run: str) -> None:
    handle = store.handle(run)
    house.count += 1
    try:
        match handle.status:
            case "waiting" | "pending" if "/sleeps/" in run:
                handle.cancel()
            case "needs_attention":
                handle.cancel()
            case "waiting" if handle.questions():
                handle.answer(True)
            case "waiting":
                handle.signal("word", "at last", key=f"last-{house.count}")
            case "pending" if house.random.random() < 0.1:
                handle.cancel()
    except REFUSED:
        return
