"""Perdure on PostgreSQL, beside DBOS on the same server, and beside what the server can do.

The server is a private one with PostgreSQL's own settings: every commit waits for the disk. It
runs on this machine's processors, like all that are measured.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count

import perdure
from bench.harness import Operation, Samples, Spent, interleave, interleave_turns, ratio
from bench.peers.perdure_program import work
from bench.peers.process import NOT_SET_UP, Peer, dbos, ours
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.rows.engine import (
    DBOS_SIGNALS,
    LISTENING,
    OURS,
    answering,
    answering_soon,
    since,
    until_waiting,
)
from bench.rows.straight import STRAIGHT
from bench.rows.straight_postgres import steps_in_a_straight_line
from bench.workplace import Workplace, open_ticket
from perdure.storage.postgres.backend import PostgresBackend
from perdure.testing import run_until_waiting
from tests.postgres.server import Server

INSERT = "INSERT by psycopg"
ASLEEP = "?awake=0"
DBOS = "DBOS"
PGBENCH = "pgbench"
DURABLE = {"fsync": "on", "full_page_writes": "on"}

STEPS_TIMES_MIN = 8
SHARE_OF_INSERTS_MIN = 0.5
CONCURRENT_TIMES_MIN = 20
SHARE_OF_PGBENCH_MIN = 0.5
SIGNAL_MEDIAN_MAX_S = 0.010
TAKEOVER_MAX_S = 1.0
CLAIM_MAX_S = 0.005

PROCESSES = 4
WRITES_TIMES = 2
"""Long enough turns: so many times the commits that other rows of writers make."""

STRAIGHT_SCHEMA = "straight"
CLAIMED = 10
"""Runs that are asked for at a time, as a worker does."""


@contextmanager
def _server() -> Iterator[Server]:
    server = Server(DURABLE).start()
    try:
        yield server
    finally:
        server.remove()


@contextmanager
def _peer(server: Server, workplace: Workplace) -> Iterator[Peer | None]:
    """DBOS with a database of its own on that server; None where it is not set up."""
    name = f"dbos_{time.monotonic_ns()}"
    server.sql(f"CREATE DATABASE {name}")
    peer = dbos(workplace.folder(), server.url(database=name), bytecode=workplace.bytecode)
    if peer is None:
        yield None
        return
    with peer:
        _ = peer.hello
        yield peer


def _said(peer: Peer | None) -> str:
    if peer is None:
        return NOT_SET_UP
    hello = peer.hello
    return (
        f"DBOS {hello['version']}; PostgreSQL {hello['server_version']}, fsync {hello['fsync']}, "
        f"synchronous_commit {hello['synchronous_commit']}"
    )


@row("postgres-steps")
def steps(workplace: Workplace) -> Iterator[Line]:
    """Durable steps with results of 500 B on PostgreSQL, one after the other.

    A turn is one run of 200 steps with its begin and end. The INSERT is of as many bytes as a step
    has in our log, one row and one transaction, over the same driver. The straight line does to a
    step only what this format must have done to it (see `straight_postgres`): where that misses a
    target, the processor is too slow for its disk. The same steps on a store that never waits awake
    for an answer show what that gains and costs (decision 0028).
    """
    number, keys = workplace.sizes.turn_steps, count()
    with (
        _server() as server,
        perdure.open(server.new_url()) as store,
        perdure.open(server.new_url(awake=0)) as sleeping,
        _peer(server, workplace) as peer,
        steps_in_a_straight_line(server.url(STRAIGHT_SCHEMA), STRAIGHT_SCHEMA) as straight,
    ):

        def turn(store: perdure.Store = store) -> int:
            store.options(key=f"turn {next(keys)}").run(answering, "steps", number)
            return number

        def straightly() -> int:
            for place in range(number):
                straight(place)
            return number

        turn()
        agent = store.agent("steps")
        data = os.urandom(agent.commit(agent.seq - 1).size)
        with _inserting(server, data) as insert:

            def plainly() -> int:
                for place in range(number):
                    insert(place)
                return number

            turns: dict[str, Callable[[], int | Spent]] = {
                OURS: turn,
                ASLEEP: partial(turn, sleeping),
                INSERT: plainly,
                STRAIGHT: straightly,
            }
            if peer is not None:
                turns[DBOS] = peer.turn("steps", count=number)
            costs = interleave_turns(turns, workplace.sizes.rounds)
        said = _said(peer)
    own = costs[OURS]
    for name, target in ((INSERT, SHARE_OF_INSERTS_MIN), (DBOS, STEPS_TIMES_MIN)):
        if name in costs:
            theirs = costs[name]
            yield Line(
                "durable steps on PostgreSQL, one after the other",
                Figure(1 / own.wall.median, "/s"),
                Figure(1 / theirs.wall.median, "/s", name),
                ratio(theirs.wall, own.wall),
                Target(target, at_least=True),
                f"CPU of this process per step {Figure(own.cpu.median)}, of {name} "
                f"{Figure(theirs.cpu.median)}; {said}",
                samples={OURS: own.wall, name: theirs.wall},
            )
    asleep = costs[ASLEEP]
    yield Line(
        "such steps, waited for awake and asleep",
        Figure(1 / own.wall.median, "/s"),
        Figure(1 / asleep.wall.median, "/s", ASLEEP),
        ratio(asleep.wall, own.wall),
        None,
        f"CPU of this process per step {Figure(own.cpu.median)} and {Figure(asleep.cpu.median)}",
        samples={OURS: own.wall, ASLEEP: asleep.wall},
    )
    least, inserts = costs[STRAIGHT], costs[INSERT]
    yield Line(
        "a straight line of such steps",
        Figure(1 / least.wall.median, "/s"),
        Figure(1 / inserts.wall.median, "/s", INSERT),
        ratio(inserts.wall, least.wall),
        Target(SHARE_OF_INSERTS_MIN, at_least=True),
        f"CPU of this process per step {Figure(least.cpu.median)}",
        samples={STRAIGHT: least.wall, INSERT: inserts.wall},
    )


@contextmanager
def _inserting(server: Server, data: bytes) -> Iterator[Operation]:
    """One row per transaction."""
    import psycopg

    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE log (id bigserial PRIMARY KEY, data bytea NOT NULL)")
        yield lambda _: connection.execute("INSERT INTO log (data) VALUES (%s)", (data,))


@row("postgres-concurrent")
def concurrent(workplace: Workplace) -> Iterator[Line]:
    """32 async runs at once on 32 agents on PostgreSQL, of 100 steps with results of 500 B each."""
    sizes, keys = workplace.sizes, count()
    total = sizes.concurrent_runs * sizes.concurrent_steps
    with (
        asyncio.Runner() as loop,
        _server() as server,
        _peer(server, workplace) as peer,
    ):
        store = loop.run(perdure.open_async(server.new_url()).__aenter__())

        async def together() -> None:
            options = store.options(key=f"turn {next(keys)}")
            await asyncio.gather(
                *(
                    options.run(answering_soon, f"a{number}", sizes.concurrent_steps)
                    for number in range(sizes.concurrent_runs)
                )
            )

        def turn() -> int:
            loop.run(together())
            return total

        turns: dict[str, Callable[[], int | Spent]] = {OURS: turn}
        if peer is not None:
            turns[DBOS] = peer.turn(
                "concurrent", runs=sizes.concurrent_runs, count=sizes.concurrent_steps
            )
        costs = interleave_turns(turns, max(sizes.rounds // 3, 1))
        said = _said(peer)
        loop.run(store.close())
    own, theirs = costs[OURS].wall, costs[DBOS].wall if DBOS in costs else None
    yield Line(
        f"steps of {sizes.concurrent_runs} runs at once on PostgreSQL",
        Figure(1 / own.median, "/s"),
        Figure(1 / theirs.median, "/s", DBOS) if theirs else None,
        ratio(theirs, own) if theirs else None,
        Target(CONCURRENT_TIMES_MIN, at_least=True),
        f"CPU of this process per step {Figure(costs[OURS].cpu.median)}; {said}",
        samples={name: cost.wall for name, cost in costs.items()},
    )


@row("postgres-writers")
def writers(workplace: Workplace) -> Iterator[Line]:
    """256 agents that write, 64 in each of 4 processes: a message more in the state at each commit.

    Each has one commit under way at a time; those of a process that come at the same time share a
    transaction. The agents are open before. pgbench has as many connections as there are processors
    times 8, and writes in a transaction what a commit does: a row of as many bytes, and an agent's
    head moved on; prepared statements. All share this machine's processors with the server.
    """
    sizes = workplace.sizes
    agents, each = sizes.writers, sizes.writer_commits * WRITES_TIMES
    with ExitStack() as stack:
        server = stack.enter_context(_server())
        url = server.new_url()
        with perdure.open(url) as store:
            agent = open_ticket(store, "sample")
            size = agent.commit(agent.seq).size
        peers = [
            stack.enter_context(ours(workplace.folder(), workplace.bytecode, url))
            for _ in range(PROCESSES)
        ]
        for place, peer in enumerate(peers):
            peer.ask("prepare", name=f"writer-{place}", agents=agents)
        own, theirs, cpu = Samples(), Samples(), Samples()
        script = _pgbench(server, workplace, agents * PROCESSES, size)
        for _ in range(max(sizes.rounds // 3, 1)):
            for peer in peers:
                peer.tell("write", count=each)
            answers = [peer.answer() for peer in peers]
            spent = max(a["ended"] for a in answers) - min(a["began"] for a in answers)
            written = agents * PROCESSES * each
            own.values.append(spent / written)
            cpu.values.append(sum(a["cpu"] for a in answers) / written)
            theirs.values.append(script())
    yield Line(
        f"commits of {agents * PROCESSES} agents in {PROCESSES} processes",
        Figure(1 / own.median, "/s"),
        Figure(1 / theirs.median, "/s", PGBENCH),
        ratio(theirs, own),
        Target(SHARE_OF_PGBENCH_MIN, at_least=True),
        f"rows of {size} bytes; CPU of the four processes per commit {Figure(cpu.median)}",
        samples={OURS: own, PGBENCH: theirs},
    )


def _pgbench(server: Server, workplace: Workplace, agents: int, size: int) -> Callable[[], float]:
    server.sql("CREATE TABLE heads (agent bigint PRIMARY KEY, seq bigint NOT NULL)")
    server.sql(f"INSERT INTO heads SELECT n, 0 FROM generate_series(1, {agents}) n")
    server.sql(
        "CREATE TABLE entries (agent bigint, seq bigint, data bytea, PRIMARY KEY (agent, seq))"
    )
    script = server.folder / "commit.sql"
    script.write_text(
        f"\\set agent random(1, {agents})\n"
        "WITH head AS (UPDATE heads SET seq = seq + 1 WHERE agent = :agent RETURNING agent, seq)\n"
        "INSERT INTO entries SELECT agent, seq, "
        f"decode(repeat(md5(seq::text), {size // 16}), 'hex') FROM head;\n"
    )
    clients = 8 * (os.cpu_count() or 1)
    seconds = str(max(workplace.sizes.rounds, 1))

    def run() -> float:
        said = server.run(
            "pgbench",
            "-n",
            "-f",
            str(script),
            "-M",
            "prepared",
            "-c",
            str(clients),
            "-j",
            "2",
            "-T",
            seconds,
            "-h",
            "127.0.0.1",
            "-p",
            str(server.port),
            "-U",
            "perdure",
            "postgres",
        )
        found = re.search(r"tps = ([\d.]+)", said)
        assert found is not None, said
        return 1 / float(found.group(1))

    return run


@row("postgres-workers")
def workers(workplace: Workplace) -> Iterator[Line]:
    """Runs of one step that were asked for, by workers in 4 processes, against one such process:
    the CPU that all of them burn, idle looks and what they try in vain included."""
    runs, rounds = workplace.sizes.turn_steps, max(workplace.sizes.rounds // 3, 1)
    costs = {name: Samples() for name in ("one", "four")}
    with ExitStack() as stack:
        server = stack.enter_context(_server())
        crews = [stack.enter_context(_crew(server, workplace, number)) for number in (1, PROCESSES)]
        for place in range(rounds + 1):
            for (store, crew), samples in zip(crews, costs.values(), strict=True):
                before = sum(peer.ask("spent")["cpu"] for peer in crew)
                handles = [store.start(work, f"a-{place}-{n}", 1) for n in range(runs)]
                for handle in handles:
                    handle.result()
                spent = sum(peer.ask("spent")["cpu"] for peer in crew) - before
                if place:
                    samples.values.append(spent / runs)
    one, four = costs.values()
    yield Line(
        f"CPU of {PROCESSES} worker processes per run of one step",
        Figure(four.median),
        Figure(one.median, name="one process"),
        ratio(four, one),
        samples=costs,
    )


@contextmanager
def _crew(
    server: Server, workplace: Workplace, number: int
) -> Iterator[tuple[perdure.Store, list[Peer]]]:
    """A store in a schema of its own, and processes that work for it."""
    url = server.new_url()
    with ExitStack() as stack:
        store = stack.enter_context(perdure.open(url))
        crew = [
            stack.enter_context(ours(workplace.folder(), workplace.bytecode, url))
            for _ in range(number)
        ]
        for peer in crew:
            peer.ask("attend")
        yield store, crew


@row("postgres-signal")
def signal(workplace: Workplace) -> Iterator[Line]:
    """From the call of `signal` in one process to the moment in which the run that waits for it in
    another one goes on. DBOS's send and recv are in one process."""
    number, own = workplace.sizes.signals, Samples()
    with ExitStack() as stack:
        server = stack.enter_context(_server())
        url = server.new_url()
        listener = stack.enter_context(ours(workplace.folder(), workplace.bytecode, url))
        listener.ask("listen", name="a", count=number)
        store = stack.enter_context(perdure.open(url))
        for place in range(1, number + 1):
            until_waiting(store, place)
            at = time.monotonic()
            store.handle(LISTENING).signal("ping", place)
            own.values.append(float(listener.ask("woken", number=place)["at"]) - at)
        peer = stack.enter_context(_peer(server, workplace))
        theirs = None
        if peer is not None:
            answer = peer.ask("signals", count=min(number, DBOS_SIGNALS))
            theirs = Samples(answer["seconds"])
    yield Line(
        "signal to wake on PostgreSQL, median",
        Figure(own.median),
        Figure(theirs.median, name=DBOS) if theirs else None,
        ratio(theirs, own) if theirs else None,
        Target(SIGNAL_MEDIAN_MAX_S, of="ours"),
        f"99th percentile {Figure(own.p99)}",
        samples={OURS: own},
    )


