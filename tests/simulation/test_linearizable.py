"""The checker itself, on histories made by hand and by chance; then on those of real backends."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.model import FINISHED
from perdure.storage.appending import Append, Outcome
from perdure.storage.locate import locate
from perdure.storage.memory.backend import MemoryBackend
from perdure.store import Store
from tests.postgres.server import shared
from tests.simulation.linearizable import check
from tests.simulation.logs import (
    NOTHING,
    UNKNOWN,
    Asked,
    Call,
    End,
    Granted,
    Log,
    Look,
    Put,
    Seen,
    Take,
    step,
)
from tests.simulation.recording import AGENT, use_in_processes, use_in_threads


def put(seq: int, expected: int | None, *, epoch: int | None = None, word: str = "") -> Put:
    """A commit behind the one at seq − 1 of the same word."""
    return Put(
        seq,
        f"{word}{seq}".encode(),
        f"{word}{seq - 1}".encode() if seq > 1 else b"",
        "main",
        expected,
        epoch,
    )


def taking(seq: int, expected: int, epoch: int) -> Put:
    """One that takes the lease."""
    return replace(put(seq, expected, epoch=epoch), takes=True)


Made = tuple[int, int, Asked, Any]


def history(*calls: Made) -> list[Call]:
    return [Call("", *call) for call in calls]


def fits(calls: Sequence[Call]) -> bool:
    return check(calls, Log(), step).fits


FIRST = (0, 1, put(1, None), "in")
LOOK = Look("main")
TAKE = Take("main", "me", None, None)


RIGHT: dict[str, list[Made]] = {
    "nothing": [],
    "one after the other": [FIRST, (2, 3, put(2, 1), "in"), (4, 5, LOOK, Seen(2, 0, None))],
    "a read beside a write sees what was": [
        FIRST,
        (2, 9, put(2, 1), "in"),
        (3, 4, LOOK, Seen(1, 0, None)),
    ],
    "or what is": [FIRST, (2, 9, put(2, 1), "in"), (3, 4, LOOK, Seen(2, 0, None))],
    "two want the same place": [
        FIRST,
        (2, 9, put(2, 1, word="a"), "stale"),
        (2, 8, put(2, 1), "in"),
    ],
    "an answer was lost, and it was written": [
        FIRST,
        (2, 3, put(2, 1), UNKNOWN),
        (4, 5, LOOK, Seen(1, 0, None)),
        (6, 7, LOOK, Seen(2, 0, None)),
    ],
    "an answer was lost, and it was not": [
        FIRST,
        (2, 3, put(2, 1), UNKNOWN),
        (4, 5, LOOK, Seen(1, 0, None)),
    ],
    "it was refused before anything was done": [FIRST, (2, 3, put(2, 1), NOTHING)],
    "an owner is replaced": [
        FIRST,
        (2, 3, TAKE, Granted(1)),
        (4, 5, put(2, 1, epoch=1), "in"),
        (6, 7, Take("main", "you", 1, None), Granted(2)),
        (8, 9, put(3, 2, epoch=1), "fenced"),
        (8, 9, put(3, 2, epoch=2), "in"),
    ],
    "a lease is given back": [
        FIRST,
        (2, 3, TAKE, Granted(1)),
        (4, 5, put(2, 1), "held"),
        (6, 7, Take("main", None, None, 1), Seen(1, 1, None)),
        (8, 9, put(2, 1), "in"),
        (10, 11, End(), (2, b"2")),
    ],
    "a commit takes the lease": [
        FIRST,
        (2, 9, taking(2, 1, 1), "in"),
        (2, 9, TAKE, Seen(2, 1, 1)),
        (10, 11, put(3, 2), "held"),
        (10, 11, taking(3, 2, 2), "held"),
        (12, 13, Take("main", None, None, 1), Seen(2, 1, None)),
        (14, 15, taking(3, 2, 1), "fenced"),
        (16, 17, taking(3, 2, 2), UNKNOWN),
        (18, 19, LOOK, Seen(3, 2, 2)),
    ],
    "an agent begins with its lease": [
        (0, 5, replace(put(1, None), then=taking(2, 1, 1)), "in"),
        (1, 4, LOOK, None),
        (6, 7, LOOK, Seen(2, 1, 1)),
        (6, 7, put(1, None), "exists"),
    ],
}

WRONG: dict[str, list[Made]] = {
    "an old read": [FIRST, (2, 3, put(2, 1), "in"), (4, 5, LOOK, Seen(1, 0, None))],
    "back and forth": [
        FIRST,
        (2, 9, put(2, 1), "in"),
        (3, 4, LOOK, Seen(2, 0, None)),
        (5, 6, LOOK, Seen(1, 0, None)),
    ],
    "two in one place": [
        FIRST,
        (2, 9, put(2, 1), "in"),
        (2, 9, Put(2, b"x", b"1", "main", 1, None), "in"),
    ],
    "an acknowledged one is not there": [
        FIRST,
        (2, 3, put(2, 1), "in"),
        (4, 5, End(), (1, b"1")),
    ],
    "what was unknown was seen, and is gone": [
        FIRST,
        (2, 3, put(2, 1), UNKNOWN),
        (4, 5, LOOK, Seen(2, 0, None)),
        (6, 7, LOOK, Seen(1, 0, None)),
    ],
    "what was refused is there": [
        FIRST,
        (2, 3, put(2, 1), NOTHING),
        (4, 5, LOOK, Seen(2, 0, None)),
    ],
    "an old owner writes": [
        FIRST,
        (2, 3, TAKE, Granted(1)),
        (4, 5, Take("main", "you", 1, None), Granted(2)),
        (6, 7, put(2, 1, epoch=1), "in"),
    ],
    "one epoch for two": [FIRST, (2, 9, TAKE, Granted(1)), (2, 9, TAKE, Granted(1))],
    "a commit takes what is held": [
        FIRST,
        (2, 3, TAKE, Granted(1)),
        (4, 5, taking(2, 1, 2), "in"),
    ],
    "a commit takes an old epoch": [
        FIRST,
        (2, 3, taking(2, 1, 1), "in"),
        (4, 5, Take("main", None, None, 1), Seen(2, 1, None)),
        (6, 7, taking(3, 2, 1), "in"),
    ],
    "half a beginning": [
        (0, 5, replace(put(1, None), then=taking(2, 1, 1)), "in"),
        (6, 7, LOOK, Seen(1, 0, None)),
    ],
    "refused for nothing": [FIRST, (2, 3, put(2, 1), "moved")],
    "a link to what never got in": [FIRST, (2, 3, Put(2, b"2", b"x", "main", 1, None), "in")],
    "one key twice": [
        FIRST,
        (2, 3, Put(2, b"2", b"1", "main", 1, None, "k"), "in"),
        (4, 5, Put(3, b"3", b"2", "main", 2, None, "k"), "in"),
    ],
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_history_that_is_linearizable(name: str) -> None:
    verdict = check(history(*RIGHT[name]), Log(), step)
    assert verdict.fits, verdict


@pytest.mark.parametrize("name", WRONG)
def test_a_history_that_is_not(name: str) -> None:
    verdict = check(history(*WRONG[name]), Log(), step)
    assert not verdict.fits
    assert verdict.stuck is not None


def tried_in_full(calls: Sequence[Call]) -> bool:
    """The same question, by trying every order of every choice of what has no answer."""
    sure = [call for call in calls if call.answer != UNKNOWN]
    open_ = [call for call in calls if call.answer == UNKNOWN]
    for number in range(len(open_) + 1):
        for some in itertools.combinations(open_, number):
            for order in itertools.permutations([*sure, *some]):
                if _keeps_time(order) and _explains(order):
                    return True
    return False


def _keeps_time(order: Sequence[Call]) -> bool:
    return not any(
        later.answer != UNKNOWN and later.ended < earlier.began
        for earlier, later in itertools.combinations(order, 2)
    )


def _explains(order: Sequence[Call]) -> bool:
    states = {Log()}
    for call in order:
        states = {after for log in states for after in step(log, call.asked, call.answer)}
    return bool(states)


def drawn(random: Random) -> list[Call]:
    """A few calls that overlap, with answers that may or may not be right."""
    calls = [Call("", 0, random.randint(1, 4), put(1, None), "in")]
    for _ in range(random.randint(1, 5)):
        began = random.randint(0, 8)
        asked: Asked = random.choice(
            (
                put(2, 1),
                put(2, 1, epoch=1),
                put(3, 2),
                LOOK,
                LOOK,
                End(),
                TAKE,
                Take("main", "you", 1, None),
                taking(2, 1, 1),
                taking(3, 2, 1),
            )
        )
        answer: Any = UNKNOWN
        match asked:
            case Put():
                answer = random.choice(("in", "in", "stale", "moved", "fenced", "held", UNKNOWN))
            case Look():
                held = random.choice((None, 1))
                answer = random.choice((Seen(random.randint(1, 2), held or 0, held), None))
            case End():
                seq = random.randint(1, 2)
                answer = seq, str(seq).encode()
            case Take():
                answer = random.choice((Granted(1), Granted(2), UNKNOWN, Seen(1, 0, None)))
        calls.append(Call("", began, began + random.randint(1, 6), asked, answer))
    return calls


def test_it_finds_what_trying_every_order_finds() -> None:
    random, verdicts = Random(7), {True: 0, False: 0}
    for _ in range(600):
        calls = drawn(random)
        found = fits(calls)
        assert found == tried_in_full(calls), calls
        verdicts[found] += 1
    assert min(verdicts.values()) > 60, verdicts


# -- real backends -----------------------------------------------------------------------------


def _looks_right(calls: Sequence[Call], url: str) -> None:
    overlapping = sum(
        one.began < other.ended and other.began < one.ended and one.who != other.who
        for one, other in itertools.pairwise(sorted(calls, key=lambda call: call.began))
    )
    assert overlapping, "nothing happened at the same time"
    verdict = check(calls, Log(), step)
    assert verdict.fits, verdict.stuck
    with Store(locate(url)) as store:
        agent = store.agent(AGENT)
        agent.verify()
        assert all(run.status in FINISHED for run in store.runs())
        assert agent.state["runs"] == 2 * len(store.runs())
    # A read that was answered with what had been before is no history of these calls any more.
    late = [call for call in calls if isinstance(call.asked, Look) and call.answer is not None]
    last = max(late, key=lambda call: call.began)
    old = Call(last.who, last.ended, last.ended + 1, last.asked, Seen(1, 0, None))
    assert not fits([*calls, old])


def test_threads_on_a_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit in memory takes no time, and four threads may well do all in turns: it takes some
    here, so that calls meet."""
    real = MemoryBackend.append

    def append(backend: MemoryBackend, batch: Sequence[Append]) -> list[Outcome]:
        time.sleep(0.0005)
        return real(backend, batch)

    monkeypatch.setattr(MemoryBackend, "append", append)
    url = f"memory://{tmp_path.name}-linearizable"
    keep = locate(url)
    _looks_right(use_in_threads(url, 1, threads=4, deeds=25), url)
    keep.close()


def test_processes_on_sqlite(tmp_path: Path) -> None:
    url = str(tmp_path / "agents.db")
    _looks_right(use_in_processes(url, processes=2, threads=2, deeds=25), url)


def test_processes_on_postgres() -> None:
    url = shared().new_url()
    _looks_right(use_in_processes(url, processes=2, threads=2, deeds=25), url)
