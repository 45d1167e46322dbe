"""A process that starts: how soon it has the state that is on disk, and in how much memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

import perdure
from bench.fresh import fresh
from bench.harness import Samples, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.rows.straight import STRAIGHT
from bench.workplace import Ticket, Workplace, append, messages, ticket
from perdure.storage.log.reader import LogReader
from perdure.storage.sqlite.backend import SqliteBackend

RATIO_MAX = 3.0
PLAIN, TYPED = "plain decode", "decode and validate"


@row("rehydrate")
def rehydrate(workplace: Workplace) -> Iterator[Line]:
    """Rehydration of a 10,000-message state in a cold process, after import; and its memory.

    Each sample is a fresh process. Ours: `perdure.open` (its backend imported already),
    `store.agent`, `agent.state`, typed. The contestants have the same state as one msgpack file:
    read and decoded to plain dicts; and then validated to the same pydantic type. Files are in the
    page cache. The straight line reads the leaves of our file, proves, inflates and decodes them,
    and validates the whole: what every program must do that trusts neither file nor types; it has
    the messages up to the last leaf. The log was written message by message, so that the state is
    its last snapshot and the deltas since. Memory is the process's resident set with the state in
    hand; and what it grew by since the imports.
    """
    count = workplace.sizes.cold_messages
    folder = workplace.folder()
    path, packed = folder / "ours.db", folder / "state.msgpack"
    given = messages(count, seed=9)
    with perdure.open(path, durability="os") as store:
        agent = store.agent("a", Ticket, initial=ticket(0))
        for message in given:
            append(agent, message)
        packed.write_bytes(msgspec.msgpack.encode(agent.state.model_dump()))
        behind = agent.seq - _last_snapshot(path)
    ways = {
        "ours": ("ours", path),
        PLAIN: ("plain", packed),
        TYPED: ("typed", packed),
        STRAIGHT: ("straight", path),
    }
    seen = _start(ways, workplace, count)
    times = {name: found["s"] for name, found in seen.items()}
    ours = times["ours"]
    phases = ", ".join(
        f"{phase} {Figure(seen['ours'][phase].median)}" for phase in ("open", "fold", "build")
    )
    what = f"rehydrate {count:,} messages, median"
    yield Line(
        what,
        Figure(ours.median),
        Figure(times[PLAIN].median, name=PLAIN),
        ratio(ours, times[PLAIN]),
        Target(RATIO_MAX),
        f"{phases}; {behind} commits behind the last snapshot",
        samples=times,
    )
    yield Line(
        what,
        Figure(ours.median),
        Figure(times[TYPED].median, name=TYPED),
        ratio(ours, times[TYPED]),
    )
    straight = times[STRAIGHT]
    yield Line(
        "straight line, median",
        Figure(straight.median),
        Figure(times[PLAIN].median, name=PLAIN),
        ratio(straight, times[PLAIN]),
        note="no reader of this format in Python is below it",
    )
    yield Line(
        what, Figure(ours.median), Figure(straight.median, name=STRAIGHT), ratio(ours, straight)
    )
    for name in (PLAIN, TYPED):
        yield _memory(f"memory of a process with {count:,} messages", "rss", seen, name)
        yield _memory("… of which the state", "grown", seen, name)


def _last_snapshot(path: Path) -> int:
    """Seq of the agent's last snapshot; 0 without one."""
    backend = SqliteBackend(str(path))
    info = backend.agent("a")
    assert info is not None
    seqs = LogReader(backend, info).snapshot_seqs()
    backend.close()
    return max(seqs, default=0)


def _start(
    ways: Mapping[str, tuple[str, Path]], workplace: Workplace, count: int
) -> dict[str, dict[str, Samples]]:
    seen: dict[str, dict[str, Samples]] = {name: {} for name in ways}
    for number in range(workplace.sizes.cold_starts + 1):
        for name, (how, path) in ways.items():
            answer = fresh(how, str(path), workplace.bytecode)
            assert answer["items"] == count or name == STRAIGHT
            if number:
                for key, value in answer.items():
                    seen[name].setdefault(key, Samples()).values.append(float(str(value)))
    return seen


def _memory(what: str, key: str, seen: dict[str, dict[str, Samples]], other: str) -> Line:
    ours, theirs = seen["ours"][key], seen[other][key]
    return Line(
        what, Figure(ours.median, "B"), Figure(theirs.median, "B", other), ratio(ours, theirs)
    )