@row("postgres-takeover")
def takeover(workplace: Workplace) -> Iterator[Line]:
    """`kill -9` of a run's owner to the moment in which a peer that stands by calls the next step:
    the server sees that the owner's connection is gone."""
    number = workplace.sizes.run_steps
    stop, own = number // 2 + 1, Samples()
    with _server() as server:
        for _ in range(workplace.sizes.crashes):
            with ExitStack() as stack:
                url = server.new_url()
                start = partial(ours, workplace.folder(), workplace.bytecode, url)
                owner = stack.enter_context(start())
                owner.ask("stop_at", name="a", count=number, number=stop)
                heir = stack.enter_context(start())
                heir.ask("go_on", name="a", count=number)
                heir.tell("first")
                time.sleep(1.0)  # it has looked, and found that it must wait
                own.values.append(since(owner.kill(), heir, stop))
    yield Line(
        "kill -9 to the next step on PostgreSQL, warm standby",
        Figure(own.median),
        target=Target(TAKEOVER_MAX_S, of="ours"),
        note=f"the slowest took {Figure(max(own.values))}",
        samples={OURS: own},
    )


@row("postgres-claim")
def claim(workplace: Workplace) -> Iterator[Line]:
    """To ask which runs somebody could go on with, of many that wait for a time that is far away,
    and to claim those few that are due. Beside it, where only those few are there."""
    many, few, due = workplace.sizes.waiting_runs, 2 * CLAIMED, CLAIMED
    with _server() as server, ExitStack() as stack:
        asking: dict[str, Operation] = {}
        for name, waiting in ((f"{few} wait", few), (f"{many:,} wait", many)):
            schema = f"waiting_{waiting}"
            _make_waiting(server, schema, waiting, due)
            backend = PostgresBackend(server.url(schema))
            stack.callback(backend.close)
            asking[name] = partial(_ask, backend, due)
        samples = interleave(asking, workplace.sizes.forks)
    small, large = samples.values()
    yield Line(
        f"find and claim {due} runs that are due among {many:,} that wait",
        Figure(large.median),
        Figure(small.median, name=f"among {few}"),
        ratio(large, small),
        Target(CLAIM_MAX_S, of="ours"),
        samples=samples,
    )


