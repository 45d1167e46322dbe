"""The life of a saver: how it gets its store, and closes it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from typing import Any, Self

import perdure
from perdure.model import Durability
from perdure.store import Store


class Ready:
    """The result of `setup`: done, also for callers that await it."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


class Lifetime:
    """Opening and closing."""

    store: Store
    _owns: bool

    @classmethod
    def from_url(
        cls, url: str | os.PathLike[str], *, durability: Durability = "sync", **more: Any
    ) -> Self:
        """A saver with a store of its own, made if it is not there; close it, or use it in a
        ``with`` or ``async with``.

        Args:
            url, durability: as for `perdure.open`.
            more: as for `PerdureSaver`.

        Raises:
            As `perdure.open` and `PerdureSaver`.
        """
        store = perdure.open(url, durability=durability)
        try:
            saver = cls(store, **more)  # type: ignore[call-arg]
        except BaseException:
            store.close()
            raise
        saver._owns = True
        return saver

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """Closes the store, if `from_url` opened it. Idempotent."""
        if self._owns:
            self.store.close()

    async def aclose(self) -> None:
        """Closes the store after the work under way has ended; see `close`."""
        if self._owns:
            await asyncio.to_thread(self.store.close)

    def setup(self) -> Ready:
        """Does nothing: a Perdure store is set up when it is opened. LangGraph's own savers have
        this method, and their users call it: ``saver.setup()``, ``await saver.setup()``."""
        return Ready()
