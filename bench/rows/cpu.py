"""What one durable commit costs beside time: CPU and fsyncs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import perdure
from bench.harness import average, interleave_turns, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.rows.plain import APPEND, appending, stored_bytes
from bench.rows.straight import STRAIGHT, in_a_straight_line
from bench.workplace import Workplace, append, messages, open_ticket
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.store import Store
from perdure.testing.faults import FaultyFiles, Operation

CPU_MAX_S = 120e-6
SYNCS_MAX = 1.05
"""SQLite syncs the WAL's own header when it starts it over: once in a thousand pages."""


@row("cpu")
def cpu(workplace: Workplace) -> Iterator[Line]:
    """CPU per commit of one 500 B append, and fsyncs per commit.

    CPU is user and system time of the process with all its threads, also the one that moves the
    WAL into the main file; the mean of long turns. The contestant, the plain append with fdatasync,
    is what the kernel's part of a sync burns at least. Fsyncs are counted in a second store, whose
    files lie under a counting SQLite VFS: those on the committing thread.
    """
    turn = max(workplace.sizes.commits // 8, 1)
    given = messages(turn)
    folder = workplace.folder()
    with perdure.open(folder / "ours.db") as store:
        agent = open_ticket(store, "a")
        with (
            appending(folder / "plain", stored_bytes(agent)) as plain,
            in_a_straight_line(folder / "straight.db") as straight,
        ):

            def ours() -> int:
                for message in given:
                    append(agent, message)
                return turn

            def theirs() -> int:
                for number in range(turn):
                    plain(number)
                return turn

            def straightly() -> int:
                for message in given:
                    straight(message)
                return turn

            costs = interleave_turns({"ours": ours, APPEND: theirs, STRAIGHT: straightly}, 7)
    own, other, least = (costs[name].cpu for name in ("ours", APPEND, STRAIGHT))
    yield Line(
        "CPU per commit",
        Figure(own.mean),
        Figure(other.mean, name=APPEND),
        ratio(own, other, average),
        Target(CPU_MAX_S, of="ours"),
        f"without what the plain append and fdatasync burn: {Figure(own.mean - other.mean)}; "
        f"cheapest turn {Figure(min(own.values))}",
        samples={"ours": own, APPEND: other},
    )
    yield Line(
        "CPU per commit",
        Figure(own.mean),
        Figure(least.mean, name=STRAIGHT),
        ratio(own, least, average),
        None,
        "the contestant does only what every commit of this format must: validate, encode, "
        "compress, hash, one SQLite transaction of two statements, its sync",
        samples={"ours": own, STRAIGHT: least},
    )
    yield _syncs(folder / "counted.db", workplace.sizes.commits // 2)


def _syncs(path: Path, commits: int) -> Line:
    files = FaultyFiles()
    syncs: Counter[str] = Counter()
    committing = threading.get_ident()

    def count(operation: Operation, _: str, __: int) -> None:
        if operation == "sync":
            syncs["commits" if threading.get_ident() == committing else "housekeeping"] += 1

    with Store(SqliteBackend(str(path), vfs=files.name)) as store:
        agent = open_ticket(store, "a")
        files.fault = count
        for message in messages(commits):
            append(agent, message)
        files.fault = lambda *_: None
    return Line(
        "fsyncs per commit",
        Figure(syncs["commits"] / commits, ""),
        None,
        None,
        Target(SYNCS_MAX, of="ours"),
        f"on the committing thread; by housekeeping: {syncs['housekeeping']} for {commits} commits",
    )
