"""LangGraph's checkpointers: ours beside LangGraph's own for SQLite, at the same durability.

Both sync at every commit, and a `put` is one. Each message has 500 B, and each step adds one.
Where the two are compared, the ratio is how many times faster ours is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from bench.harness import Samples, interleave, ratio
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.rows.straight import STRAIGHT
from bench.workplace import TEXT_SIZE, Workplace, file_bytes
from perdure.storage.sqlite.connection import connect

if TYPE_CHECKING:
    from bench.rows.langgraph_savers import LongThread

# The rows import `langgraph_savers` when they run: others do not pay for LangGraph's modules.

OFFICIAL = "SqliteSaver"

PUT_MAX_S = 0.002
PUT_TIMES_MIN = 40
SIZE_RATIO_MAX = 2.0
GET_MAX_S = 0.030

WARM_UP = 2


def beside(
    what: str, samples: Mapping[str, Samples], target: Target | None = None, note: str = ""
) -> Line:
    """Ours and LangGraph's, median; the ratio is theirs over ours."""
    return Line(
        f"LangGraph: {what}, median",
        Figure(samples["ours"].median),
        Figure(samples[OFFICIAL].median, name=OFFICIAL),
        ratio(samples[OFFICIAL], samples["ours"]),
        target,
        note,
        samples,
    )


@row("langgraph-put")
def put(workplace: Workplace) -> Iterator[Line]:
    """LangGraph's `put` of a checkpoint with one more message, in a thread of 5,000.

    Ours was built step by step; SqliteSaver's thread is the latest checkpoint alone, as it writes
    all of the state at each step whatever came before. The checkpoints are made before. The third
    line has the straight line: what every saver that writes such a log in Python must do.
    """
    from bench.rows import langgraph_savers as lg
    from bench.rows.langgraph_straight_put import puts_in_a_straight_line

    size, count = workplace.sizes.langgraph_messages, workplace.sizes.langgraph_puts
    long = lg.long_thread(workplace.root, size)
    messages = [*long.messages, *lg.spoken(count + 2, seed=12)]
    folder = workplace.folder()
    line = lg.copied(workplace, long)
    with (
        lg.ours(lg.copied(workplace, long)) as mine,
        lg.official(folder / "theirs.db") as theirs,
        puts_in_a_straight_line(line, long.messages) as least,
    ):
        own, other = (
            lg.Thread(mine, lg.config(lg.THREAD, long.ids[-1]), size),
            lg.Thread(theirs, step=size - 1),
        )
        other.put(lg.checkpoint(messages[:size], size))
        made = [
            lg.checkpoint(messages[:total], total) for total in range(size + 1, size + count + 3)
        ]
        samples = interleave(
            {
                "ours": lambda number: own.put(made[number]),
                OFFICIAL: lambda number: other.put(made[number]),
                STRAIGHT: lambda number: least(made[number]),
            },
            count,
            turn=5,
        )
        note = lg.durability_of(theirs)
    what = f"put at {size:,} messages"
    yield beside(what, samples, Target(PUT_TIMES_MIN, at_least=True), note)
    yield beside(what, samples, Target(PUT_MAX_S, of="ours"))
    straight = samples[STRAIGHT]
    yield Line(
        f"LangGraph: {what}, median",
        Figure(samples["ours"].median),
        Figure(straight.median, name=STRAIGHT),
        ratio(samples["ours"], straight),
        note=f"{OFFICIAL} takes {ratio(samples[OFFICIAL], straight).value:.1f} times the straight "
        "line: no saver of such a log in Python is more times faster",
        samples=samples,
    )


