"""LangGraph's threads as a whole: copied, forked, listed, deleted. See `langgraph`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench.harness import interleave
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.rows.langgraph import OFFICIAL, beside
from bench.workplace import Workplace, file_bytes

if TYPE_CHECKING:
    from bench.rows.langgraph_savers import LongThread

FORK_MAX_S = 0.005
FORK_BYTES_RATIO_MAX = 1.1
LIST_TIMES_MIN = 20
DELETE_MAX_S = 0.050
REUSED_RATIO_MAX = 0.1

CHURN_RATIO_MAX = 2.0

LISTED = 50
THREADS = 3
ROUNDS = 50


@row("langgraph-fork")
def fork(workplace: Workplace) -> Iterator[Line]:
    """A LangGraph thread of 5,000 messages: copied whole, and forked at random checkpoints.

    SqliteSaver has no `copy_thread`; a fork by `put`, of one more message behind an older
    checkpoint, it has. Bytes: what the log grows by, header and payload, against those for a
    thread's first commit.
    """
    from bench.rows import langgraph_savers as lg

    size, count = workplace.sizes.langgraph_messages, workplace.sizes.langgraph_forks
    long = lg.long_thread(workplace.root, size)
    places = [1 + int(random.Random(n).random() * (size - 1)) for n in range(count + 2)]
    with lg.ours(lg.copied(workplace, long)) as saver:
        store = saver.store

        def agent_of(name: str) -> Any:
            info = store.find(name)
            assert info is not None
            return store.agent_of(info)

        agent = agent_of(lg.THREAD)
        samples = interleave(
            {
                "copy": lambda number: saver.copy_thread(lg.THREAD, f"copy-{number}"),
                "fork": lambda number: agent.fork(f"fork-{number}", at=places[number]),
            },
            count,
            turn=1,
        )
        lg.Thread(saver, lg.config("short")).grow(long.messages, 1, 1)
        saver.copy_thread("short", "copy-of-short")
        bytes_of = {
            "copy": [agent_of(name).commit(1).size for name in ("copy-0", "copy-of-short")],
            "fork": [agent.fork(f"at-{at}", at=at).commit(f"at-{at}").size for at in (size, 1)],
        }
    for name, what in (("copy", "copy_thread"), ("fork", "fork at any checkpoint")):
        yield Line(
            f"LangGraph: {what} of {size:,}, median",
            Figure(samples[name].median),
            target=Target(FORK_MAX_S, of="ours"),
            samples={name: samples[name]},
        )
        long_size, short_size = bytes_of[name]
        yield Line(
            f"LangGraph: {what}, bytes in the log",
            Figure(long_size, "B"),
            Figure(short_size, "B", "of a thread of one" if name == "copy" else "at the first"),
            long_size / short_size,
            Target(FORK_BYTES_RATIO_MAX),
        )
    yield from _put_behind_older_ones(workplace, long, places)


def _put_behind_older_ones(
    workplace: Workplace, long: LongThread, places: Sequence[int]
) -> Iterator[Line]:
    """The first checkpoint of a fork: as graphs fork, and what a copy pays when it goes on."""
    from bench.rows import langgraph_savers as lg

    made = [lg.checkpoint([*long.messages[:at], long.messages[-1]], at + 1) for at in places]
    end = lg.checkpoint([*long.messages, long.messages[0]], len(long.messages) + 1)
    with (
        lg.ours(lg.copied(workplace, long)) as mine,
        lg.official(workplace.folder() / "theirs.db") as theirs,
    ):

        def behind(saver: Any, number: int) -> None:
            at = lg.config(lg.THREAD, long.ids[places[number] - 1])
            lg.Thread(saver, at, places[number]).put(made[number])

        samples = interleave(
            {
                "ours": lambda number: behind(mine, number),
                OFFICIAL: lambda number: behind(theirs, number),
            },
            len(places) - 2,
            turn=1,
        )
        mine.copy_thread(lg.THREAD, "copy")
        before, start = mine.store.sizes(), perf_counter()
        lg.Thread(mine, lg.config("copy", long.ids[-1]), len(long.ids)).put(end)
        took, after = perf_counter() - start, mine.store.sizes()
    note = f"at 1 to {len(long.ids):,} messages, chosen at random"
    yield beside("put behind an older checkpoint", samples, note=note)
    yield Line(
        f"LangGraph: first put on a copy of {len(long.ids):,}",
        Figure(took),
        note=f"once; {Figure(after.payload_bytes - before.payload_bytes, 'B')} of payload",
    )


@row("langgraph-list")
def listing(workplace: Workplace) -> Iterator[Line]:
    """LangGraph's `list(limit=50)`, read to its end, of a thread of 1,000 messages.

    By a saver that listed it before, and by a new one, with its opening.
    """
    from bench.rows import langgraph_savers as lg

    size, count = workplace.sizes.langgraph_listed_messages, workplace.sizes.langgraph_lists
    long = lg.long_thread(workplace.root, size)
    path, other = lg.copied(workplace, long), workplace.folder() / "theirs.db"
    first = max(1, size - LISTED)
    with lg.official(other, durable=False) as saver:  # the latest ones: those that are read
        lg.Thread(saver).grow(long.messages, first, size)

    def read(saver: Any) -> None:
        found = list(saver.list(lg.config(), limit=LISTED))
        assert len(found) == min(LISTED, size)
        assert len(found[0].checkpoint["channel_values"]["messages"]) == size

    def read_anew(opened: Any) -> None:
        with opened as saver:
            read(saver)

    with lg.ours(path) as mine, lg.official(other) as theirs:
        warm = interleave(
            {"ours": lambda _: read(mine), OFFICIAL: lambda _: read(theirs)}, count, turn=1
        )
    cold = interleave(
        {
            "ours": lambda _: read_anew(lg.ours(path)),
            OFFICIAL: lambda _: read_anew(lg.official(other)),
        },
        count,
        turn=1,
    )
    what = f"list(limit={LISTED}) at {size:,} messages"
    yield beside(what, warm, Target(LIST_TIMES_MIN, at_least=True))
    yield beside(f"{what}, by a new saver", cold)


@row("langgraph-delete")
def deleting(workplace: Workplace) -> Iterator[Line]:
    """LangGraph's `delete_thread` of threads of 1,000 messages, built step by step.

    Then as much is written again: what the files grow by, of what such a thread takes. Sizes are
    those of closed files.
    """
    from bench.rows import langgraph_savers as lg

    size = workplace.sizes.langgraph_listed_messages
    long = lg.long_thread(workplace.root, size)
    folder = workplace.folder()
    path, other = folder / "ours.db", folder / "theirs.db"
    names = [f"thread-{number}" for number in range(THREADS)]
    with lg.ours(path, durable=False) as mine, lg.official(other, durable=False) as theirs:
        for name in names:
            lg.Thread(mine, lg.config(name)).grow(long.messages, 1, size)
        lg.Thread(theirs, lg.config(names[0])).grow(long.messages, 1, size)
        for name in names[1:]:
            lg.duplicate(theirs, names[0], name)
    before = file_bytes(path), file_bytes(other)
    with lg.ours(path) as mine, lg.official(other) as theirs:
        samples = interleave(
            {
                "ours": lambda number: mine.delete_thread(names[number]),
                OFFICIAL: lambda number: theirs.delete_thread(names[number]),
            },
            THREADS - 1,
            turn=1,
            warm_up=0,
        )
    with lg.ours(path, durable=False) as mine, lg.official(other, durable=False) as theirs:
        for name in names[:-1]:
            lg.Thread(mine, lg.config(f"new-{name}")).grow(long.messages, 1, size)
            lg.duplicate(theirs, names[-1], f"new-{name}")
    grown, grown_other = file_bytes(path) - before[0], file_bytes(other) - before[1]
    deleted = before[0] * (THREADS - 1) / THREADS
    what = f"delete_thread at {size:,} messages"
    yield beside(what, samples, Target(DELETE_MAX_S, of="ours"))
    yield Line(
        "LangGraph: files grow by, when as much is written again",
        Figure(max(grown, 0), "B"),
        Figure(deleted, "B", "what was deleted"),
        grown / deleted,
        Target(REUSED_RATIO_MAX),
        f"{OFFICIAL}'s grow by {Figure(max(grown_other, 0), 'B')}, and have "
        f"{Figure(before[1] + grown_other, 'B')}; ours {Figure(before[0] + grown, 'B')}",
    )


@row("langgraph-churn")
def churn(workplace: Workplace) -> Iterator[Line]:
    """LangGraph threads of 1,000 messages that come and go: each is deleted before the next begins.

    Files after fifty of them, closed, over those that one of them takes.
    """
    from bench.rows import langgraph_savers as lg

    size = workplace.sizes.langgraph_listed_messages
    long = lg.long_thread(workplace.root, size)
    path = workplace.folder() / "ours.db"
    one, kept = 0, ""
    for number in range(ROUNDS):
        with lg.ours(path, durable=False) as saver:
            lg.Thread(saver, lg.config(f"thread-{number}")).grow(long.messages, 1, size)
        one = one or file_bytes(path)
        with lg.ours(path, durable=False) as saver:
            saver.delete_thread(f"thread-{number}")
            kept = lg.kept(saver)
    found = file_bytes(path)
    yield Line(
        f"LangGraph: files after {ROUNDS} threads of {size:,}, each deleted",
        Figure(found, "B"),
        Figure(one, "B", "one thread"),
        found / one,
        Target(CHURN_RATIO_MAX),
        kept,
    )
