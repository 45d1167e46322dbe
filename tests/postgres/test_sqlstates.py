"""Each error that a server can give to a commit becomes one of the tree, and what it says is so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

import perdure
from perdure.store import Store
from tests.errnos.injecting import is_documented
from tests.postgres.server import Server

MOMENTS = {
    "statement": "CREATE TRIGGER failing BEFORE INSERT ON {schema}.commits "
    "FOR EACH ROW EXECUTE FUNCTION {schema}.fail()",
    "commit": "CREATE CONSTRAINT TRIGGER failing AFTER INSERT ON {schema}.commits "
    "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.fail()",
}
FAIL = """
CREATE OR REPLACE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'so it was told' USING ERRCODE = '{state}'; END $$
"""

ALL = sorted(
    state
    for state in errors._sqlcodes
    if state[:2] not in ("00", "01", "02", "03")  # success, warnings, and none that is raised
)
TELLING = ("08", "23", "25", "40", "53", "55", "57", "58", "XX")
"""Classes of what is wrong with the server or the moment, not with the statement."""

STATES = [state for at, state in enumerate(ALL) if state[:2] in TELLING or at % 8 == 0]


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with perdure.open(f"{url}&deadline=0.3") as store:
        yield store


@pytest.mark.parametrize("moment", MOMENTS)
def test_i1_each_sqlstate_of_a_commit_becomes_one_of_ours(
    server: Server, url: str, store: Store, moment: str
) -> None:
    schema = url.partition("schema=")[2].partition("&")[0]
    agent: Any = store.agent("a")
    agent.save({"n": -1}, "begin")
    with psycopg.connect(server.own_url, autocommit=True) as by_hand:
        for number, state in enumerate(STATES):
            by_hand.execute(FAIL.format(schema=schema, state=state).encode())
            by_hand.execute(MOMENTS[moment].format(schema=schema).encode())
            with pytest.raises(Exception) as caught:  # noqa: PT011 - looked at below
                agent.save({"n": number}, state)
            assert is_documented(caught.value), (state, repr(caught.value))
            by_hand.execute(f"DROP TRIGGER failing ON {schema}.commits".encode())
            assert store.agent("a").state == {"n": -1}, state
    agent.verify()
    agent.save({"n": 0}, "it goes on")
