"""Durable execution: steps, tool calls, replay and recovery, beside DBOS on SQLite.

DBOS runs in a process and an environment of its own (see `bench/peers`), and measures its turns
itself. Where it is not set up, our figures stand alone.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import perdure
from bench.harness import Costs, Samples, interleave_turns, ratio
from bench.peers.process import NOT_SET_UP, Peer, dbos, ours
from bench.peers.serving import result
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.rows.plain import INSERT, inserting
from bench.rows.straight import (
    STRAIGHT,
    replay_in_a_straight_line,
    steps_in_a_straight_line,
)
from bench.workplace import Sizes, Workplace
from perdure import AsyncRun, AsyncStore, Run, Store

OURS, TOOLS, THREADS = "ours", "our tools", "our threads"
DBOS_WAYS = {"DBOS": (), "DBOS, WAL": ("--wal",)}
"""As shipped it keeps SQLite's rollback journal; WAL, as we use, is the faster one for it too."""

STEPS_TIMES_MIN = 15
SHARE_OF_INSERTS_MIN = 0.4
STEP_CPU_MAX_S = 250e-6
TOOLS_TIMES_MIN = 10
CONCURRENT_TIMES_MIN = 20
REPLAY_MAX_S = 0.050
REPLAY_TIMES_MIN = 50
STANDBY_MAX_S = 0.5
RESTART_MAX_S = 1.5
SIGNAL_MEDIAN_MAX_S = 0.005
SIGNAL_P99_MAX_S = 0.020
DBOS_SIGNALS = 20
LISTENING = "a/listen/main"

STANDBY_SETTLES_S = 0.5
"""A standby that was asked has found out by then that it must wait."""


class Leaving(BaseException):
    """Leaves a run in the middle, as `SystemExit` would; with the moment."""

    def __init__(self) -> None:
        super().__init__()
        self.at = time.perf_counter()


@perdure.step
def answer(number: int) -> str:
    return result(number)


@perdure.tool(on_crash="fail")
def act(number: int) -> str:
    return result(number)


@perdure.step
def leave() -> None:
    raise Leaving


@perdure.agent(dict)
def answering(run: Run[dict[str, object]], steps: int) -> int:
    return sum(len(answer(number)) for number in range(steps))


@perdure.step
async def answer_soon(number: int) -> str:
    return result(number)


@perdure.agent(dict)
async def answering_soon(run: AsyncRun[dict[str, object]], steps: int) -> int:
    total = 0
    for number in range(steps):
        total += len(await answer_soon(number))
    return total


@perdure.agent(dict)
def acting(run: Run[dict[str, object]], calls: int) -> int:
    return sum(len(act(number)) for number in range(calls))


@perdure.agent(dict)
def answering_and_leaving(run: Run[dict[str, object]], steps: int) -> None:
    for number in range(steps):
        answer(number)
    leave()


@contextmanager
def _peers(workplace: Workplace) -> Iterator[dict[str, Peer]]:
    """DBOS, each way; nothing where it is not set up."""
    with ExitStack() as stack:
        found = {}
        for name, options in DBOS_WAYS.items():
            peer = dbos(workplace.folder(), *options, bytecode=workplace.bytecode)
            if peer is not None:
                found[name] = stack.enter_context(peer)
                _ = peer.hello
        yield found


