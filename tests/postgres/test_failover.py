"""A primary that is gone for good, and a standby that takes its place while agents run."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

import perdure
from perdure.errors import Corrupt, NotFound, StoreUnavailable
from perdure.replication import DivergedError, following, promote
from perdure.testing.pen import Pen
from tests.chaos.processes import Site
from tests.postgres.conftest import Open
from tests.postgres.crew import Crew
from tests.postgres.server import LOOKS_S, USER, Server, programs
from tests.postgres.test_outages import Writers
from tests.state.copies import waits

SETTINGS = {"wal_level": "replica", "hot_standby": "on", "max_wal_senders": "4"}


def add(number: int, draft: dict[str, int]) -> None:
    draft["n"] += number


class Pair:
    """A primary, and a standby that follows it."""

    def __init__(self) -> None:
        self.one = Server(SETTINGS).start()
        self.other = self.one.standby("other").start()

    def url(self, **options: object) -> str:
        """Of a new store, on whichever of the two can be written to."""
        hosts = f"127.0.0.1:{self.one.port},127.0.0.1:{self.other.port}"
        return self.one.new_url(**options).replace(f"127.0.0.1:{self.one.port}", hosts)

    def be_synchronous(self) -> None:
        self.one.sql("ALTER SYSTEM SET synchronous_standby_names = 'other'")
        self.one.sql("SELECT pg_reload_conf()")
        while self.one.sql("SELECT sync_state FROM pg_stat_replication") != [("sync",)]:
            time.sleep(LOOKS_S)

    def catch_up(self) -> None:
        """Until the standby has all that the primary has."""
        (end,) = self.one.sql("SELECT pg_current_wal_lsn()::text")[0]
        while self.other.sql("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", end) != [(True,)]:
            time.sleep(LOOKS_S)

    def part(self) -> None:
        """From now on the standby hears nothing."""
        self.other.sql("ALTER SYSTEM SET primary_conninfo = ''")
        self.other.sql("SELECT pg_reload_conf()")
        while self.one.sql("SELECT 1 FROM pg_stat_replication"):
            time.sleep(LOOKS_S)

    def fail_over(self) -> None:
        self.one.crash()
        self.other.promote()

    def remove(self) -> None:
        self.other.remove()
        self.one.remove()


@pytest.fixture(name="pair")
def pair_of_servers() -> Iterator[Pair]:
    if not (programs() / "pg_basebackup").exists():
        pytest.skip("these programs of PostgreSQL have no pg_basebackup")
    made = Pair()
    yield made
    made.remove()


def test_agents_follow_to_a_synchronous_standby(pair: Pair, tmp_path: Path) -> None:
    """Workers, whoever answers, and writers at once: nothing acknowledged is lost, no run is left
    behind, and no tool is called twice."""
    url = pair.url(retry=60)
    pair.be_synchronous()
    crew = Crew(Site(tmp_path, 1, 2, "sync", 2.0, url))
    writers = Writers(url, 4)
    try:
        for part in ("work", "work", "care"):
            crew.hire(part)
        crew.await_effects(6)
        writers.go_on()
        pair.fail_over()
        writers.go_on()
        crew.finish()
    finally:
        writers.stop()
        crew.end()
    assert writers.problems == []
    with perdure.open(url) as store:
        for which, number in enumerate(writers.acknowledged):
            agent = store.agent(f"writer-{which}")
            assert (agent.state["n"], agent.seq) == (number, number + 1)
            agent.verify()


def test_a_standby_is_verified(pair: Pair) -> None:
    """Whoever wanted to prove it before its promotion was told that the database refused: a table
    that is not logged cannot be read there."""
    url = pair.url()
    with perdure.open(url) as store:
        store.agent("ticket", initial={"n": 0}).checkpoint("begin")
    pair.catch_up()
    there = f"127.0.0.1:{pair.other.port}"
    only = url.replace(f"127.0.0.1:{pair.one.port},{there}", there)
    with perdure.open(only + "&target_session_attrs=any") as store:
        store.check_pages()
        assert store.agent("ticket").verify().commits == 2


@pytest.mark.parametrize("said", ["notice", "error"])
def test_i1_a_commit_on_the_primary_alone_is_made_once_after_a_failover(
    pair: Pair, said: str
) -> None:
    """Its standby was gone: cancelled, COMMIT said success, and a warning, on the primary alone.
    Had that been acknowledged, it would have been lost now. It was unknown, and its key tells. For
    a role that was sent no warnings, it was a success."""
    pair.one.sql(f"ALTER ROLE {USER} SET client_min_messages = {said}")
    with perdure.open(pair.url(retry=60, deadline=2)) as store:
        agent = store.agent("ticket", initial={"n": 0})
        agent.update(partial(add, 1), key="first")
        pair.be_synchronous()
        pair.other.stop()
        with pytest.raises(StoreUnavailable, match="primary only") as caught:
            agent.update(partial(add, 10), key="second")
        assert caught.value.outcome == "unknown"
        pair.one.crash()
        pair.other.start().promote()
        for _ in range(2):
            agent.update(partial(add, 10), key="second")
        assert store.agent("ticket").state == {"n": 11}
        assert [commit.cause.key for commit in agent.log()][-2:] == ["first", "second"]
        agent.verify()


def test_i1_what_an_asynchronous_standby_lacks_is_said(pair: Pair, open_store: Open) -> None:
    """The standby was promoted without the last commits. Whoever knew them went on at an older
    state, and said nothing; or was told of a conflict, which it was not."""
    url = pair.url(retry=60)
    backend = open_store(url)
    reader = open_store(url)
    pens = [Pen(backend, name) for name in ("kept", "short", "leased")]
    for pen in pens:
        pen.write()
    kept, short, leased = pens
    pair.catch_up()
    pair.part()
    short.write()
    short.write()
    assert len(reader.read(short.number(), 1, 9)) == 3
    lease = backend.lease(leased.number(), "main", "me")
    late = Pen(backend, "late")
    late.write()
    numbers = {pen.agent: pen.number() for pen in (*pens, late)}
    pair.fail_over()

    kept.write()  # nothing of it is lost: it goes on
    (outcome,) = backend.append([short.make()[0]])
    assert isinstance(outcome, Corrupt), outcome
    words = f"{outcome} {outcome.hint}"
    assert "'short'" in words and "commit 3" in words and "ends at commit 1" in words
    assert "asynchronous standby" in words
    for store in (backend, reader):
        with pytest.raises(Corrupt, match="knows commit 3"):
            store.read(numbers["short"], 1, 9)
    (outcome,) = backend.append([leased.make(epoch=lease.epoch)[0]])
    assert isinstance(outcome, Corrupt), outcome
    assert "epoch 1" in str(outcome) and "'leased'" in str(outcome)
    with pytest.raises(Corrupt, match="has none of it"):
        backend.read(numbers["late"], 1, 9)

    # In one batch with others they do no harm.
    outcomes = backend.append([kept.make()[0], short.make()[0]])
    assert [type(one).__name__ for one in outcomes] == ["Appended", "LostCommitsError"]
    # Who knows nothing of it, sees the log as it is.
    fresh = open_store(url)
    assert len(fresh.read(numbers["short"], 1, 9)) == 1


def test_i1_a_copy_hears_that_a_standby_lacks_its_last_message(pair: Pair, tmp_path: Path) -> None:
    """Its transactions counted on from where the standby was, and soon past the one of that
    message. The copy was up to date, and never got what was sent in between; its promotion, with
    the source at hand, said that nothing was lost."""
    url, copied = pair.url(retry=60), tmp_path / "copy.db"

    def other_transactions(number: int) -> None:
        with psycopg.connect(pair.other.own_url, autocommit=True) as program:
            for _ in range(number):
                program.execute("SELECT pg_current_xact_id()")

    with perdure.open(url) as store:
        handle = store.start(waits, "ticket", 2)
        handle.signal("word", "known")
        pair.catch_up()
        pair.part()
        handle.signal("word", "lost")
    with following(url, copied) as follower:
        follower.drain()
    pair.fail_over()
    with perdure.open(url) as store:
        store.handle(handle.id).signal("word", "new", key="new")
    other_transactions(100)
    with pytest.raises(NotFound, match="restored from an older copy") as said:
        promote(copied)
    assert "--resync" in said.value.hint
    with (
        pytest.raises(DivergedError, match=r"'word'.*is not at all"),
        following(url, copied, resync=True),
    ):
        pass


def test_i1_an_agents_handle_says_what_its_server_lost(pair: Pair) -> None:
    """It was told of a conflict with nobody; looked again, it had an older state than before."""
    with perdure.open(pair.url(retry=60)) as store:
        agent = store.agent("ticket", initial={"n": 0})
        agent.update(lambda draft: draft.update(n=1))
        pair.catch_up()
        pair.part()
        agent.update(lambda draft: draft.update(n=2))
        pair.fail_over()
        with pytest.raises(Corrupt, match=r"'ticket'.*knows commit 3.*ends at commit 2"):
            agent.update(lambda draft: draft.update(n=3))
        with pytest.raises(Corrupt, match="knows commit 3"):
            agent.refresh()
        with pytest.raises(Corrupt, match="knows commit 3"):
            store.agent("ticket").state
        assert agent.state == {"n": 2}  # as last read


def test_i1_an_old_primary_that_comes_back_is_found_out(pair: Pair, open_store: Open) -> None:
    """It was down while its standby took over; back, it was the first host of the URL again, could
    be written to, and knew nothing of what had been acknowledged meanwhile."""
    url = pair.url(retry=60)
    pen = Pen(open_store(url))
    pen.write()
    number = pen.number()
    pair.catch_up()
    pair.fail_over()
    pen.write()
    pair.one.start()
    pair.other.stop(signal.SIGQUIT)
    (outcome,) = pen.backend.append([pen.make()[0]])
    assert isinstance(outcome, Corrupt), outcome
    assert "knows commit 2" in str(outcome)
    assert len(open_store(url).read(number, 1, 9)) == 1


def test_i2_nothing_is_made_on_a_commit_that_its_server_lost(pair: Pair) -> None:
    """At `group` a server may lose what was acknowledged last. Another process then wrote under the
    same number, and an open handle took it for its own: its block saw a bill as paid, and the log
    never said so; an item that was lost made the log unreadable, for everybody and for good."""
    url, names = pair.url(retry=60), ("seen", "changed", "forked")
    with perdure.open(url, durability="group") as one:
        seen, changed, forked = agents = [one.agent(name) for name in names]
        for agent in agents:
            with agent.edit("first") as draft:
                draft |= {"notes": ["0"], "paid": False}
        one.flush()
        pair.catch_up()
        pair.part()
        for agent in agents:
            with agent.edit("lost") as draft:
                draft["notes"] += ["1", "2", "3"]
                draft["paid"] = True
        pair.fail_over()
        with perdure.open(url, durability="group") as two:
            for name in names:
                with two.agent(name).edit("of process 2") as draft:
                    draft["seen"] = True
            aside = two.agent("forked").fork("aside")
            lost = "commit 3 that is not in the log"
            with pytest.raises(Corrupt, match=lost), seen.edit("") as draft:
                draft["notes"].append("4")
            with pytest.raises(Corrupt, match=lost), changed.edit("") as draft:
                draft["notes"][3] = "three"
            with pytest.raises(Corrupt, match=lost), forked.edit("") as draft:
                draft["notes"].append("4")
            for _ in range(2):  # the next one goes on with the log as it is
                for agent in agents:
                    with agent.edit("goes on") as draft:
                        draft["notes"].append("4")
                with aside.edit("another branch's, in between") as draft:
                    draft["notes"].append("5")
    with perdure.open(url) as fresh:
        for name in names:
            agent = fresh.agent(name)
            assert agent.state == {"notes": ["0", "4", "4"], "paid": False, "seen": True}
            agent.verify()


def test_i2_the_number_of_a_lost_agent_is_another_ones(pair: Pair) -> None:
    """Numbers are given out again where a server lost agents. An open handle of a lost one wrote to
    the log of whoever had its number, and that one's owner, who had lost nothing, found it
    corrupt."""
    url = pair.url(retry=60)
    with perdure.open(url, durability="group") as one:
        one.agent("kept").edit("")
        pair.catch_up()
        pair.part()
        early = [one.agent(f"early-{n}", initial={"n": 0}) for n in range(40)]
        for agent in early:
            agent.update(partial(add, 1))
        pair.fail_over()
        with perdure.open(url, durability="group") as two:
            for n in range(40):
                two.agent(f"late-{n}", initial={"n": 0}).update(partial(add, 5))
        refused = 0
        for agent in early:
            try:
                agent.update(partial(add, 1))
            except Corrupt:
                refused += 1
        assert refused
    with perdure.open(url) as fresh:
        for n in range(40):
            agent = fresh.agent(f"late-{n}")
            assert agent.verify().commits == 2
            assert agent.state == {"n": 5}
