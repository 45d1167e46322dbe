"""Idempotency keys: a command takes effect once, whoever repeats it."""

from __future__ import annotations

import pytest

from perdure.errors import Conflict


@pytest.fixture
def agent(store):
    return store.agent("a", initial={"n": 0})


def add(draft):
    draft["n"] += 1


def test_update_does_not_call_again(agent, place):
    first = agent.update(add, key="k")
    again = agent.update(lambda draft: 1 / 0, "add", key="k")
    assert first == again and agent.state == {"n": 1}
    other = place.open().agent("a")
    assert other.update(add, key="k") == first
    assert other.state == {"n": 1} and other.seq == 2


def test_an_edit_runs_on_a_throwaway_draft(agent, place):
    with agent.edit("add", key="k") as draft:
        draft["n"] += 1
    agent.save({"n": 10})
    edit = place.open().agent("a").edit("add", key="k")
    with edit as draft:
        assert draft["n"] == 10
        draft["n"] += 1
    assert edit.commit == agent.commit(2)
    assert agent.refresh() == {"n": 10} and agent.seq == 3
    agent.verify()


def test_a_used_key_does_not_hide_what_the_block_raises(agent):
    agent.update(add, key="k")
    with pytest.raises(ZeroDivisionError), agent.edit("add", key="k"):
        1 / 0
    assert agent.state == {"n": 1}
    agent.update(add)


def test_a_key_names_one_command(agent, steady):
    agent.update(add, "refund", key="k")
    with steady.refuses(agent, Conflict, "used for something else"):
        agent.update(add, "cancel", key="k")
    with (
        steady.refuses(agent, Conflict, "used for something else"),
        agent.edit("cancel", key="k") as draft,
    ):
        draft["n"] = 9
    with steady.refuses(agent, Conflict, "used for something else"):
        agent.save({"n": 9}, "refund", key="k")


def test_save_with_a_key_compares_the_value(agent, steady):
    first = agent.save({"n": 5}, "turn", key="k")
    agent.save({"n": 6})
    assert agent.save({"n": 5}, "turn", key="k") == first
    assert agent.state == {"n": 6}
    with steady.refuses(agent, Conflict, "used for something else"):
        agent.save({"n": 7}, "turn", key="k")
    with steady.refuses(agent, Conflict, "used for something else"):
        agent.save({"n": 5}, "other words", key="k")


def test_a_key_counts_though_nothing_changed(agent):
    commit = agent.update(lambda draft: None, "look", key="k")
    assert commit is not None and commit.delta == ()
    assert agent.update(lambda draft: 1 / 0, "look", key="k") == commit


def test_keys_are_the_agents_own_over_its_branches(agent, store):
    agent.update(add, key="k")
    fork = agent.fork("side")
    fork.update(add, key="k")
    assert fork.state == {"n": 1}
    other = store.agent("b", initial={"n": 0})
    other.update(add, key="k")
    assert other.state == {"n": 1}


def test_what_was_done_on_another_branch_was_not_done_here(agent, steady):
    """A conversation was forked where it had been before, and the same message came to both ways of
    it, under its own key: nothing was done on the second, and that was told as done."""
    agent.save({"n": 5})
    fork = agent.fork("side", at=1)
    agent.update(add, key="k")
    for change in (
        lambda: fork.update(add, key="k"),
        lambda: fork.save({"n": 9}, "add", key="k"),
        lambda: fork.edit("add", key="k").__enter__(),
    ):
        with steady.refuses(fork, Conflict, "was used on branch 'main', at commit|something else"):
            change()
    assert fork.state == {"n": 0}
    fork.update(add, key="side:k")
    with steady.refuses(agent, Conflict, "was used on branch 'side'"):
        agent.update(add, key="side:k")
    agent.adopt("side")
    agent.update(add, key="side:k")  # now it was
    assert agent.refresh() == fork.state == {"n": 1}


def test_a_key_outlives_rollback_and_undo(agent):
    agent.save({"n": 5})
    agent.update(add, key="k")
    agent.undo()
    agent.update(add, key="k")
    assert agent.state == {"n": 5}
    agent.rollback(1)
    agent.update(add, key="k")
    assert agent.state == {"n": 0}


def test_two_handles_that_hurry_with_one_key(agent, store):
    """Both looked, both found the key unused; the second commit finds it used."""
    agent.save({"n": 5})
    other = store.agent("a")
    with pytest.raises(Conflict), other.edit("add", key="k") as theirs:
        theirs["n"] += 1
        agent.update(add, key="k")
    edit = other.edit("add", key="k")
    with edit as theirs:
        theirs["n"] += 1
    assert edit.commit == agent.commit(3) and agent.refresh() == {"n": 6}

    calls = []

    def late(draft):
        calls.append(draft["n"])
        if len(calls) == 1:
            agent.update(add, "late", key="k2")
        draft["n"] += 1

    commit = other.update(late, "late", key="k2")
    assert commit == agent.commit("main") and agent.refresh() == {"n": 7}
    assert other.refresh() == {"n": 7}


@pytest.mark.parametrize("key", ["k" * 201, "k" * 5000, "é" * 150, "k" * 200])
def test_a_long_key_is_not_missed_where_it_is_noted_by_its_digest(place, key):
    """Who found no key looked whether those of the first commits are there, for the words of the
    commits: a store that began with a long key was `Corrupt` to whoever used another one."""
    with place.open() as store:
        agent = store.agent("a", initial={"n": 0})
        agent.update(add, key=key)
        agent.update(add, key="short")
    place.close()
    agent = place.open().agent("a")
    agent.update(add, key="new")
    agent.update(lambda draft: 1 / 0, "add", key=key)
    assert agent.state == {"n": 3}
