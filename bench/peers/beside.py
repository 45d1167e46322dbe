"""The works beside the growing conversation: steps, tools, runs at once, looks back, kills."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.peers.contenders import Contender, attempting, contending, failed, rounds
from bench.peers.contestants import Contestant
from bench.peers.machine import STRACE, Tracer
from bench.peers.places import Ground
from bench.peers.process import NothingOfTheKindError
from bench.peers.restate_server import NotSetUp
from bench.peers.results import Field


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done of everything.

    Attributes:
        marks: lengths of the conversation at which it is measured.
        said: messages of a turn at the longer ones of them.
        grow_s: a contestant that needs longer to grow from one mark to the next stops.
    """

    rounds: int
    steps: int
    runs: int
    run_steps: int
    messages: int
    kills: int
    signals: int
    idle_s: float
    synced: int
    marks: tuple[int, ...]
    said: int
    resumes: int
    grow_s: float


FULL = Sizes(
    rounds=5,
    steps=60,
    runs=32,
    run_steps=10,
    messages=300,
    kills=3,
    signals=12,
    idle_s=10.0,
    synced=30,
    marks=(10, 100, 1000, 3000, 10_000),
    said=20,
    resumes=2,
    grow_s=30.0,
)
"""So that all contestants take less than half an hour on two quiet processors."""

QUICK = Sizes(
    rounds=3,
    steps=20,
    runs=16,
    run_steps=4,
    messages=100,
    kills=1,
    signals=5,
    idle_s=3.0,
    synced=20,
    marks=(10, 100, 1000),
    said=10,
    resumes=1,
    grow_s=10.0,
)
TINY = Sizes(
    rounds=1,
    steps=2,
    runs=2,
    run_steps=2,
    messages=8,
    kills=1,
    signals=1,
    idle_s=0.1,
    synced=2,
    marks=(4, 8),
    said=2,
    resumes=1,
    grow_s=30.0,
)

Asking = dict[str, Any]


def per_operation(do: str, **arguments: Any) -> Callable[[Contender], float]:
    """Seconds of one operation, as its process timed a turn of them."""

    def take(contender: Contender) -> float:
        answer = contender.ask(do, **arguments)
        return float(answer["wall"]) / int(answer["count"])

    return take


def beside(
    found: Field, contestants: Sequence[Contestant], ground: Ground, sizes: Sizes
) -> Iterator[None]:
    """All of them, each contestant in a place of its own, with a conversation of `messages`."""
    with contending(contestants, ground) as contenders:
        for one in contenders:
            if not one.gone:
                found.contestants[one.name] = one.ask("about")
        _turns(found, contenders, sizes)
        yield
        for contender in contenders:
            contender.ask_quietly("say", count=sizes.messages)
        _kills(found, contenders, sizes)
        yield
        _looks(found, contenders, sizes)
        _signals(found, contenders, sizes)
        yield
        _idle(found, contenders, sizes)
        work = found.work("delete", f"deleting a conversation of {sizes.messages:,} messages")
        rounds(contenders, 1, attempting(work, per_operation("delete")))
        yield


def _turns(found: Field, contenders: list[Contender], sizes: Sizes) -> None:
    works: list[tuple[str, str, Asking]] = [
        ("steps", "a step, result 500 B", {"count": sizes.steps}),
        ("tools", "a tool call, intent and outcome", {"count": sizes.steps}),
        (
            "concurrent",
            f"a step of {sizes.runs} runs at once",
            {"runs": sizes.runs, "count": sizes.run_steps},
        ),
        ("tokens", "a token of a stream, kept", {"count": sizes.steps}),
    ]
    for do, what, arguments in works:
        work, take = found.work(do, what), per_operation(do, **arguments)
        for contender in contenders:
            contender.ask_quietly(do, **arguments)  # the first time is not in the rounds
        rounds(contenders, sizes.rounds, attempting(work, take))


