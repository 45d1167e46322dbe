"""A conversation that grows, a message a step: time, bytes and memory at each length."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from bench.peers.beside import Sizes
from bench.peers.contenders import Contender, attempting, contending, failed, rounds
from bench.peers.contestants import Contestant
from bench.peers.places import Ground
from bench.peers.process import NothingOfTheKindError, PeerError
from bench.peers.results import Field

PORTION = 100
"""Messages between two looks at the clock while a conversation grows."""


def grown(
    found: Field, contestants: Sequence[Contestant], ground: Ground, sizes: Sizes
) -> Iterator[None]:
    """Each contestant up to each mark, then all of them measured there in turns.

    A contestant that needs more than the time that each has between two marks stops: the later
    marks say so.
    """
    with contending(contestants, ground) as contenders:
        for mark in sizes.marks:
            for contender in contenders:
                _grow(contender, mark, sizes.grow_s)
            _at_rest(found, contenders, mark)
            _resumed(found, contenders, mark, sizes)
            _steps_at(found, contenders, mark, sizes)
            yield


def _grow(contender: Contender, mark: int, budget_s: float) -> None:
    if contender.gone:
        return
    began = time.monotonic()
    try:
        while contender.messages < mark:
            contender.say(min(mark - contender.messages, PORTION))
            if contender.messages < mark and time.monotonic() - began > budget_s:
                contender.gone = (
                    f"stopped at {contender.messages:,} messages: "
                    f"it had {budget_s:.0f} s to grow to {mark:,}"
                )
                return
    except NothingOfTheKindError as nothing:
        contender.gone = str(nothing)
    except PeerError as error:
        contender.gone = failed(error)


def _at_rest(found: Field, contenders: list[Contender], mark: int) -> None:
    """The size of what is stored: after an orderly end, so without logs that are still to be
    moved."""

    def take(contender: Contender) -> float:
        contender.end()
        return float(contender.ground.stored_bytes(contender.place))

    work = found.work(f"files at {mark}", f"stored after {mark:,} messages", "B")
    rounds(contenders, 1, attempting(work, take))


def _resumed(found: Field, contenders: list[Contender], mark: int, sizes: Sizes) -> None:
    """In a new process each time, after its imports; files are in the page cache."""
    resume = found.work(f"resume at {mark}", f"cold resume at {mark:,} messages, after imports")
    memory = found.work(f"memory at {mark}", f"memory after a resume at {mark:,} messages", "B")

    def take(contender: Contender) -> float:
        contender.end()
        contender.start()
        seconds = float(contender.open()["s"])
        if contender.messages != mark:
            raise AssertionError(f"{contender.name} has {contender.messages}, not {mark} messages")
        return seconds

    rounds(contenders, sizes.resumes, attempting(resume, take))
    rounds(contenders, 1, attempting(memory, lambda one: float(one.resident_bytes)))


def _steps_at(found: Field, contenders: list[Contender], mark: int, sizes: Sizes) -> None:
    step = found.work(f"step at {mark}", f"a message added at {mark:,}")
    disk = found.work(f"written at {mark}", f"written to disk by a message added at {mark:,}", "B")
    count = min(sizes.said, max(mark // 20, 3))

    def turn(contender: Contender) -> None:
        def take(one: Contender) -> float:
            before = one.written_bytes
            answer = one.say(count)
            written = (one.written_bytes - before) / count
            disk.cell(one.name).values.append(written)
            return float(answer["wall"]) / int(answer["count"])

        contender.attempt(step.cell(contender.name), take)
        disk.cell(contender.name).missing = step.cell(contender.name).missing

    rounds(contenders, sizes.rounds, turn)
