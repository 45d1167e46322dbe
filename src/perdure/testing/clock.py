"""A clock that stands still until a test moves it, and stores that use it."""

from __future__ import annotations

import os
import weakref
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.aio.store import Opening
from perdure.core.arguments.checks import count, flag, seconds
from perdure.core.arguments.exact_types import is_a, moment
from perdure.core.arguments.names import shown
from perdure.core.schema.digest_keys import DigestKey, DigestKeys, digest_keys
from perdure.engine.dispatch.heartbeat import LEASE_TTL
from perdure.engine.dispatch.open_settings import check_settings
from perdure.model import MICROS_MAX, Durability, from_micros, to_micros
from perdure.state.guards import Guards
from perdure.state.snapshot_policy import SnapshotPolicy
from perdure.storage.capabilities import Backend
from perdure.storage.group_policy import GROUPED, GroupPolicy
from perdure.storage.locate import locate
from perdure.store import Store


class Clock:
    """A virtual clock for stores in tests.

        clock = Clock()
        store = clock.open(tmp_path / "agents.db")
        handle = run_until_waiting(store, remind, "ticket-42")    # it sleeps for three days
        clock.advance(timedelta(days=3))
        assert store.run(remind, "ticket-42") == "reminded"

    The store takes all its times from it: timers, pauses between attempts, deadlines, `run.now()`,
    the times in the log, and how long a process counts as alive. Limits of running code
    (``timeout=`` of a step, ``result(timeout=…)``) use real time.

    Args:
        start: an aware datetime; default: now, in whole seconds.
    """

    def __init__(self, start: datetime | None = None) -> None:
        if start is None:
            start = datetime.now(UTC).replace(microsecond=0)
        if not is_a(start, datetime):
            raise TypeError(f"start= must be an aware datetime, not {shown(start)}")
        start = moment(start)
        if start.tzinfo is None:
            raise ValueError(f"{start!r} has no time zone; use datetime(…, tzinfo=UTC)")
        micros = to_micros(start)
        if not 0 <= micros <= MICROS_MAX:
            raise ValueError(
                f"a store's time must be between 1970 and 9999 in UTC, not {shown(start)}"
            )
        self._micros = micros
        self._stores: weakref.WeakSet[Store] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"Clock({self.now.isoformat()})"

    def __call__(self) -> int:
        """Returns the time in microseconds since 1970, as backends take it for ``clock=``."""
        return self._micros

    @property
    def now(self) -> datetime:
        return from_micros(self._micros)

    def advance(self, by: timedelta | float, *, alive: bool = True) -> datetime:
        """Moves it forward, by seconds or a timedelta, and wakes everything that waits for the new
        time.

        Args:
            alive: True if the processes that have stores open by this clock live through that time.
                False acts as if they had been paused; their leases run out.

        Returns:
            The new time.

        Raises:
            ValueError: the move is backward.
        """
        flag(alive, "alive=")
        by = timedelta(seconds=seconds(by, "by="))
        if by < timedelta(0):
            raise ValueError(f"a clock does not go back: {by}")
        if self._micros + by // timedelta(microseconds=1) > MICROS_MAX:
            raise ValueError(f"a store's time ends with the year 9999: {by} is too far")
        stores = list(self._stores)
        if alive:
            for store in stores:
                store.runner.liveness.beat(by)
        self._micros += by // timedelta(microseconds=1)
        for store in stores:
            store.runner.wakeups.ring_all()
        return self.now

    def advance_to(self, micros: int) -> None:
        """Moves it to a time of the store, in microseconds since 1970; never back."""
        micros = count(micros, "micros=", most=MICROS_MAX)
        self.advance(timedelta(microseconds=max(micros - self._micros, 0)))

    def open(
        self,
        url: str | os.PathLike[str],
        *,
        durability: Durability = "os",
        snapshots: SnapshotPolicy | None = None,
        lease_ttl: timedelta = LEASE_TTL,
        digest_key: DigestKey | None = None,
        group: GroupPolicy | None = None,
        guards: Guards | None = None,
    ) -> Store:
        """Opens a store like `perdure.open`, with this clock; without an fsync, because a test's
        machine does not lose power.

        A named memory (``memory://name``) keeps the clock that it was first opened with.
        """
        check_settings(snapshots, None, lease_ttl, group, guards)
        backend = locate(url, durability=durability, clock=self, group=group or GROUPED)
        return self.store_on(backend, snapshots, lease_ttl, digest_keys(digest_key), guards)

    def open_async(self, url: str | os.PathLike[str], **more: Any) -> Opening:
        """Opens a store like `perdure.open_async`, with this clock; `more` as for `open`."""
        return Opening(lambda: self.open(url, **more))

    def store_on(
        self,
        backend: Backend,
        snapshots: SnapshotPolicy | None = None,
        lease_ttl: timedelta = LEASE_TTL,
        keys: DigestKeys | None = None,
        guards: Guards | None = None,
    ) -> Store:
        """Returns a store on a backend that uses this clock."""
        lease_ttl = check_settings(snapshots, None, lease_ttl)
        store = Store(backend, snapshots, lease_ttl, None, keys, guards)
        store.runner.wakeups.in_place_s = 0.0  # or a short sleep would wait for a clock that stands
        self._stores.add(store)
        return store
