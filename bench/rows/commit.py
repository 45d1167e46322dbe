"""Wall-clock time of one durable commit."""

from __future__ import annotations

from collections.abc import Iterator

import perdure
from bench.harness import interleave, ratio, undisturbed, worst
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.rows.plain import APPEND, INSERT, appending, inserting, stored_bytes
from bench.rows.straight import STRAIGHT, in_a_straight_line
from bench.workplace import Workplace, append, messages, open_ticket


@row("commit")
def commit(workplace: Workplace) -> Iterator[Line]:
    """One `edit` that appends a 500 B message to a typed state, at durability "sync".

    Draft, validation, encoding, hash, transaction, fsync; the message object is made before.
    Against a plain append of as many bytes as the commit has in the log, with fdatasync, and
    against an INSERT of them in a table of an id and a blob. The agent begins with 10 messages and
    keeps all. Turns of 10 operations; p99 over the whole run.

    The straight line does what every commit of this format must have done to it and nothing else
    (see `straight`). Where it misses the target, too, the processor is too slow for its disk.
    """
    count = workplace.sizes.commits
    given = messages(count + 2)
    folder = workplace.folder()
    with perdure.open(folder / "ours.db") as store:
        agent = open_ticket(store, "a")
        data = stored_bytes(agent)
        with (
            appending(folder / "plain", data) as plain,
            inserting(folder / "plain.db", data) as insert,
            in_a_straight_line(folder / "straight.db") as straight,
        ):
            samples = interleave(
                {
                    "ours": lambda number: append(agent, given[number]),
                    APPEND: plain,
                    INSERT: insert,
                    STRAIGHT: lambda number: straight(given[number]),
                },
                count,
            )
    ours, plainly, inserted = samples["ours"], samples[APPEND], samples[INSERT]
    least = samples[STRAIGHT]
    yield Line(
        "durable commit, median",
        Figure(ours.median),
        Figure(plainly.median, name=APPEND),
        ratio(ours, plainly),
        Target(2.5),
        f"{len(data)} bytes in the log per commit",
        samples=samples,
    )
    yield Line(
        "durable commit, p99",
        Figure(ours.p99),
        Figure(plainly.p99, name=APPEND),
        ratio(ours, plainly, worst),
        Target(5),
    )
    yield Line(
        "straight line, median",
        Figure(least.median),
        Figure(plainly.median, name=APPEND),
        ratio(least, plainly),
        note="no commit of this format in Python is below it",
    )
    yield Line(
        "straight line, p99",
        Figure(least.p99),
        Figure(plainly.p99, name=APPEND),
        ratio(least, plainly, worst),
    )
    yield Line(
        "durable commit, median",
        Figure(ours.median),
        Figure(least.median, name=STRAIGHT),
        ratio(ours, least),
    )
    yield Line(
        "durable commit, 10th percentile",
        Figure(ours.p10),
        Figure(plainly.p10, name=APPEND),
        ratio(ours, plainly, undisturbed),
        note="the disk undisturbed; where the median of the plain append is several times this, "
        "neighbours keep the disk busy, and the ratio of medians flatters",
    )
    yield Line(
        "durable commit, median",
        Figure(ours.median),
        Figure(inserted.median, name=INSERT),
        ratio(ours, inserted),
    )
    yield Line(
        "durable commit, p99",
        Figure(ours.p99),
        Figure(inserted.p99, name=INSERT),
        ratio(ours, inserted, worst),
    )
