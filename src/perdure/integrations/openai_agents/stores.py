"""The store that a session uses: its caller's, or one that all sessions of a URL share in this
process."""

from __future__ import annotations

import atexit
import os
from uuid import uuid4

import perdure
from perdure.aio import AsyncStore
from perdure.aio.unbuilt import in_own_thread
from perdure.core.arguments.names import shown
from perdure.errors import StoreUnavailable
from perdure.store import Store
from perdure.system.locks import Lock

AnyStore = Store | AsyncStore

SNAPSHOTS = perdure.SnapshotPolicy(weight_min=4 * 1024)
"""Of stores that are opened here. Between two commits a model thinks, for seconds; and many a
session is opened for one request, and reads the conversation first."""


class Shared:
    """The store of a URL, which its first user opens and its last one closes.

    Only who wants the same store waits while it is opened: a server that does not answer holds up
    nobody else.
    """

    def __init__(self) -> None:
        self.store: Store | None = None
        self.users = 0
        self.lock = Lock()


_shared: dict[str, Shared] = {}
_lock = Lock()
"""Of `_shared` and of the numbers of users. Nobody waits for a store under it."""


def _acquire(url: str) -> tuple[Shared, Store]:
    with _lock:
        shared = _shared.setdefault(url, Shared())
        shared.users += 1
    try:
        with shared.lock:
            if shared.store is None:
                shared.store = perdure.open(url, snapshots=SNAPSHOTS)
            return shared, shared.store
    except BaseException:
        _release(url, shared)
        raise


def _release(url: str, shared: Shared) -> None:
    with _lock:
        shared.users -= 1
        if shared.users:
            return
        if _shared.get(url) is shared:
            del _shared[url]
    if shared.store is not None:
        shared.store.close()


@atexit.register
def _close_all() -> None:
    """Sessions are often made for one request and never closed; their stores end with us."""
    while _shared:
        shared = _shared.popitem()[1]
        if shared.store is not None:
            shared.store.close()


class StoreSource:
    """Gives a session its store on the event loop that runs.

    One that was opened here, or given as a `Store`, may be used on any loop; an `AsyncStore` on
    its own one.
    """

    def __init__(self, owner: str, url: str | os.PathLike[str] | None, store: AnyStore | None):
        if (url is None) == (store is None):
            raise TypeError(
                f"{owner}: say where it is kept, by either url='agents.db' or store=…; "
                "for tests, url='memory://'"
            )
        if store is not None and not isinstance(store, Store | AsyncStore):
            raise TypeError(f"{owner}: store= is an open perdure store, not {shown(store)}")
        self.url, self.given = None if url is None else _shareable(os.fspath(url)), store
        self._owner = owner
        self._opened: tuple[Shared, Store] | None = None
        self._closed = False
        self._lock = Lock()

    async def store(self) -> AsyncStore:
        """The store, for the loop that runs.

        Raises:
            StoreUnavailable: it was closed, or cannot be opened.
        """
        self.check_open()
        if isinstance(self.given, AsyncStore):
            return self.given
        opened = self.given or (self._opened and self._opened[1])
        return AsyncStore(opened if opened is not None else await in_own_thread(self.open))

    @property
    def is_unopened(self) -> bool:
        """True if `open` would open the store."""
        return self.given is None and self._opened is None

    def check_open(self) -> None:
        """Raises StoreUnavailable after `close`."""
        if self._closed:
            raise self._is_closed()

    async def close(self) -> None:
        """Releases the store; the last user of one that was opened here closes it."""
        await in_own_thread(self._close)

    def open(self) -> Store:
        """The store of this source's own, opened where it is not. Blocks.

        Raises:
            As `store`.
        """
        with self._lock:
            self.check_open()
            if self._opened is None:
                assert self.url is not None
                self._opened = _acquire(self.url)
            return self._opened[1]

    def _close(self) -> None:
        with self._lock:
            if not self._closed and self._opened is not None:
                assert self.url is not None
                _release(self.url, self._opened[0])
            self._closed = True

    def _is_closed(self) -> StoreUnavailable:
        return StoreUnavailable("it is closed", target=self._owner, hint="make a new one")


def _shareable(url: str) -> str:
    """Returns the URL under which this process shares the store: a session branch is in it."""
    if url == "memory://":  # one of its own
        return f"memory://session-{uuid4().hex}"
    scheme = "sqlite:///" if url.startswith("sqlite:///") else ""
    path = url.removeprefix(scheme)
    if not path or (not scheme and "://" in url):
        return url
    return scheme + os.path.abspath(path)  # the folder may be another one when it is opened
