"""Runs that others started, and that are there no more: their agents were deleted and purged; or
they never came to this store, into which the logs of those that started them were imported.

What these recorded of such a run's end, when they waited for it, is all that is known of it. It
counts also in a history that its run left: the end is none of that run's doing.
"""

from __future__ import annotations

from msgspec import Struct

from perdure.core import shell
from perdure.core.values import Plain
from perdure.engine.recorded import reader_of
from perdure.errors import NeedsAttention
from perdure.state.family import CHILD, agent_of, incarnation_of
from perdure.state.projections import DELETED
from perdure.storage.port import Backend
from perdure.visible import visible


class Trace(Struct):
    """What is left of a run in the log of one that waits for it.

    Attributes:
        end: how it ended, as its row would say that; None: nobody knows.
        place: of the call that started it; empty: of that nothing is left, either.
    """

    end: dict[str, Plain] | None = None
    place: str = ""


def trace_of(backend: Backend, run: str, child: str) -> Trace:
    """What the log of a run that executes has of one that it waits for, since its turn began."""
    trace = Trace()
    rows = backend.runs(run_id=run)
    reader = reader_of(backend, rows[0]) if rows else None
    if reader is None:
        return trace
    labels: dict[tuple[str, str], set[str]] = {}
    for commit in reader.commits(rows[0].turn_at, damaged_too=True):
        for record in commit.records:
            place = str(record.get("run", "")), str(record.get("place", ""))
            if record["t"] == "wait-began":
                labels[place] = {
                    str(branch["label"]) for branch in record["branches"]
                    if branch["kind"] == "child" and branch["name"] == CHILD + child
                }  # fmt: skip
            elif record["t"] == "wait-ended" and record["label"] in labels.get(place, ()):
                trace.end = dict(record["value"])
            elif "child" in record and record["child"]["run"] == child:
                trace.place = place[1]
    if trace.end is None and trace.place and _never_began(backend, child):
        trace.end = {"status": "cancelled", "value": None, "problem": DELETED}
    return trace


def _never_began(backend: Backend, child: str) -> bool:
    """Whether a run that was asked for is not there because its agent was deleted before it began.
    That was told once, to a run that may have left without hearing it."""
    info = backend.agent(agent_of(child), incarnation_of(child))
    deleted = info is not None and info.deleted and not info.purged
    return deleted and not backend.runs(run_id=child)  # it may have come and gone meanwhile


def is_purged(backend: Backend, child: str) -> bool:
    """Whether a run that is not there cannot come any more, as one of a log can that is imported
    later."""
    info = backend.agent(agent_of(child), incarnation_of(child))
    return info is not None and info.purged


def unknown_end(run: str, child: str, place: str) -> NeedsAttention:
    """For a run that waits for nothing but the ends of such as are purged.

    Args:
        child: one of them; `place`: of the call that started it.
    """
    end = f"end this run: `{shell.perdure('cancel', run)}`"
    again = shell.perdure("retry", run, **{"from": place})
    return NeedsAttention(
        f"run {visible(child)}, for which it waits, was purged with its agent, and nobody recorded "
        "how it ended",
        target=f"run {run}",
        hint=f"set this run back to where it started that one, `{again}`, and say that another one "
        f"is to be started; or {end}" if place else end,
    )  # fmt: skip
