"""For tests that run a function without a world: what people and others will have said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from perdure.engine.journal.effects import Await, Came, first_timer
from perdure.errors import NeedsAttention
from perdure.visible import visible

Fakes = Mapping[Any, Any]
"""Stand-ins for tools and steps, by the function they stand for."""


class PreparedReplies(Struct):
    """See the module.

    Attributes:
        answers: to its questions, in order.
        signals: values by the signal's name, in order.
        skip: lets the store's clock be at this moment; nobody waits for it.
    """

    answers: list[Any] = field(default_factory=list)
    signals: dict[str, list[Any]] = field(default_factory=dict)
    skip: Callable[[int], None] = lambda _: None

    def came(self, effect: Await) -> Came:
        """Returns the result of a wait; a timer only if nothing else was given.

        Raises:
            NeedsAttention: nothing was given for it, and it has no timer.
        """
        for branch in effect.branches:
            given = self.signals.get(branch.name) if branch.kind == "signal" else self.answers
            if branch.kind in ("ask", "signal") and given:
                return Came(branch.label, given.pop(0), who="played")
        timer = first_timer(effect.branches)
        if timer is None:
            raise NeedsAttention(
                f"waits for {effect.words}, and nothing of that was given",
                target=effect.place,
                hint="give play(…) answers= or signals=",
            )
        self.skip(timer.until)
        return Came(timer.label, at=timer.until)

    def no_children(self, function: str, run: str) -> NeedsAttention:
        """Returns the error for a run that wants to start another one."""
        return NeedsAttention(
            f"starts a run of {visible(function)}, and play(…) runs one function alone",
            target=f"run {run}",
            hint="play the other function by itself, and try both together on a store: "
            "perdure.open('memory://') with a worker",
        )