@row("langgraph-size")
def size(workplace: Workplace) -> Iterator[Line]:
    """Files after 5,000 steps that add one message each, closed, over the raw text.

    SqliteSaver's are measured after three smaller numbers of steps, n, and extrapolated by
    a·n² + b·n through the first and the last; the second says how well that fits. The second line
    has what a graph stores besides: what each step's task wrote.
    """
    from bench.rows import langgraph_savers as lg

    steps = workplace.sizes.langgraph_messages
    long = lg.long_thread(workplace.root, steps)
    text = steps * TEXT_SIZE
    points = workplace.sizes.langgraph_size_steps
    seen = _grown(workplace.folder() / "theirs.db", points, long)
    guess = _through(points, seen)
    sizes = ", ".join(
        f"{Figure(found, 'B')} after {count}" for count, found in zip(points, seen, strict=True)
    )
    off = guess(points[1]) / seen[1] - 1
    yield Line(
        f"LangGraph: files after {steps:,} steps",
        Figure(long.bytes, "B"),
        Figure(text, "B", "raw text"),
        long.bytes / text,
        Target(SIZE_RATIO_MAX),
        f"{long.kept}; {OFFICIAL} by extrapolation {Figure(guess(steps), 'B')}, "
        f"{guess(steps) / text:,.0f} times the raw text; it has {sizes}, and the curve is "
        f"{off:+.1%} off at the second",
    )
    path = workplace.folder() / "ours.db"
    with lg.ours(path, durable=False) as saver:
        lg.Thread(saver).grow_by_tasks(long.messages)
        kept = lg.kept(saver)
    found = file_bytes(path)
    yield Line(
        f"LangGraph: files after {steps:,} steps and their tasks' writes",
        Figure(found, "B"),
        Figure(text, "B", "raw text"),
        found / text,
        note=kept,
    )


def _grown(path: Path, points: Sequence[int], long: LongThread) -> list[int]:
    """The size of SqliteSaver's files after so many steps, closed each time."""
    from bench.rows import langgraph_savers as lg

    sizes, at, done = [], lg.config(), 0
    for count in points:
        with lg.official(path, durable=False) as saver:
            thread = lg.Thread(saver, at, done)
            thread.grow(long.messages, done + 1, count)
            at, done = thread.at, count
        sizes.append(file_bytes(path))
    return sizes


def _through(points: Sequence[int], sizes: Sequence[int]) -> Callable[[int], float]:
    """a·n² + b·n through the first and the last point."""
    first, last = points[0], points[-1]
    square = (sizes[-1] / last - sizes[0] / first) / (last - first)
    straight = sizes[0] / first - square * first
    return lambda count: square * count**2 + straight * count


@row("langgraph-get")
def get(workplace: Workplace) -> Iterator[Line]:
    """LangGraph's `get_tuple` of the latest checkpoint, at 5,000 messages, by a new saver.

    Files are in the page cache, modules imported. The second line counts the opening, too; the
    third has the straight line: what every reader of our file in Python must do.
    """
    from bench.rows import langgraph_savers as lg
    from bench.rows.langgraph_straight import read_in_a_straight_line

    size = workplace.sizes.langgraph_messages
    long = lg.long_thread(workplace.root, size)
    path, other = lg.copied(workplace, long), workplace.folder() / "theirs.db"
    with lg.official(other) as saver:
        lg.Thread(saver).put(lg.checkpoint(long.messages, size))
    reading: dict[str, Samples] = {"ours": Samples(), OFFICIAL: Samples(), STRAIGHT: Samples()}
    with ExitStack() as opened:

        def straight() -> None:
            database = connect(str(path), synchronous="FULL", create=False)
            start = perf_counter()
            found = read_in_a_straight_line(database)
            reading[STRAIGHT].values.append(perf_counter() - start)
            database.close()
            assert found == long.messages

        def read(name: str) -> None:
            saver = opened.enter_context(lg.ours(path) if name == "ours" else lg.official(other))
            start = perf_counter()
            found = saver.get_tuple(lg.config())
            reading[name].values.append(perf_counter() - start)
            assert found is not None
            assert len(found.checkpoint["channel_values"]["messages"]) == size

        whole = interleave(
            {
                "ours": lambda _: read("ours"),
                OFFICIAL: lambda _: read(OFFICIAL),
                STRAIGHT: lambda _: straight(),
            },
            workplace.sizes.langgraph_reads,
            turn=1,
            warm_up=WARM_UP,
        )
    for samples in reading.values():
        del samples.values[:WARM_UP]
    target = Target(GET_MAX_S, of="ours")
    yield beside(f"get_tuple at {size:,} messages", reading, target)
    yield beside(f"opening and get_tuple at {size:,} messages", whole)
    ours, least = reading["ours"], reading[STRAIGHT]
    yield Line(
        f"LangGraph: get_tuple at {size:,} messages, median",
        Figure(ours.median),
        Figure(least.median, name=STRAIGHT),
        ratio(ours, least),
        note="no reader of this format in Python is below it",
        samples=reading,
    )
