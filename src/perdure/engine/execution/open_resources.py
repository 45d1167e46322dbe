"""The resources that one execution of a run holds open: each is opened once, and closed behind the
function.

Steps and tools ask for them; what is only replayed asks for none. See `loop_resources` for those
that are opened in an event loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perdure.core.format.records import Kept
from perdure.core.values.held_values import hold, let_go
from perdure.core.values.plain_values import Plain
from perdure.engine.execution.commit_items import Item
from perdure.engine.execution.openings import Opener, Ticket, opened
from perdure.engine.journal.failures import words
from perdure.errors import PerdureError
from perdure.model import Cause
from perdure.storage.appending import Riders
from perdure.system import logs
from perdure.system.locks import Lock

if TYPE_CHECKING:
    from perdure.engine.execution.driven_run import DrivenRun

IDLE_S = 60.0
"""The time without use after which a resource is checked before its next use."""

_log = logs.logger("perdure.engine")


class OpenResource(Struct, eq=False):
    """A resource that is open. `waits` is how often the run had waited when it was last known to be
    well, `used` the time of its last use."""

    opener: Opener
    value: Any
    close: Callable[[], object]
    waits: int
    used: float


class OpenResources:
    """See the module. For any threads of the run."""

    def __init__(self, run: DrivenRun[Any], tickets: dict[str, Plain]) -> None:
        self.run = run
        self._tickets = tickets
        self._open: dict[str, OpenResource] = {}
        self._locks: dict[str, Lock] = {}

    def get(self, opener: Opener) -> Any:
        """Returns the open resource; opens it if need be.

        Raises:
            PerdureError: the run's function has ended, or another resource has its name.
            Exception: the opener's own.
        """
        with self._locks.setdefault(opener.name, Lock()):
            one = self._open.get(opener.name)
            self.check(opener, one)
            if one is not None and self.is_due(one):
                if self._is_well(one):
                    one.waits = self.run.going.waits
                else:
                    self._drop(one)
                    one = None
            if one is None:
                one = self._opened(opener)
            one.used = time.monotonic()
            return one.value

    def _opened(self, opener: Opener) -> OpenResource:
        ticket = self.ticket(opener)
        value, close = opened(self.call(opener, ticket))
        one = self.made(opener, value, close)
        try:
            if (item := self.keeping(opener, ticket)) is not None:
                self.run.writer.write(item)
            self.check(opener, None)
            self._open[opener.name] = one
        except BaseException:
            self._closed(one)
            raise
        hold(value, opener.name)
        return one

    def _is_well(self, one: OpenResource) -> bool:
        if one.opener.check is None:
            return True
        try:
            return one.opener.check(one.value) is not False
        except Exception as error:
            self.say(one, "its check failed", error)
            return False

    # -- for both kinds ----------------------------------------------------------------------

    def check(self, opener: Opener, one: OpenResource | None) -> None:
        """Checks that this opener's resource can be had here.

        Args:
            one: what is open under its name; None: nothing is.
        """
        if self.run.resources_closed:
            raise PerdureError(
                f"resource {opener.name!r} is used behind the end of its run's function",
                target=f"run {self.run.id}",
                hint="it is closed when the run waits, ends or is left; use it in a step or tool "
                "that the function waits for",
            )
        self.run.check_process()
        if one is not None and not one.opener.is_same(opener):
            raise PerdureError(
                f"two resources of this run have the name {opener.name!r}",
                target=f"run {self.run.id}",
                hint="give one of them another name: @perdure.resource(name=…)",
            )

    def made(self, opener: Opener, value: Any, close: Callable[[], object]) -> OpenResource:
        return OpenResource(opener, value, close, self.run.going.waits, time.monotonic())

    def call(self, opener: Opener, ticket: Ticket) -> Callable[[], Any]:
        """Returns the opener as it is called."""
        return partial(opener.function, ticket) if opener.takes_ticket else opener.function

    def ticket(self, opener: Opener) -> Ticket:
        return Ticket(self._tickets.get(opener.name))

    def keeping(self, opener: Opener, ticket: Ticket) -> Item | None:
        """Returns what records the words that an opener kept; later ones come with the run's next
        commit."""
        kept = ticket.settle(lambda value: self._keep_later(opener, value))
        if not kept:
            return None
        self._tickets[opener.name] = kept[-1]
        riders = Riders((self._record(opener.name, kept[-1]),), sync=True)
        return Item(Cause("resource", opener.name, run=self.run.id), riders)

    def _keep_later(self, opener: Opener, value: Plain) -> None:
        self._tickets[opener.name] = value
        self.run.writer.later(Riders((self._record(opener.name, value),)))

    def _record(self, name: str, value: Plain) -> Kept:
        return Kept(run=self.run.id, name=name, value=value)

    def is_due(self, one: OpenResource) -> bool:
        """Returns True if it is to be checked: the run has waited since, or it was idle."""
        waited = one.waits != self.run.going.waits
        return waited or time.monotonic() - one.used > IDLE_S

    def say(self, one: OpenResource, what: str, error: BaseException) -> None:
        """Logs trouble that is no outcome of the run's."""
        kind = type(error).__name__
        said = (self.run.id, one.opener.name, what, kind, words(error))
        _log.warning("run %s: resource %s: %s: %s: %s", *said)

    # -- closing -----------------------------------------------------------------------------

    def close(self) -> None:
        """Closes all that is open, the last one first. What cannot be closed is logged: the run's
        outcome does not depend on it."""
        for one in reversed([*self._open.values()]):
            self._drop(one)

    def _drop(self, one: OpenResource) -> None:
        self._open.pop(one.opener.name, None)
        let_go(one.value)
        self._closed(one)

    def _closed(self, one: OpenResource) -> None:
        try:
            one.close()
        except Exception as error:
            self.say(one, "closing it failed", error)
