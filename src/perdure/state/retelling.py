"""What runs told each other, told again in a store that was filled from logs.

A message is in no log until it is taken out. One that was there at the moment to which a store is
restored, or at which a log was exported, and was taken out later, or stayed behind, is not in the
new store. What people and programs sent they can send again; a run cannot. But what it told follows
from the logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from msgspec.structs import replace

from perdure.model import FINISHED, Commit, Message, RunInfo
from perdure.state.arriving import PAGE
from perdure.state.family import CHILD, end_told
from perdure.state.tokens import last_number, living
from perdure.storage.port import Backend, Shipment
from perdure.storage.reader import LogReader


class Awaited:
    """The runs whose ends the waits of a log wait for, fed with its commits in order. Some of these
    waits may be in a history that their run left."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[str, str], list[str]] = {}

    def note(self, commit: Commit) -> None:
        for record in commit.records:
            place = str(record.get("run", "")), str(record.get("place", ""))
            if record["t"] == "wait-began":
                self._by_place[place] = [
                    str(branch["name"]).removeprefix(CHILD)
                    for branch in record["branches"] if branch["kind"] == "child"
                ]  # fmt: skip
            elif record["t"] == "wait-ended":
                self._by_place.pop(place, None)

    @property
    def pairs(self) -> Iterator[tuple[str, str]]:
        """A run that waits, and one that it waits for."""
        for (run, _), children in self._by_place.items():
            yield from ((run, child) for child in children)


def retell(target: Backend) -> None:
    """For a store that was restored, before it opens, and once the numbers that its own messages
    get are known. May be done again."""
    last = last_number(target)
    told = _ends_untold(target)
    while part := [*islice(told, PAGE)]:
        now = target.now()
        numbered = [replace(one, no=last + n, at=now) for n, one in enumerate(part, 1)]
        target.ship(Shipment(messages=numbered))
        last += len(numbered)


def _ends_untold(target: Backend) -> Iterator[Message]:
    for info in living(target):
        if not target.runs(agent=info.name, status=["waiting"], limit=1):
            continue
        awaited = Awaited()
        for commit in LogReader(target, info).commits(1, damaged_too=True):
            awaited.note(commit)
        yield from ends_for(target, {}, awaited)


def ends_for(
    backend: Backend, rows: Mapping[str, RunInfo], awaited: Awaited
) -> Iterator[Message]:  # fmt: skip
    """What tells runs that wait of ends that they have not heard of.

    Args:
        rows: of the runs of a log that the backend is about to have; others are there.
    """
    for run, child in dict.fromkeys(awaited.pairs):
        ended = _row(backend, rows, child)
        if ended is not None and ended.status in FINISHED:
            yield from _unless_told(backend, rows, ended, run)


def ends_of(backend: Backend, rows: Mapping[str, RunInfo]) -> Iterator[Message]:
    """What tells runs that are there already of the ends of these, whose log is taken in."""
    for row in rows.values():
        if row.parent and row.status in FINISHED:
            yield from _unless_told(backend, rows, row, row.parent)


def _unless_told(
    backend: Backend, rows: Mapping[str, RunInfo], ended: RunInfo, run: str
) -> Iterable[Message]:  # fmt: skip
    waiting = _row(backend, rows, run)
    if waiting is None or waiting.status != "waiting":
        return []  # one that is gone on with sees it by itself
    name = CHILD + ended.id
    told = any(one.name == name for one in backend.inbox(run, kind="signal", name=name))
    return [] if told else [end_told(ended, run)]


def _row(backend: Backend, rows: Mapping[str, RunInfo], run: str) -> RunInfo | None:
    if run in rows:
        return rows[run]
    found = backend.runs(run_id=run)
    return found[0] if found else None
