"""What a run is to be executed with: an order, its function, and the arguments that it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from perdure.engine.functions.agent_functions import AgentSpec, spec_of
from perdure.engine.functions.orders import Order
from perdure.engine.journal.prepared_replies import Fakes, Played
from perdure.engine.journal.values import parameters_of


class Command(Struct, frozen=True):
    """An order, and the function and arguments to carry it out with.

    Attributes:
        args, kwargs: as its caller gave them.
        fakes, played: for tests; see `Execution`.
    """

    function: Callable[..., Any]
    order: Order
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    fakes: Fakes | None = None
    played: Played | None = None

    def arguments(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Of one call of the function, which may use them up: what the stored ones give, as it does
        for whoever takes the run over; its caller's own only where they cannot be stored."""
        if self.order.input is None:
            return self.args, self.kwargs
        return parameters_of(self.function).build(*self.order.input)

    @property
    def spec(self) -> AgentSpec[Any]:
        return spec_of(self.function)