def _kills(found: Field, contenders: list[Contender], sizes: Sizes) -> None:
    """With the process started again at once, as by a supervisor; its conversation is there."""
    said = f"conversation of {sizes.messages:,} messages"
    work = found.work("kill", f"`kill -9` in a {said}, to its next step")
    starting = found.work("start", "starting: interpreter and imports")
    memory = found.work("memory", f"memory with a {said}", "B")

    def take(contender: Contender) -> float:
        killed = contender.kill()
        started = contender.start()
        opened = contender.open()
        if not contender.messages:
            raise NothingOfTheKindError("keeps nothing")
        starting.cell(contender.name).values.append(started)
        memory.cell(contender.name).values.append(float(contender.resident_bytes))
        return float(opened["at"]) - killed

    rounds(contenders, sizes.kills, attempting(work, take))


def _looks(found: Field, contenders: list[Contender], sizes: Sizes) -> None:
    half = sizes.messages // 2
    at_half = f"of {sizes.messages:,} messages at its {half:,}th"
    for do, what, arguments in (
        ("recent", f"listing the newest 50 of {sizes.messages:,} steps", {}),
        ("past", f"reading a conversation {at_half}", {"at": half}),
        ("fork", f"forking a conversation {at_half}", {"at": half}),
    ):
        work = found.work(do, what)
        rounds(contenders, sizes.kills, attempting(work, per_operation(do, **arguments)))


def _signals(found: Field, contenders: list[Contender], sizes: Sizes) -> None:
    work = found.work("signals", "signal to wake, in one process")
    for contender in contenders:
        cell = work.cell(contender.name)

        def take(one: Contender) -> float:
            seconds = [float(value) for value in one.ask("signals", count=sizes.signals)["seconds"]]
            cell.values.extend(seconds[:-1])  # noqa: B023  (called at once)
            return seconds[-1]

        contender.attempt(cell, take)


def _idle(found: Field, contenders: list[Contender], sizes: Sizes) -> None:
    """All of them at the same time, for the same while."""
    work = found.work("idle", "CPU of a second of waiting for a signal")
    rounds(contenders, 1, attempting(work, _begin_to_wait))
    waiting = [one for one in contenders if work.cell(one.name).values]
    before = {one.name: one.cpu_s for one in waiting}
    began = time.perf_counter()
    time.sleep(sizes.idle_s)
    for one in waiting:
        spent = one.cpu_s - before[one.name]
        work.cell(one.name).values[:] = [spent / (time.perf_counter() - began)]


def _begin_to_wait(contender: Contender) -> float:
    contender.ask("idle")
    return 0.0


def synced(
    found: Field, contestants: Sequence[Contestant], ground: Ground, sizes: Sizes
) -> Iterator[None]:
    """fsync and fdatasync of the process, and of the server, per message added: what more messages
    have more of, so that beginnings and ends do not count."""
    work = found.work("syncs", "syncs of a message added, by strace", "")
    for contestant in contestants:
        cell = work.cell(contestant.name)
        if STRACE is None:
            cell.missing = "strace is not installed"
            yield
            continue
        try:
            with ground.place(contestant.server) as place:
                contender = Contender(contestant, place, ground)
                contender.attempt(cell, lambda one: _syncs_of(one, sizes.synced))
                contender.end()
        except NotSetUp as error:
            cell.missing = failed(error)
        yield


def _syncs_of(contender: Contender, count: int) -> float:
    tracer = Tracer(contender.place.folder)
    with tracer.attached(contender.ground.server_to_trace(contender.place)):
        contender.start(tracer.under)
        contender.open()
        contender.ask("say", count=count)
        few = tracer.syncs
        contender.ask("say", count=count)
        between = tracer.syncs
        contender.ask("say", count=3 * count)
        many = tracer.syncs
        contender.ask("close")
    return ((many - between) - (between - few)) / (2 * count)
