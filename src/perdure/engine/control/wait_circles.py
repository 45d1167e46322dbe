"""Runs that wait for each other in a circle: none of them can go on, and none ever will (I8)."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Literal
from urllib.parse import unquote
from weakref import WeakSet

from msgspec import Struct

from perdure.engine.execution.current_run import current
from perdure.engine.execution.wakeups import Wakeups
from perdure.engine.functions.run_lookup import find_run
from perdure.engine.journal.run_log import reader_of, recorded_turn
from perdure.engine.journal.waits import only_runs
from perdure.errors import Conflict, Corrupt, NeedsAttention, NotFound, UnsupportedFormat
from perdure.model import MAIN, RunInfo
from perdure.state.context import Context
from perdure.state.runs.family_messages import agent_of
from perdure.storage.capabilities import Backend, RunQuery
from perdure.system import shell
from perdure.visible import visible

Link = tuple[str, Literal["waits for", "is queued behind"], str]
"""A run, and another one whose end it needs to go on."""


IN_CIRCLE = "waits for something that can never come, because runs wait for each other in a circle"


class Circle(Struct, frozen=True):
    """The circle in which a run waits for itself, or for others that do.

    Attributes:
        links: one after the other; the last leads to a run that one before begins with.
    """

    links: Sequence[Link]

    @property
    def waiting(self) -> list[str]:
        """The runs in it that began, and wait: ending one lets the others go on."""
        return [run for run, kind, _ in self.links if kind == "waits for"]

    def __str__(self) -> str:
        first, *_ = self.links[0]
        return f"run {visible(first)} " + ", which ".join(
            f"{kind} run {visible(other)}" for _, kind, other in self.links
        )


def find_circle(
    backend: Backend,
    run: str,
    children: Sequence[str] = (),
    *,
    in_place: Mapping[str, str] | None = None,
) -> Circle | None:
    """The circle that a run is in, or that all it waits for is in. None: something can move yet.

    A run that waits, is queued, or waits in place goes on by itself only when one of the runs does
    whose ends it needs. So none of them ever will if among all that it leads to, over however many
    runs, there is nothing that is executed, to begin, due, stopped, or waits for anything else.

    Args:
        children: the runs that it waits for, where that is known: else its record is read.
        in_place: of runs that are executed, the one whose end their code waits for.
    """
    links: dict[str, list[Link]] = {}
    ahead = [run]
    while ahead:
        one = ahead.pop()
        if one in links:
            continue
        known = children if one == run else ()
        found = _links(backend, one, known, in_place or {})
        if not found:
            return None
        links[one] = found
        ahead += [other for *_, other in found]
    if children and _has_news(backend, find_run(backend, run)):
        return None
    path, passed = [links[run][0]], {run}
    while path[-1][2] not in passed:
        passed.add(path[-1][2])
        path.append(links[path[-1][2]][0])
    return Circle(path)


def _links(
    backend: Backend, run: str, children: Sequence[str], in_place: Mapping[str, str]
) -> list[Link]:
    """Returns the links to the runs of which one must end for this run to continue; empty if none
    must, or a person is asked already."""
    if children:
        return [(run, "waits for", child) for child in children]
    if run in in_place:
        return [(run, "waits for", in_place[run])]
    try:
        info = find_run(backend, run)
    except NotFound:  # its caller has not begun it yet
        other = _branch_taken(backend, agent_of(run), _branch_of_new(backend, run), None)
        return [(run, "is queued behind", other.id)] if other else []
    if info.status == "waiting":
        if info.wake_at_micros or _has_news(backend, info):
            return []
        return [(run, "waits for", child) for child in awaited_runs(backend, info)]
    if info.status == "pending":
        other = ahead_of(backend, info)
        return [(run, "is queued behind", other.id)] if other else []
    return []


def _branch_of_new(backend: Backend, run: str) -> str:
    """Returns the branch that a run which nobody knows yet begins on: its key ends with it, and no
    run on main may have such a key."""
    agent, branch = backend.agent(agent_of(run)), run.rpartition("@")[2].partition("~")[0]
    ref = None if agent is None or branch == run else backend.ref(agent.no, unquote(branch))
    return MAIN if ref is None or ref.kind != "branch" else ref.name


def ahead_of(backend: Backend, info: RunInfo) -> RunInfo | None:
    """The unfinished run that has the branch of a run, or is to have it before."""
    return _branch_taken(backend, info.agent, info.branch, info)


def _branch_taken(backend: Backend, name: str, branch: str, info: RunInfo | None) -> RunInfo | None:
    if info is not None and info.started:
        no = info.agent_no
    else:
        agent = backend.agent(name)
        if agent is None or agent.deleted:
            return None
        no = agent.no
    for other in backend.runs(RunQuery(agent=name, unfinished=True)):
        ours = other.branch == branch and other.agent_no == no
        if not ours or (info is not None and other.id == info.id):
            continue
        if info is None or not info.started or other.started < info.started:
            return other
    return None


def awaited_runs(backend: Backend, info: RunInfo) -> Sequence[str]:
    """The runs whose ends are all that a run waits for; empty: it waits for something else, too."""
    reader = reader_of(backend, info)
    if reader is None:
        return []
    try:
        waits = [event for event in recorded_turn(reader, info).open if event.kind == "wait"]
    except (Corrupt, UnsupportedFormat):  # what is asked of that run itself says so
        return []
    return only_runs([branch for event in waits for branch in event.branches])


def _has_news(backend: Backend, info: RunInfo) -> bool:
    """Returns True if something came with which the run continues. A queued run that was asked to
    end does so only once it has the branch."""
    if info.status != "waiting":
        return False
    return any(m.no > info.seen or m.kind == "cancel" for m in backend.inbox(info.id))


def endless(run: str, circle: Circle) -> NeedsAttention:
    """For a run whose wait has closed a circle."""
    hint = f"end this run, and the others go on: `{shell.perdure('cancel', run)}`"
    others = [other for other in circle.waiting if other != run]
    if others:
        end, again = shell.perdure("cancel", others[0]), shell.perdure("resume", run)
        hint += f"; or another one, `{end}`, and then `{again}`"
    return NeedsAttention(
        f"{IN_CIRCLE}: {circle}",
        target=f"run {run}",
        hint=f"{hint}; and start children on agents that no other run has",
    )


# -- in place --------------------------------------------------------------------------------


class WaitingInPlace:
    """Context manager around a wait, from the code of a run, for another one to end: the run is
    executed, and does nothing until then. Others of this open store see it.

    Args:
        run: the one that is waited for.
        alone: the code that waits is on the caller's thread, and holds it up.
    """

    def __init__(self, context: Context, wakeups: Wakeups, run: str, *, alone: bool = True) -> None:
        self.run = run
        self.held: list[str] = []
        """Runs that cannot end before it: their functions are on this thread."""
        self._backend = context.backend
        self._waits = wakeups.in_place
        self._own: list[str] = []
        here, frame = threading.get_ident(), current()
        while frame is not None:
            own = frame.run
            if own is not None and own.context is context:
                self._own.append(own.id)
                if alone and frame.scope in (None, own.root) and own.root.home == here:
                    self.held.append(own.id)
            frame = frame.outer

    def refuse(self) -> None:
        """Raises Conflict: it would never end."""
        if not self._own:
            return
        own = self._own[0]
        circle = find_circle(
            self._backend,
            own,
            (self.run,),
            in_place=in_place(self._waits) | dict.fromkeys(self._own, self.run),
        )
        if circle is not None:
            raise Conflict(
                f"would wait for itself: {circle}",
                target=f"run {own}",
                hint="start that run on another agent, or do not wait for its end here",
            )

    def __enter__(self) -> WaitingInPlace:
        if self.held:
            self._waits.add(self)
        return self

    def __exit__(self, *error: object) -> None:
        self._waits.discard(self)


def in_place(waits: WeakSet[WaitingInPlace]) -> dict[str, str]:
    """Returns the run that the code of each run waits for, for those that wait in this process."""
    return {run: wait.run for wait in [*waits] for run in wait.held}
