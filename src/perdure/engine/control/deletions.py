"""Deletions as people ask for them: of one agent, or of all whose names begin alike, with their
runs ended first where that is wanted."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from perdure.core.arguments.checks import flags
from perdure.core.arguments.names import check_name, check_words
from perdure.engine.control.agent_deletion import AGAIN_S, delete_agents
from perdure.engine.control.run_handle import RunHandle
from perdure.engine.control.unbegun import end_told
from perdure.engine.execution.wakeups import Wakeups
from perdure.errors import Conflict, NotFound, PerdureError
from perdure.model import FINISHED
from perdure.state.context import Context
from perdure.storage.capabilities import Backend, RunQuery
from perdure.storage.log.refusals import HeldError
from perdure.transfer.living_agents import PAGE, living

WHY = "its agent is being deleted"

ROUNDS = 8
"""The number of further looks for agents whose names begin so: others may go on making them."""

Ending = RunHandle[Any]
"""A run that was asked to end, and that is to be waited for."""


def deleting(
    context: Context,
    wakeups: Wakeups,
    name: str | None,
    *,
    prefix: str | None,
    purge: bool,
    cancel_runs: bool,
) -> Generator[Ending, None, list[str]]:
    """Deletes agents; see `Store.delete`. Yields runs that are to be waited for."""
    flags(purge=purge, cancel_runs=cancel_runs)
    names = _named(context.backend, name, prefix)
    yield from _deleting(context, wakeups, names, purge, cancel_runs)
    if prefix is None:
        return names
    for _ in range(ROUNDS):
        # Those that were made meanwhile: a run that is being ended may start others.
        more = _found(context.backend, prefix)
        if not more:
            break
        yield from _deleting(context, wakeups, more, purge, cancel_runs)
        names = sorted({*names, *more})
    return names


def _deleting(
    context: Context, wakeups: Wakeups, names: list[str], purge: bool, cancel_runs: bool
) -> Generator[Ending, None, None]:
    left = names
    while True:
        told, refused = delete_agents(context, left, purge=purge)
        wakeups.tell(*(message.run for message in told))
        end_told(context, wakeups, told)
        left = [one for one, error in refused.items() if isinstance(error, HeldError)]
        if not refused:
            return
        if not cancel_runs or len(left) < len(refused):
            raise _of_several(refused, names)
        runs = [
            RunHandle[Any](context, wakeups, row.id)
            for one in left
            for row in context.backend.runs(RunQuery(agent=one, unfinished=True))
        ]
        for run in runs:
            with suppress(Conflict, NotFound):  # it is over
                run._ask_to_end(WHY)
        yield from runs
        if not runs:
            time.sleep(AGAIN_S)


def wait_for(run: Ending, until: float | None) -> None:
    """Waits, on this thread, for the end of a run that was asked to.

    Raises:
        TimedOut: it takes longer. Conflict: it is the run of the code that waits.
    """
    try:
        run._wait_for_its_end(WHY, until)
    except (Conflict, NotFound):
        if not is_over(run):
            raise


def wait_for_each(
    deletion: Generator[RunHandle[Any], None, list[str]], until: float | None
) -> list[str]:
    """Goes on with a deletion, and waits for the runs that it asked to end; returns the names."""
    while True:
        try:
            wait_for(next(deletion), until)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def is_over(run: Ending) -> bool:
    """Returns True if a run has ended, whichever way, or is not there any more."""
    try:
        return run.info.status in FINISHED
    except NotFound:
        return True


def _named(backend: Backend, name: str | None, prefix: str | None) -> list[str]:
    """Returns the agents that are meant; those included of which runs are requested.

    Raises:
        NotFound: no agent's name begins so.
    """
    if (name is None) == (prefix is None):
        raise TypeError("give either an agent's name, or prefix=, with which names begin")
    if name is not None:
        return [check_name(name, "an agent")]
    prefix = check_words("" if prefix is None else prefix, "prefix=")
    if not prefix:
        raise ValueError("prefix= is empty: all agents would be deleted; say how their names begin")
    found = _found(backend, prefix)
    if not found:
        raise NotFound("there is no agent whose name begins so", target=f"prefix {prefix!r}")
    return found


def _found(backend: Backend, prefix: str) -> list[str]:
    found = {info.name for info in living(backend, prefix)}
    number = 0
    while asked := backend.inbox(kind="start", after=number, limit=PAGE):
        number = asked[-1].no
        found.update(one.agent for one in asked if one.agent.startswith(prefix))
    return sorted(found)


def _of_several(refused: Mapping[str, PerdureError], names: Sequence[str]) -> PerdureError:
    """Returns the error for agents that are not deleted; the others are."""
    first = next(iter(refused.values()))
    if len(names) == 1:
        return first
    error = Conflict if isinstance(first, Conflict) else PerdureError
    summary = error(
        f"{len(refused)} of {len(names)} agents are not deleted; the first: {first.target}: "
        f"{first.problem}",
        target=f"agents from {next(iter(refused))!r} on",
        hint=first.hint,
    )
    summary.__cause__ = first
    return summary
