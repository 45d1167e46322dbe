"""Another server answers, and nothing says so: behind a pooler, on a session that was there before,
from tables that were put back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial

import psycopg
import pytest

import perdure
from perdure.errors import Corrupt, StoreUnavailable
from tests.postgres.bouncer import Bouncer
from tests.postgres.server import LOOKS_S, Server
from tests.postgres.test_failover import Pair, add, pair_of_servers

pair = pair_of_servers


@pytest.fixture
def alone() -> Iterator[Server]:
    made = Server().start()
    yield made
    made.remove()


def test_i1_a_pooler_leads_to_another_primary(pair: Pair) -> None:
    """The connections to a pooler survive a failover: the new primary was never asked for what was
    known, and open handles made commits on a state that it did not have."""
    bouncer = Bouncer(pair.one)
    try:
        url = pair.one.new_url(retry=60)
        with perdure.open(bouncer.url(url)) as store:
            agent = store.agent("ticket", initial={"n": 0})
            agent.update(partial(add, 1))
            pair.catch_up()
            pair.part()
            agent.update(partial(add, 1))
            pair.fail_over()
            bouncer.lead_to(pair.other)
            with perdure.open(url.replace(f":{pair.one.port}/", f":{pair.other.port}/")) as two:
                two.agent("ticket").update(partial(add, 10))
            with pytest.raises(Corrupt, match=r"knows commit 3.*another one in its place"):
                agent.update(partial(add, 1))
    finally:
        bouncer.end()


def test_i1_a_standby_is_promoted_under_a_session(pair: Pair) -> None:
    """A call in the middle of a failover came to the standby, which may be behind. Its session
    stayed, and was never asked again when that had become the primary."""
    with perdure.open(pair.url(retry=60) + "&target_session_attrs=any") as store:
        agent = store.agent("ticket", initial={"n": 0})
        agent.update(partial(add, 1))
        pair.catch_up()
        pair.part()
        agent.update(partial(add, 1))
        pair.one.crash()
        with pytest.raises(StoreUnavailable, match="read-only"):
            agent.update(partial(add, 1))
        pair.other.promote()
        with pytest.raises(Corrupt, match=r"knows commit 3.*ends at commit 2"):
            agent.update(partial(add, 1))


def test_i1_tables_are_put_back_from_a_dump(alone: Server) -> None:
    """A dump was loaded while a program ran. The server was the same, and nothing was asked."""
    url = alone.url("put_back", retry=60)
    with perdure.open(url) as store:
        agent = store.agent("ticket", initial={"n": 0})
        agent.update(partial(add, 1))
        dump = str(alone.folder / "dump")
        alone.run("pg_dump", "-d", alone.own_url, "-n", "put_back", "-f", dump)
        agent.update(partial(add, 1))
        alone.sql("DROP SCHEMA put_back CASCADE")
        alone.run("psql", "-q", "-d", alone.own_url, "-f", dump)
        alone.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        with pytest.raises(Corrupt, match=r"knows commit 3.*ends at commit 2"):
            agent.update(partial(add, 1))


def test_the_number_of_a_lost_agent_is_another_ones_by_now(pair: Pair) -> None:
    """What a server lost was known by the numbers of agents, which it gives out again: new agents
    counted as damaged, for as long as the process lived, and no conversation could begin."""
    with perdure.open(pair.url(retry=60)) as store:
        store.agent("kept", initial={"n": 0}).update(partial(add, 1))
        pair.catch_up()
        pair.part()
        for number in range(40):
            store.agent(f"lost-{number}", initial={"n": 0}).update(partial(add, 1))
        pair.fail_over()
        for number in range(40):
            agent = store.agent(f"new-{number}", initial={"n": 0})
            agent.update(partial(add, 1))
            agent.update(partial(add, 1))
            assert store.agent(f"new-{number}").state == {"n": 2}
            agent.verify()


def test_a_lock_proves_nothing_across_a_recovery(alone: Server) -> None:
    """One of the server's processes was killed, and the server recovered under the same first
    process. All locks were gone, and living executors counted as dead: tools were called twice."""
    with perdure.open(alone.url("lives")):

        def life() -> object:
            return alone.sql("SELECT lives.server_1()")

        before = life()
        assert life() == before
        with psycopg.connect(alone.own_url) as victim:
            os.kill(victim.info.backend_pid, signal.SIGKILL)
            with pytest.raises(psycopg.OperationalError):
                while True:
                    victim.execute("SELECT 1")
        while not alone.answers():
            time.sleep(LOOKS_S)
        assert life() != before
