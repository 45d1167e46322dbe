"""`Agent.follow`, by which the store's index keeps in step with the log."""

import asyncio
import sys

import pytest

import perdure


@pytest.fixture
def store():
    with perdure.open("memory://") as opened:
        yield opened


def test_follow_applies_what_others_committed_to_the_same_object(store):
    initial = {"n": 0, "list": [1]}
    mine, theirs = store.agent("a", initial=initial), store.agent("a", initial=initial)
    assert mine.follow() is None and mine.state == {"n": 0, "list": [1]}
    theirs.update(lambda draft: draft.update(n=1), "one")
    assert mine.follow() is None  # created since: read anew
    state = mine.state
    theirs.update(lambda draft: draft["list"].append(2), "two")
    theirs.undo()
    theirs.update(lambda draft: draft.pop("n"), "three")
    newer = mine.follow()
    assert newer is not None and [commit.cause.kind for commit in newer] == ["edit", "undo", "edit"]
    assert mine.state is state and state == {"list": [1]} == theirs.state
    assert mine.follow() == [] and mine.seq == theirs.seq and mine.drift() == []
    mine.update(lambda draft: draft["list"].append(3), "four")
    assert theirs.refresh() == {"list": [1, 3]}


def test_follow_reads_anew_after_a_move_or_far_behind(store, monkeypatch):
    mine, theirs = store.agent("a", initial={"n": 0}), store.agent("a", initial={"n": 0})
    for number in range(1, 4):
        theirs.update(lambda draft, number=number: draft.update(n=number), f"{number}")
    mine.refresh()
    theirs.rollback(2)
    assert mine.follow() is None and mine.state == {"n": 1}
    monkeypatch.setattr(sys.modules["perdure.state.others_commits"], "FOLLOW_MAX", 2)
    for number in range(4):
        theirs.update(lambda draft, number=number: draft.update(x=number), f"{number}")
    assert mine.follow() is None and mine.state == theirs.state


def test_follow_is_refused_where_it_cannot_be(store):
    mine = store.agent("a", initial={"n": 0})
    with pytest.raises(perdure.Conflict, match="open edit"), mine.edit("x") as draft:
        draft["n"] = 1
        mine.follow()
    with mine.edit("x") as draft:
        draft["n"] = 1
    fork = mine.fork("b")
    assert fork.state == {"n": 1}
    mine.delete_branch("b")
    with pytest.raises(perdure.NotFound, match="deleted"):
        fork.follow()


def test_follow_async():
    async def main():
        async with perdure.open_async("memory://") as store:
            mine = await store.agent("a", initial={"n": 0})
            async with mine.edit("one") as draft:
                draft["n"] = 1
            theirs = await store.agent("a")
            async with theirs.edit("two") as draft:
                draft["n"] = 2
            newer = await mine.follow()
            assert newer is not None and [commit.cause.what for commit in newer] == ["two"]
            assert mine.state == {"n": 2} and mine.seq == theirs.seq

    asyncio.run(main())
