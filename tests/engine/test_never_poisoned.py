"""One wrong argument, taken and written, made an agent `Corrupt` for everybody, for good."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure.core.arguments.bounds import KEY_BYTES_MAX, NAME_MAX, RUN_ID_BYTES_MAX
from perdure.core.format import chain
from perdure.core.values import ops
from perdure.model import Cause, RunInfo
from perdure.storage.appending import Riders
from perdure.storage.log.proposals import Proposal
from perdure.store import Store
from tests.engine.conftest import Place

Asked = Callable[[Any], Any]

IN_A_RUN: dict[str, Asked] = {
    "a question that is a dict": lambda run: run.ask({"text": "ok?"}),
    "a signal's name that is a number": lambda run: run.wait_for(4711),
    "a signal without a name": lambda run: run.select(it=perdure.Signal(None)),  # type: ignore[arg-type]
    "a fraction that is a flag": lambda run: run.progress("x", True),
    "a text that is a number": lambda run: run.progress(5),
    "a time that never comes": lambda run: run.sleep(timedelta.max),
    "a time that is no number": lambda run: run.sleep(float("nan")),
    "a time far in the past": lambda run: run.sleep(timedelta.min),
    "a timeout too far away": lambda run: run.wait_for("x", timeout=1e13),
    "a child's queue without a name": lambda run: run.options(queue=""),
    "a flag that is a word": lambda run: run.options(let_live="no"),
    "a patch without a name": lambda run: run.patched(None),
    "an edit's words that are a number": lambda run: run.edit(7).__enter__(),
}


@pytest.mark.parametrize("what", IN_A_RUN)
def test_a_wrong_argument_in_a_run_is_refused_where_it_is_given(place: Place, what: str) -> None:
    """`run.ask({"text": …})` and its like were taken and recorded; then the state, edit, rollback,
    verify and cancel said `Corrupt` for ever."""

    @perdure.agent(dict)
    def act(run: perdure.Run[dict[str, Any]]) -> str:
        with pytest.raises((TypeError, ValueError)):
            IN_A_RUN[what](run)
        return "went on"

    store = place.open()
    assert store.run(act, "a") == "went on"
    _all_is_well(place)


ON_A_STORE: dict[str, Asked] = {
    "tags with None": lambda store: store.agent("a").edit("x", tags=[None]),
    "words that are a number": lambda store: store.agent("a").edit(5),
    "a key with a NUL": lambda store: store.agent("a").edit("x", key="a\0b"),
    "a group that is a list": lambda store: store.agent("a").edit("x", group=["g"]),
    "too many tags": lambda store: store.agent("a").edit("x", tags=["t"] * 1001),
    "no queue": lambda store: store.options(queue=""),
    "a queue of 3,000 characters": lambda store: store.options(queue="q" * 3000),
    "a deadline in the past": lambda store: store.options(deadline=timedelta(days=-1)),
    "a deadline at the end of time": lambda store: store.options(deadline=timedelta.max),
    "a deadline of 1e13 seconds": lambda store: store.options(deadline=1e13),
    "a deadline that is a flag": lambda store: store.options(deadline=True),
    "a version that is a flag": lambda _: perdure.agent(dict, version=True),  # type: ignore[call-overload]
    "a name of a step that is a number": lambda _: perdure.step(name=5),  # type: ignore[call-overload]
}


@pytest.mark.parametrize("what", ON_A_STORE)
def test_a_wrong_argument_on_a_store_is_refused_where_it_is_given(place: Place, what: str) -> None:
    """`edit(tags=[None])`, a deadline in the past, `queue=""` and `version=True` were written."""
    store = place.open()
    agent = store.agent("a", initial={"n": 0})
    with agent.edit("it") as draft:
        draft["n"] = 1
    with pytest.raises((TypeError, ValueError)):
        ON_A_STORE[what](store)
    assert store.agent("a").seq == agent.seq
    _all_is_well(place)


def _all_is_well(place: Place) -> None:
    with place.open() as store:
        agent = store.agent("a")
        with agent.edit("goes on") as draft:
            draft["went on"] = True
        agent.rollback(1)
        assert agent.verify().commits == agent.seq
        for run in store.runs():
            store.handle(run.id).report()


def test_whatever_comes_so_far_is_checked_by_those_who_read_it(store: Store) -> None:
    """Arguments are checked where they come in; what slips through there is found by the types
    that check it on reading, before anything is written."""
    agent = store.agent("a", initial={"n": 0})
    with agent.edit("it") as draft:
        draft["n"] = 1
    wrong: list[Any] = [{"t": "wait-began", "place": "ask#1", "branches": [], "question": {"a": 1}}]
    with pytest.raises(perdure.Unstorable, match="wait-began"):
        chain.pack_payload([], wrong)
    payload = chain.pack_payload([ops.Set((), {"n": 2})], ())
    cause: Any = Cause("edit", tags=(None,))  # type: ignore[arg-type]
    info = store.find("a")
    assert info is not None
    context = store._context
    proposal = Proposal(
        chain.Draft("a", 1, "main", (info.seq,), "dict", (1, 0), "x", 0, cause, payload),
        no=info.no,
        expected=info.seq,
    )
    with pytest.raises(perdure.Unstorable, match="header"):
        context.committer.submit(proposal)
    row = RunInfo("a/f/main", "a", 0, "main", "f", "main", "running", 1, queue=5)  # type: ignore[arg-type]
    riders = Riders(runs=[row])
    right = chain.Draft("a", 1, "main", (info.seq,), "dict", (1, 0), "x", 0, Cause("edit"), payload)
    with pytest.raises(perdure.Unstorable, match="queue"):
        context.committer.submit(Proposal(right, info.no, info.seq, riders))
    assert store.agent("a").seq == info.seq
    assert store.agent("a").verify().commits == info.seq


def test_what_is_as_long_as_it_may_be_is_taken_everywhere(store: Store) -> None:
    """A key of 3,000 bytes was fine in SQLite, and in PostgreSQL the store was "unavailable": make
    the call again. And the SQLite store that had it could not be migrated."""
    wide = "\U0001f600"
    agent = store.agent(wide * NAME_MAX, initial={"n": 0})
    for n, key in enumerate(("k" * KEY_BYTES_MAX, "k" * 9_999, wide * 2_000)):
        for _ in range(2):  # the same key never takes effect twice, however long it is
            agent.update(lambda draft: draft.__setitem__("n", draft["n"] + 1), "it", key=key)
        assert agent.state["n"] == n + 1
        assert agent.commit(agent.seq).cause.key == key
    agent.checkpoint(wide * NAME_MAX)
    agent.fork("x" * NAME_MAX)
    agent.verify()

    @perdure.agent(dict, name="f" * NAME_MAX)
    def act(run: perdure.Run[dict[str, Any]]) -> int:
        return 1

    key = "k" * (RUN_ID_BYTES_MAX - 2 * NAME_MAX - 2)
    assert len(key) > NAME_MAX
    key = key[:NAME_MAX]
    handle = store.options(key=key, queue=wide * NAME_MAX).start(act, "a" * NAME_MAX)
    assert handle.signal(wide * NAME_MAX, key="s" * 5_000)
    assert not handle.signal(wide * NAME_MAX, key="s" * 5_000)
    with pytest.raises(ValueError, match="700 bytes"):
        store.options(key=wide * NAME_MAX).start(act, "a" * NAME_MAX)