def _ask(backend: PostgresBackend, due: int, _: int) -> None:
    found = [row.id for row in backend.ready(backend.now(), due)]
    assert len(backend.claim(found, "somebody")) == due


@perdure.agent(dict)
def sleeping(run: perdure.Run[dict[str, object]]) -> None:
    run.sleep(10 * 365 * 86_400)


def _make_waiting(server: Server, schema: str, waiting: int, due: int) -> None:
    """Copies of the row of a run that sleeps: so many for years, and a few whose time has come."""
    with perdure.open(server.url(schema)) as store:
        run_until_waiting(store, sleeping, "sleeper")
    columns = [
        name
        for (name,) in server.sql(
            "SELECT column_name FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = 'runs' ORDER BY ordinal_position",
            schema,
        )
    ]
    other = {
        "id": "r.id || n",
        "place": f"nextval('{schema}.run_places')",
        "wake_at": f"CASE WHEN n <= {due} THEN 1 ELSE r.wake_at END",
    }
    server.sql(
        f"INSERT INTO {schema}.runs ({', '.join(columns)}) "
        f"SELECT {', '.join(other.get(name, f'r.{name}') for name in columns)} "
        f"FROM {schema}.runs r, generate_series(1, {waiting + due}) n"
    )
    server.sql(f"ANALYZE {schema}.runs")
