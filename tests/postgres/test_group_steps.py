"""Steps that do not wait for the server's disk, and a server that crashes without them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure import GroupPolicy
from perdure.errors import PerdureError
from tests.postgres.server import Server
from tests.postgres.test_outages import DURABLE, restart

LATE = {"wal_writer_delay": "10s", "bgwriter_delay": "10s", "autovacuum": "off"}
NEVER = GroupPolicy(1_000_000, timedelta(days=365))


@pytest.fixture(scope="module")
def one_server() -> Iterator[Server]:
    server = Server(DURABLE | LATE).start()
    yield server
    server.remove()


@pytest.fixture
def server(one_server: Server) -> Server:
    """It runs, also after a test that failed while it was down."""
    if not one_server.runs:
        restart(one_server)
    return one_server


def test_steps_that_a_server_lost_are_made_again(server: Server) -> None:
    """The process lives, and knows more than its server does. It may not go on from that; nor may
    one that has only read the steps take it for a server that lost what it had promised."""
    url = server.new_url(retry=60)
    made: list[int] = []
    crashes = [True]

    @perdure.step(durability="group")
    def think(number: int) -> int:
        made.append(number)
        return number

    @perdure.tool(on_crash="fail")
    def pay(number: int) -> str:
        made.append(-number)
        return f"paid {number}"

    @perdure.agent(dict)
    def act(run: perdure.Run[dict[str, Any]]) -> str:
        with run.edit("begun") as draft:
            draft["begun"] = True
        found = sum(think(number) for number in (1, 2, 3))
        if crashes:
            crashes.clear()
            assert reader.agent("a").seq >= 5  # it has seen them
            server.crash()
            restart(server)
        return pay(found)

    with perdure.open(url, group=NEVER) as store, perdure.open(url) as reader:
        with pytest.raises(PerdureError):
            store.run(act, "a")
        assert made == [1, 2, 3], "nobody is paid by a run that knows what is lost"
        assert store.run(act, "a") == "paid 6"
        assert made[-1] == -6 and made.count(-6) == 1
        assert len(made) > 4, "the server lost nothing: what is tried here did not happen"
        assert reader.handle("a/act/main").result() == "paid 6"
        reader.agent("a").verify()


def test_what_was_synced_since_is_not_lost(server: Server) -> None:
    url = server.new_url(retry=60)
    made: list[int] = []

    @perdure.step(durability="group")
    def think(number: int) -> int:
        made.append(number)
        return number

    @perdure.tool(on_crash="retry")
    def pay(number: int) -> str:
        if made == [1]:
            server.crash()
            restart(server)
            made.append(0)
        return f"paid {number}"

    @perdure.agent(dict)
    def act(run: perdure.Run[dict[str, Any]]) -> str:
        return pay(think(1))

    with perdure.open(url, group=NEVER) as store:
        assert store.run(act, "a") == "paid 1"
    assert made == [1, 0]


@pytest.mark.parametrize("group", [GroupPolicy(1_000_000, 0.001), GroupPolicy(1, 3600)])
def test_n_and_t_hold_on_a_server_whose_own_writer_is_late(
    server: Server, group: GroupPolicy
) -> None:
    """At `group` it was the server alone that said when commits reach its disk."""
    url = server.new_url(retry=60)
    with perdure.open(url, durability="group", group=group) as store:
        writer = store._context.backend._writer  # type: ignore[attr-defined]
        edited, flushed = threading.Event(), threading.Event()
        real = writer.flush

        def flush() -> None:
            edited.wait(30)
            real()
            flushed.set()

        writer._late._flush = flush
        with store.agent("a").edit("one") as draft:
            draft["n"] = 1
        edited.set()
        assert group.every_commits == 1 or flushed.wait(30)
        server.crash()
        restart(server)
        with perdure.open(url) as after:
            assert after.agent("a").state == {"n": 1}


def test_closing_flushes(server: Server) -> None:
    url = server.new_url(retry=60)
    store = perdure.open(url, durability="group", group=NEVER)
    with store.agent("a").edit("one") as draft:
        draft["n"] = 1
    store.close()
    server.crash()
    restart(server)
    with perdure.open(url) as after:
        assert after.agent("a").state == {"n": 1}