@row("steps")
def steps(workplace: Workplace) -> Iterator[Line]:
    """Durable steps with results of 500 B one after the other, and tool calls likewise.

    A turn is one run of 200 steps with its begin and end; its wall-clock and CPU time (all threads)
    per step, medians over the turns. A tool call is two commits, its intent and its outcome; DBOS
    has steps only. The INSERT is of as many bytes as a step has in our log, one per transaction, in
    this process. All with one fsync per commit or more. The straight line does to a step only what
    this format must have done to it (see `straight`): where that misses a target, the processor
    and the disk are too slow for it, and a tool call takes two of them.
    """
    sizes = workplace.sizes
    folder = workplace.folder()
    with perdure.open(folder / "ours.db") as store, _peers(workplace) as peers:
        step_turn, tool_turn = _turns_of_steps(store, sizes)
        step_turn()
        agent = store.agent("steps")
        data = os.urandom(agent.commit(agent.seq - 1).size)
        with (
            inserting(folder / "plain.db", data) as insert,
            steps_in_a_straight_line(folder / "straight.db") as straight,
        ):

            def plainly() -> int:
                for number in range(sizes.turn_steps):
                    insert(number)
                return sizes.turn_steps

            def straightly() -> int:
                for number in range(sizes.turn_steps):
                    straight(number)
                return sizes.turn_steps

            costs = interleave_turns(
                {
                    OURS: step_turn,
                    TOOLS: tool_turn,
                    INSERT: plainly,
                    STRAIGHT: straightly,
                    **{
                        name: peer.turn("steps", count=sizes.turn_steps)
                        for name, peer in peers.items()
                    },
                },
                sizes.rounds,
            )
    own, inserted = costs[OURS], costs[INSERT].wall
    yield Line(
        "durable steps, one after the other",
        Figure(1 / own.wall.median, "/s"),
        Figure(1 / inserted.median, "/s", INSERT),
        ratio(inserted, own.wall),
        Target(SHARE_OF_INSERTS_MIN, at_least=True),
        f"{len(data)} bytes in the log per step; {_absent(peers)}",
        samples={name: cost.wall for name, cost in costs.items()},
    )
    yield from _times("durable steps, one after the other", own, costs, peers, STEPS_TIMES_MIN)
    yield from _times(
        "tool calls, one after the other", costs[TOOLS], costs, peers, TOOLS_TIMES_MIN
    )
    yield from _least(costs, peers)
    for name in peers:
        theirs = costs[name].cpu
        yield Line(
            "CPU per step",
            Figure(own.cpu.median),
            Figure(theirs.median, name=name),
            ratio(own.cpu, theirs),
        )
    yield Line(
        "CPU per step",
        Figure(own.cpu.median),
        Figure(costs[INSERT].cpu.median, name=INSERT),
        ratio(own.cpu, costs[INSERT].cpu),
        Target(STEP_CPU_MAX_S, of="ours"),
        f"of a tool call: {Figure(costs[TOOLS].cpu.median)}; of a step in a straight line: "
        f"{Figure(costs[STRAIGHT].cpu.median)}",
    )


def _least(costs: dict[str, Costs], peers: dict[str, Peer]) -> Iterator[Line]:
    """How far the straight line comes."""
    least = costs[STRAIGHT].wall
    yield Line(
        "durable steps, one after the other",
        Figure(1 / costs[OURS].wall.median, "/s"),
        Figure(1 / least.median, "/s", STRAIGHT),
        ratio(least, costs[OURS].wall),
        samples={STRAIGHT: least},
    )
    for name in peers:
        theirs = costs[name].wall
        for what, commits in (("a step", 1), ("a tool call: two commits", 2)):
            yield Line(
                f"straight line of {what}",
                Figure(1 / (least.median * commits), "/s"),
                Figure(1 / theirs.median, "/s", name),
                theirs.median / least.median / commits,
            )


def _turns_of_steps(store: Store, sizes: Sizes) -> tuple[Callable[[], int], Callable[[], int]]:
    numbers = count()

    def step_turn() -> int:
        store.options(key=f"turn {next(numbers)}").run(answering, "steps", sizes.turn_steps)
        return sizes.turn_steps

    def tool_turn() -> int:
        store.options(key=f"turn {next(numbers)}").run(acting, "tools", sizes.turn_steps)
        return sizes.turn_steps

    return step_turn, tool_turn


def _absent(peers: dict[str, Peer]) -> str:
    said = (
        f"{name} {peer.hello['version']}, its SQLite {peer.hello['sqlite']} with journal_mode "
        f"{peer.hello['journal_mode']} and synchronous {peer.hello['synchronous']}"
        for name, peer in peers.items()
    )
    return "; ".join(said) or NOT_SET_UP


def _times(
    what: str, own: Costs, costs: dict[str, Costs], peers: dict[str, Peer], times_min: float
) -> Iterator[Line]:
    """How many times as many per second as each peer does."""
    rate = Figure(1 / own.wall.median, "/s")
    if not peers:
        yield Line(what, rate, note=NOT_SET_UP, samples={OURS: own.wall})
    for name in peers:
        theirs = costs[name].wall
        yield Line(
            what,
            rate,
            Figure(1 / theirs.median, "/s", name),
            ratio(theirs, own.wall),
            Target(times_min, at_least=True),
            samples={OURS: own.wall, name: theirs},
        )


