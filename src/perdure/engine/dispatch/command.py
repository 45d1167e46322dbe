"""The order to execute a run, with its function and arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from perdure.engine.functions.agent_functions import AgentSpec, spec_of
from perdure.engine.functions.orders import Order
from perdure.engine.journal.prepared_replies import Fakes, PreparedReplies
from perdure.engine.journal.values import parameters_of
from perdure.errors import NeedsAttention, SchemaError
from perdure.system import shell


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
    played: PreparedReplies | None = None

    def arguments(
        self, function: Callable[..., Any], run: str, given: Any
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Returns the arguments of one call of the function, which may use them up: from the stored
        ones, as for an executor that takes the run over; the caller's own only if they cannot be
        stored.

        Args:
            given: the arguments with which the run began its current turn; None if they could not
                be stored.

        Raises:
            NeedsAttention: they do not fit the function's current declarations.
        """
        if given is None:
            return self.args, self.kwargs
        try:
            return parameters_of(function).build(*given)
        except SchemaError as error:
            raise NeedsAttention(
                f"an argument no longer fits its declared type: {error.problem}",
                target=f"run {run}, {error.target}",
                hint="let the type read the old form too; then "
                f"`{shell.perdure('resume', run)}`, or run it again",
            ) from error

    @property
    def spec(self) -> AgentSpec[Any]:
        return spec_of(self.function)
