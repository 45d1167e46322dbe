"""An event loop on a thread of its own, for coroutines of callers without a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from perdure.system.late_imports import loading
from perdure.system.threads import begin

JOIN_S = 1.0


class OwnLoop:
    """See the module. It runs from its making until it is stopped."""

    def __init__(self, name: str) -> None:
        with loading:  # which takes three descriptors
            self._loop = asyncio.new_event_loop()
        self._ending = False
        # A daemon: what runs there must not hold up the end of the process.
        self._thread = threading.Thread(target=self._go_round, name=name, daemon=True)
        begin(self._thread)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Starts a coroutine, from any thread."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """Stops the loop, once everything that was started has ended."""
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join(JOIN_S)

    def _end(self) -> None:
        self._ending = True
        self._loop.stop()

    def _go_round(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        while not self._ending:
            # What one task raises, or that it stops the loop, is its own affair: others go on.
            with suppress(SystemExit, KeyboardInterrupt):
                loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