@row("concurrent")
def concurrent(workplace: Workplace) -> Iterator[Line]:
    """32 runs at once on 32 agents, of 100 steps with results of 500 B each.

    A turn is all of them, from the first begin to the last end; medians per step. Ours are async
    runs of async steps in one event loop, as DBOS's are; beside them the same in threads.
    """
    sizes = workplace.sizes
    numbers = count()
    total = sizes.concurrent_runs * sizes.concurrent_steps
    with (
        asyncio.Runner() as loop,
        perdure.open(workplace.folder() / "threads.db") as store,
        _peers(workplace) as peers,
    ):
        async_store = loop.run(_open(workplace.folder() / "ours.db"))

        async def all_soon() -> None:
            options = async_store.options(key=f"turn {next(numbers)}")
            await asyncio.gather(
                *(
                    options.run(answering_soon, f"a{number}", sizes.concurrent_steps)
                    for number in range(sizes.concurrent_runs)
                )
            )

        def soon() -> int:
            loop.run(all_soon())
            return total

        def together() -> int:
            options = store.options(key=f"turn {next(numbers)}")
            threads = [
                threading.Thread(
                    target=options.run, args=(answering, f"a{number}", sizes.concurrent_steps)
                )
                for number in range(sizes.concurrent_runs)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return total

        costs = interleave_turns(
            {
                OURS: soon,
                THREADS: together,
                **{
                    name: peer.turn(
                        "concurrent", runs=sizes.concurrent_runs, count=sizes.concurrent_steps
                    )
                    for name, peer in peers.items()
                },
            },
            max(sizes.rounds // 3, 1),
        )
        loop.run(async_store.close())
    what = f"steps of {sizes.concurrent_runs} runs at once"
    yield from _times(f"{what}, async", costs[OURS], costs, peers, CONCURRENT_TIMES_MIN)
    threads = costs[THREADS].wall
    yield Line(
        f"{what}, in threads",
        Figure(1 / threads.median, "/s"),
        Figure(1 / costs[OURS].wall.median, "/s", "async"),
        ratio(costs[OURS].wall, threads),
        note=f"CPU per step: async {Figure(costs[OURS].cpu.median)}, "
        f"in threads {Figure(costs[THREADS].cpu.median)}",
    )


async def _open(path: Path) -> AsyncStore:
    return await perdure.open_async(path)


@row("signal")
def signal(workplace: Workplace) -> Iterator[Line]:
    """From the call of `signal` in one process to the moment in which the run that waits for it, in
    another process, goes on: with the signal's own commit, and the run's being loaded again. It
    waits for one signal a turn.

    DBOS's send and recv are in one process, the sends spread evenly over its polling interval.
    """
    number = workplace.sizes.signals
    own = Samples()
    folder = workplace.folder()
    with ExitStack() as stack:
        listener = stack.enter_context(ours(folder, workplace.bytecode))
        listener.ask("listen", name="a", count=number)
        store = stack.enter_context(perdure.open(folder / "ours.db"))
        for place in range(1, number + 1):
            until_waiting(store, place)
            at = time.monotonic()
            store.handle(LISTENING).signal("ping", place)
            own.values.append(float(listener.ask("woken", number=place)["at"]) - at)
        peers = stack.enter_context(_peers(workplace))
        theirs = {
            name: Samples(peer.ask("signals", count=min(number, DBOS_SIGNALS))["seconds"])
            for name, peer in peers.items()
        }
    yield Line(
        "signal to wake, median",
        Figure(own.median),
        target=Target(SIGNAL_MEDIAN_MAX_S, of="ours"),
        note="" if peers else NOT_SET_UP,
        samples={OURS: own},
    )
    yield Line(
        "signal to wake, 99th percentile",
        Figure(own.p99),
        target=Target(SIGNAL_P99_MAX_S, of="ours"),
    )
    for name, others in theirs.items():
        yield Line(
            "signal to wake, median",
            Figure(own.median),
            Figure(others.median, name=name),
            ratio(others, own),
            samples={name: others},
        )


def until_waiting(store: Store, place: int) -> None:
    """Until the run has unloaded before its signal number `place`."""
    while True:
        found = store.runs("a")
        if found and found[0].status == "waiting":
            records = store.agent("a").commit(store.agent("a").seq).records
            if any(record["t"] == "run-waiting" for record in records):
                return
        time.sleep(0.001)


@row("replay")
def replay(workplace: Workplace) -> Iterator[Line]:
    """Going over 1,000 recorded steps of 500 B when a run is taken up again, to its first new step.

    Ours from the call of `store.run`, with finding the run, taking the lease and reading the log.
    DBOS from the moment in which it calls the workflow function, which is less: a copy of a
    finished workflow that is to go on with its last step (`fork_workflow`). No process is started.
    The straight line reads and proves the same log and compares each step's arguments, no more.
    """
    number = workplace.sizes.run_steps
    samples: dict[str, Samples] = {}
    path = workplace.folder() / "ours.db"
    with perdure.open(path) as store, _peers(workplace) as peers:
        ways: dict[str, Callable[[], float]] = {
            OURS: partial(_replayed, store, number),
            STRAIGHT: partial(_straightly_replayed, path, number),
        }
        ways[OURS]()  # this time it makes the steps
        for name, peer in peers.items():
            peer.ask("keep", name="kept", count=number + 1)
            ways[name] = partial(_dbos_replayed, peer, number)
        for turn in range(workplace.sizes.rounds + 1):
            for name, take in ways.items():
                seconds = take()
                if turn:
                    samples.setdefault(name, Samples()).values.append(seconds)
    own, least = samples[OURS], samples[STRAIGHT]
    what = f"replay of {number:,} steps, median"
    yield Line(
        what,
        Figure(own.median),
        Figure(least.median, name=STRAIGHT),
        ratio(own, least),
        Target(REPLAY_MAX_S, of="ours"),
        note="" if peers else NOT_SET_UP,
        samples=samples,
    )
    for name in peers:
        yield Line(
            what,
            Figure(own.median),
            Figure(samples[name].median, name=name),
            ratio(samples[name], own),
            Target(REPLAY_TIMES_MIN, at_least=True),
            f"the straight line: {samples[name].median / least.median:.3g} x {name}",
        )


def _straightly_replayed(path: Path, number: int) -> float:
    start = time.perf_counter()
    if replay_in_a_straight_line(path, 1, "number") != number:
        raise AssertionError("the log holds other steps")
    return time.perf_counter() - start


def _replayed(store: Store, number: int) -> float:
    start = time.perf_counter()
    try:
        store.run(answering_and_leaving, "replayed", number)
    except Leaving as leaving:
        return leaving.at - start
    raise AssertionError("the run ended")


def _dbos_replayed(peer: Peer, number: int) -> float:
    return float(peer.ask("replay", name="kept", count=number + 1)["s"])


@row("kill")
def kill(workplace: Workplace) -> Iterator[Line]:
    """`kill -9` in the middle of 1,000 steps, to the moment in which the next step is called.

    The owner is killed in a step; that step is the first new one. Standby: another process of the
    same machine has made the same call and waits. Restart: a process is started right after the
    kill, as by a supervisor that notices at once; with interpreter and imports, compiled before.
    DBOS recovers in a restarted process only, which must have the same executor id.
    """
    sizes = workplace.sizes
    stop = sizes.run_steps // 2 + 1
    standby, restart = "standby", "restart"
    ways: dict[str, Callable[[], float]] = {
        standby: partial(_ours_killed, workplace, stop, warm=True),
        restart: partial(_ours_killed, workplace, stop, warm=False),
    }
    with _peers(workplace) as peers:
        for name in peers:
            ways[name] = partial(_dbos_killed, workplace, stop, DBOS_WAYS[name])
    samples = {name: Samples() for name in ways}
    for _ in range(sizes.crashes):
        for name, take in ways.items():
            samples[name].values.append(take())
    for name, what, most in (
        (standby, "warm standby", STANDBY_MAX_S),
        (restart, "restarted process", RESTART_MAX_S),
    ):
        what = f"kill -9 at step {stop - 1:,} of {sizes.run_steps:,} to the next, {what}"
        own = samples[name]
        yield Line(
            what,
            Figure(own.median),
            target=Target(most, of="ours"),
            note="" if peers else NOT_SET_UP,
            samples=samples,
        )
        for peer in peers:
            theirs = samples[peer]
            yield Line(
                what,
                Figure(own.median),
                Figure(theirs.median, name=f"{peer}, restarted"),
                ratio(theirs, own),
                samples=samples,
            )


def _ours_killed(workplace: Workplace, stop: int, *, warm: bool) -> float:
    folder, number = workplace.folder(), workplace.sizes.run_steps
    with ExitStack() as stack:
        owner = stack.enter_context(ours(folder, workplace.bytecode))
        owner.ask("stop_at", name="a", count=number, number=stop)
        heir: Peer | None = None
        if warm:
            heir = stack.enter_context(ours(folder, workplace.bytecode))
            heir.ask("go_on", name="a", count=number)
            heir.tell("first")
            time.sleep(STANDBY_SETTLES_S)
        killed = owner.kill()
        if heir is None:
            heir = stack.enter_context(ours(folder, workplace.bytecode))
            heir.tell("go_on", name="a", count=number)
            heir.tell("first")
            heir.answer()
        return since(killed, heir, stop)


def _dbos_killed(workplace: Workplace, stop: int, options: tuple[str, ...]) -> float:
    folder = workplace.folder()
    with ExitStack() as stack:
        owner = stack.enter_context(_dbos(folder, options, workplace))
        owner.ask("stop_at", name="a", count=workplace.sizes.run_steps, number=stop)
        killed = owner.kill()
        heir = stack.enter_context(_dbos(folder, options, workplace))
        heir.tell("first")
        return since(killed, heir, stop)


def _dbos(folder: Path, options: tuple[str, ...], workplace: Workplace) -> Peer:
    peer = dbos(folder, *options, bytecode=workplace.bytecode)
    assert peer is not None, NOT_SET_UP
    return peer


def since(killed: float, heir: Peer, stop: int) -> float:
    first = heir.answer()
    if first["number"] != stop:
        raise AssertionError(f"went on with step {first['number']}, not {stop}")
    return float(first["at"]) - killed
