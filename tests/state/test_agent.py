"""State alone: opening, editing, saving, reading, and looking back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel

import perdure
from perdure.core.format import chain
from perdure.errors import (
    Conflict,
    Corrupt,
    Drifted,
    NotFound,
    SchemaError,
    SharedValue,
    Unstorable,
)


class Message(BaseModel):
    role: str
    content: str


class Invoice(BaseModel):
    id: str
    cents: int


class Ticket(BaseModel):
    customer: str
    status: Literal["pending", "running", "completed"] = "pending"
    messages: list[Message] = []
    invoice: Invoice | None = None


@pytest.fixture
def ticket(store):
    return store.agent("ticket-42", Ticket, initial=Ticket(customer="c-7"))


# -- opening ---------------------------------------------------------------------------------


def test_opening_writes_nothing(store, ticket):
    assert ticket.state == Ticket(customer="c-7")
    assert (ticket.seq, ticket.exists) == (0, False)
    assert list(ticket.log()) == []
    assert ticket.branches() == [] and ticket.checkpoints() == []
    assert store.agents() == [] and store.find("ticket-42") is None


def test_the_first_commit_creates(place, store, ticket):
    with ticket.edit("user message added") as draft:
        draft.messages.append(Message(role="user", content="Refund me"))
    assert [commit.cause.kind for commit in ticket.log()] == ["create", "edit"]
    assert ticket.exists and ticket.seq == 2
    other = place.open().agent("ticket-42", Ticket)
    assert other.state == ticket.state
    assert other.state.messages[-1].content == "Refund me"
    assert other.verify().commits == 2


def test_initial_counts_only_for_a_new_agent(store, ticket):
    with ticket.edit() as draft:
        draft.status = "running"
    again = store.agent("ticket-42", Ticket, initial=Ticket(customer="other"))
    assert again.state.customer == "c-7"


def test_an_initial_state_is_copied(store):
    initial = {"items": [1]}
    agent = store.agent("a", initial=initial)
    with agent.edit() as draft:
        draft["items"].append(2)
    assert initial == {"items": [1]}
    initial["items"].append(99)
    assert agent.state == {"items": [1, 2]} and agent.drift() == []


def test_a_schema_that_needs_values_says_so(store):
    agent = store.agent("new", Ticket)
    with pytest.raises(SchemaError, match="initial"):
        _ = agent.state
    assert store.find("new") is None


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", "\ud800"])
def test_names_that_cannot_be_are_refused(store, name):
    with pytest.raises(ValueError, match="name"):
        store.agent(name).state


def test_awkward_names_are_names(store, place):
    names = ["a/b", "../x", "%", "Ünï", "'; DROP TABLE agents; --", "🦆", "a" * 200, " "]
    for name in names:
        with store.agent(name).edit() as draft:
            draft["me"] = name
    reopened = place.open()
    assert {n: reopened.agent(n).state["me"] for n in names} == {n: n for n in names}
    assert [info.name for info in reopened.agents()] == sorted(names)


def test_a_branch_that_is_not_there_creates_no_agent(store):
    """Asked for a branch of an agent that does not exist, a handle made the agent on that branch:
    an agent without a main, which the next program then could not open."""
    agent = store.agent("new", branch="what-if")
    with pytest.raises(NotFound), agent.edit() as draft:
        draft["x"] = 1
    assert store.find("new") is None


def test_another_schema_is_refused(store, ticket):
    with ticket.edit() as draft:
        draft.status = "running"
    with pytest.raises(SchemaError, match="Ticket"):
        store.agent("ticket-42", Invoice).refresh()


# -- editing ---------------------------------------------------------------------------------


def test_a_block_that_raises_changes_nothing(ticket, steady):
    with ticket.edit() as draft:
        draft.status = "running"
    with steady.refuses(ticket, ZeroDivisionError), ticket.edit() as draft:
        draft.messages.append(Message(role="user", content="x"))
        draft.status = "completed"
        1 / 0
    assert ticket.state.status == "running" and ticket.state.messages == []
    with ticket.edit() as draft:
        draft.status = "completed"
    assert ticket.state.status == "completed"


def test_an_edit_that_changes_nothing_commits_nothing(ticket):
    with ticket.edit() as draft:
        draft.status = "running"
    edit = ticket.edit("again")
    with edit as draft:
        draft.status = "running"
    assert edit.commit is None and ticket.seq == 2


def test_a_commit_says_why(ticket):
    edit = ticket.edit("why", group="g", tags=["t1", "t2"], trace="abc", key="k")
    with edit as draft:
        draft.status = "running"
    commit = edit.commit
    assert commit is not None and commit == ticket.commit(2)
    cause = commit.cause
    assert (cause.kind, cause.what, cause.group, cause.tags) == ("edit", "why", "g", ("t1", "t2"))
    assert (cause.trace, cause.key) == ("abc", "k")
    assert commit.agent == "ticket-42" and commit.branch == "main" and commit.parent == 1
    assert commit.at.tzinfo is not None and commit.schema_id == "Ticket"


def test_an_edit_inside_an_edit_is_refused(ticket, steady):
    with ticket.edit() as draft:
        draft.status = "running"
        with pytest.raises(Conflict, match="inside"), ticket.edit() as second:
            second.status = "completed"
    assert ticket.state.status == "running" and ticket.seq == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda agent: agent.refresh(),
        lambda agent: agent.save({"n": 77}),
        lambda agent: agent.update(lambda draft: draft.update(n=78)),
        lambda agent: agent.checkpoint("inside"),
        lambda agent: agent.fork("inside"),
        lambda agent: agent.rollback(1),
        lambda agent: agent.undo(),
        lambda agent: agent.redo(),
        lambda agent: agent.adopt("side"),
        lambda agent: agent.delete_branch("side"),
    ],
    ids=[
        "refresh",
        "save",
        "update",
        "checkpoint",
        "fork",
        "rollback",
        "undo",
        "redo",
        "adopt",
        "delete_branch",
    ],
)
def test_nothing_else_is_committed_inside_an_open_edit(store, call):
    """A refresh inside an open block moved the handle on to a head that the block had not seen: the
    ops that it had recorded were then committed on top of another state, without a conflict, and
    the log could not be folded any more. A save in there committed the open block's own changes."""
    agent = store.agent("a", initial={"n": 0, "items": [1, 2, 3]})
    with agent.edit() as draft:
        draft["n"] = 1
    agent.fork("side")
    with store.agent("a").edit() as draft:
        draft["n"] = 2
    agent.undo()
    agent.refresh()
    other = store.agent("a")
    try:
        with agent.edit() as draft:
            draft["items"].append(4)
            with other.edit() as theirs:
                theirs["items"].clear()
            call(agent)
    except Conflict:
        pass
    agent.verify()
    assert agent.refresh() == store.agent("a").state
    assert agent.state["items"] == []
    with agent.edit() as draft:
        draft["items"].append(5)
    assert store.agent("a").state["items"] == [5]


def test_a_new_agent_is_not_created_inside_its_open_edit(store):
    """`fork` in the first edit of an agent was refused, as everywhere in an edit. But before that
    it created the agent, with what the open block had changed so far; and then the block failed."""
    agent = store.agent("a", initial={"n": 0})
    with pytest.raises(Conflict, match="not inside an open edit"), agent.edit() as draft:
        draft["n"] = 5
        agent.fork("inside")
    assert not agent.exists and agent.state == {"n": 0}


def test_nothing_is_committed_while_an_edit_ends(store):
    """An invariant called `undo` of the agent that it was asked about. The edit then landed behind
    that, without a conflict: what it was checked against was no longer there, and its handle showed
    another state than the log gives, also after `refresh`."""
    agent = store.agent("a", initial={"n": 0, "items": []})
    seen: list[int] = []

    def invariant(after: Any) -> bool:
        seen.append(handle.state["n"])
        with pytest.raises(perdure.PerdureError, match="within another call of this handle"):
            handle.undo()
        return True

    for n in (1, 2):
        agent.save({"n": n, "items": []})
    same = agent._working.schema.id
    handle = store.agent("a", perdure.Schema(dict, id=same, invariants=[invariant]))
    with handle.edit() as draft:
        draft["n"] = 3
        draft["items"].append(3)
    assert seen == [2]
    assert handle.state == store.agent("a").state == {"n": 3, "items": [3]}
    assert handle.seq == 4
    handle.verify()


def test_reading_inside_an_open_edit_shows_what_is_committed(store):
    agent = store.agent("a", initial={"n": 0})
    with agent.edit() as draft:
        draft["n"] = 1
    with agent.edit() as draft:
        draft["n"] = 2
        assert agent.state == {"n": 1}
        assert agent.at("main").state == {"n": 1}
        assert agent.seq == 2
    assert agent.state == {"n": 2}


def test_a_failing_write_into_the_live_object_does_not_break_the_log(store, monkeypatch):
    """The commit was durable, then bringing the live object in step failed. The handle took the
    commit for failed, put its tree back, and wrote the next delta against the wrong state."""
    agent = store.agent("a", initial={"items": [1]})
    with agent.edit() as draft:
        draft["items"].append(2)
    from perdure.core.live.append_plan import AppendPlan, TypedPlan

    def fail(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        for plan in (AppendPlan, TypedPlan):
            patched.setattr(plan, "apply", fail)
        with pytest.raises(KeyboardInterrupt), agent.edit() as draft:
            draft["items"].append(3)
    assert store.agent("a").state == {"items": [1, 2, 3]}
    with agent.edit() as draft:
        draft["items"].append(4)
        draft["items"][2] = "three"
    assert agent.state == store.agent("a").state == {"items": [1, 2, "three", 4]}
    agent.verify()


def test_an_open_edit_that_deleted_a_key_is_no_drift(store: perdure.Store) -> None:
    """Story: the state before an open edit was worked out by its inverses, which put a deleted key
    back in the last place: a check in the middle of it said that the state had drifted."""
    agent = store.agent("a", initial={"counts": {"a": 1, "b": 2, "c": 3}})
    agent.checkpoint("made")
    with agent.edit() as draft:
        del draft["counts"]["a"]
        assert agent.drift() == []
    assert agent.drift() == []


def test_a_number_that_moves_after_it_was_raised(store):
    """An item of a list was incremented and then moved by the same edit; the check against the live
    object looked at its old place, found another number and called it drift."""
    agent = store.agent("a", initial={"items": [0, 5], "text": "x" * 100})
    agent.save({"items": [0, 5], "text": ["y" * 100]})
    with agent.edit() as draft:
        perdure.increment(draft["items"], 0, 1)
        perdure.move(draft["items"], 0, 1)
    assert agent.state["items"] == [5, 1]
    with agent.edit() as draft:
        perdure.increment(draft["items"], 1, 1)
        draft["text"][0] += "!"
        draft["items"].insert(0, 9)
        draft["text"].insert(0, "first")
    assert agent.state["items"] == [9, 5, 2] and agent.state["text"] == ["first", "y" * 100 + "!"]
    assert store.agent("a").state == agent.state and agent.drift() == []


# -- saving a whole value --------------------------------------------------------------------


def test_save_stores_the_difference(ticket, place):
    with ticket.edit() as draft:
        draft.messages.extend(Message(role="user", content=str(n)) for n in range(100))
    state = ticket.state.model_copy(deep=True)
    state.messages.append(Message(role="user", content="one more"))
    commit = ticket.save(state, "framework turn")
    assert commit is not None and commit.cause.kind == "save" and len(commit.delta) == 1
    assert commit.size < 1000
    assert ticket.state == state == place.open().agent("ticket-42", Ticket).state
    assert ticket.save(state) is None


def test_a_saved_value_stays_the_callers(store):
    agent = store.agent("a")
    mine: dict[str, Any] = {"items": [1]}
    agent.save(mine)
    mine["items"].append(2)
    assert agent.state == {"items": [1]} and agent.drift() == []
    agent.save(mine)
    assert store.agent("a").state == {"items": [1, 2]}


def test_save_takes_the_live_state_back(store):
    """Frameworks change the state that they are handed and hand it back: that is no drift."""
    agent = store.agent("a", initial={"items": [1], "x": {"y": 1}})
    agent.save({"items": [1, 2], "x": {"y": 1}})
    state = agent.state
    state["items"].append(3)
    state["x"]["y"] = 2
    agent.save(state, "turn")
    assert agent.state == store.agent("a").state == {"items": [1, 2, 3], "x": {"y": 2}}
    assert agent.drift() == []


def test_save_on_a_moved_head_is_a_conflict(store, steady):
    one, two = store.agent("a", initial={"n": 0}), store.agent("a")
    one.save({"n": 1})
    two.refresh()
    one.save({"n": 2})
    with steady.refuses(two, Conflict, "head"):
        two.save({"n": 3})
    assert two.refresh() == {"n": 2}
    two.save({"n": 3})
    assert one.refresh() == {"n": 3}


# -- update ----------------------------------------------------------------------------------


def test_update_retries(store):
    agent, other = store.agent("a", initial={"n": 0}), store.agent("a", initial={"n": 0})
    calls = []

    def increment(draft):
        calls.append(draft["n"])
        if len(calls) == 1:
            with other.edit() as theirs:
                theirs["n"] += 10
        draft["n"] += 1

    commit = agent.update(increment)
    assert commit is not None and commit.cause.what == "increment"
    assert calls == [0, 10] and agent.state == {"n": 11}


def test_update_passes_on_what_the_function_raises(store, steady):
    agent = store.agent("a", initial={"n": 0})
    agent.update(lambda draft: draft.update(n=1))
    with steady.refuses(agent, KeyError):
        agent.update(lambda draft: draft["missing"])
    assert agent.update(lambda draft: None) is None


# -- refresh, state and drift ------------------------------------------------------------------


def test_state_is_as_last_read(store):
    one, two = store.agent("a", initial={"n": 0}), store.agent("a")
    one.save({"n": 1})
    assert two.refresh() == {"n": 1}
    for n in range(2, 50):
        one.save({"n": n})
    assert two.state == {"n": 1}
    assert two.refresh() == {"n": 49} and two.seq == one.seq


def test_refresh_follows_a_long_way(store):
    one, two = store.agent("a", initial={"items": []}), store.agent("a")
    one.save({"items": [0]})
    two.refresh()
    for n in range(1, 1100):
        with one.edit() as draft:
            draft["items"].append(n)
    assert two.refresh() == {"items": list(range(1100))}


def test_a_change_outside_edit_is_found_where_it_is_touched(ticket, steady):
    with ticket.edit() as draft:
        draft.messages.append(Message(role="user", content="x"))
    ticket.state.messages[0].content = "changed behind its back"
    found = ticket.drift()
    assert [one.path for one in found] == ["state.messages[0].content"]
    with ticket.edit() as draft:  # elsewhere: not looked at
        draft.status = "running"
    with steady.refuses(ticket, Drifted, r"messages\[0\]"), ticket.edit() as draft:
        draft.messages[0].content = "y"
    assert ticket.state.messages[0].content == "changed behind its back"


def test_refresh_drops_what_was_changed_outside(ticket):
    """The error of a drifted edit says: "agent.refresh() to drop the change"."""
    with ticket.edit() as draft:
        draft.messages.append(Message(role="user", content="x"))
    ticket.state.messages[0].content = "changed behind its back"
    ticket.state.status = "completed"
    assert ticket.refresh().messages[0].content == "x"
    assert ticket.state.status == "pending" and ticket.drift() == []
    with ticket.edit() as draft:
        draft.messages[0].content = "y"
    assert ticket.state.messages[0].content == "y"


# -- looking back --------------------------------------------------------------------------------


def filled(store, count=5):
    agent = store.agent("a", initial={"n": 0})
    for n in range(1, count):
        agent.save({"n": n}, f"save {n}")
    return agent


def test_the_state_at_any_commit(store):
    agent = filled(store)
    seen = {commit.seq: agent.at(commit.seq).state["n"] for commit in agent.log()}
    assert seen == {1: 0, 2: 1, 3: 2, 4: 3, 5: 4}
    past = agent.at(3)
    assert past.seq == 3 and past.plain == {"n": 2} and past.commit == agent.commit(3)
    past.state["n"] = 77
    assert agent.at(3).state == {"n": 2} and past.plain == {"n": 2} and agent.state == {"n": 4}


def test_the_state_at_a_moment(store):
    agent = filled(store)
    times = [commit.at for commit in agent.log()]
    assert times == sorted(set(times))
    for n, at in enumerate(times):
        assert agent.at(at).state == {"n": n}
        elsewhere = at.astimezone(__import__("zoneinfo").ZoneInfo("Asia/Kathmandu"))
        assert agent.at(elsewhere).seq == n + 1
        if n:
            assert agent.at(at - timedelta(microseconds=1)).seq == n
    assert agent.at(datetime(9999, 1, 1, tzinfo=UTC)).seq == 5
    with pytest.raises(NotFound):
        agent.at(times[0] - timedelta(microseconds=1))
    with pytest.raises(ValueError, match="time zone"):
        agent.at(datetime(2030, 1, 1))


@pytest.mark.parametrize("where", [0, -1, 6, 2**40, "nothing"])
def test_a_place_that_is_not_there(store, where, steady):
    agent = filled(store)
    with steady.refuses(agent, NotFound):
        agent.at(where)
    with steady.refuses(agent, NotFound):
        agent.rollback(where)
    with steady.refuses(agent, NotFound):
        agent.fork("x", at=where)
    with steady.refuses(agent, NotFound):
        agent.diff(1, where)


def test_an_unknown_agent_has_no_past(store):
    agent = store.agent("nobody")
    for call in (
        lambda: agent.at(1),
        lambda: agent.commit(1),
        lambda: agent.verify(),
        lambda: agent.rollback(1),
        lambda: agent.undo(),
        lambda: agent.branch("x"),
        lambda: agent.diff(1, 2),
        lambda: agent.adopt("x"),
        lambda: agent.delete_branch("x"),
        lambda: agent.fork("x", at=1),
        lambda: store.delete("nobody"),
        lambda: store.sizes("nobody"),
    ):
        with pytest.raises(NotFound):
            call()
        assert store.find("nobody") is None


def test_the_log_in_order_and_backwards(store):
    agent = filled(store)
    assert [commit.seq for commit in agent.log()] == [1, 2, 3, 4, 5]
    assert [commit.seq for commit in agent.log(newest_first=True)] == [5, 4, 3, 2, 1]
    assert [commit.cause.what for commit in agent.log()][1:] == [f"save {n}" for n in range(1, 5)]


def test_diff_names_paths(store):
    agent = store.agent("a", initial={"n": 0, "items": [{"x": 1}], "gone": 1})
    agent.save({"n": 0, "items": [{"x": 2}, {"y": 3}], "new": None})
    found = {(c.path, c.kind): (c.before, c.after) for c in agent.diff(1, "main")}
    missing = perdure.MISSING
    assert found == {
        ("state.items[0].x", "changed"): (1, 2),
        ("state.items[1]", "added"): (missing, {"y": 3}),
        ("state.gone", "removed"): (1, missing),
        ("state.new", "added"): (missing, None),
    }
    assert agent.diff("main", "main") == []


# -- verifying -------------------------------------------------------------------------------


def test_verify_compares_with_an_anchor(store, place):
    agent = filled(store)
    root = agent.verify().root
    agent.save({"n": 9})
    assert agent.verify(anchor=root).commits == 6
    other = store.agent("b")
    other.save({"n": 9})
    with pytest.raises(Corrupt, match="anchor"):
        other.verify(anchor=root)


def test_verify_reports_progress(store):
    agent = filled(store)
    seen: list[tuple[int, int]] = []
    agent.verify(progress=lambda done, total: seen.append((done, total)))
    assert seen == [(n, 5) for n in range(1, 6)]


def test_verifying_costs_the_log_not_its_square(store):
    """With one checkpoint in the log, verifying copied the whole state at every commit, and kept
    every copy: gigabytes for an agent of ten thousand messages."""
    import tracemalloc

    agent = store.agent("a", initial={"items": ["x" * 100] * 2000})
    for n in range(60):
        with agent.edit() as draft:
            draft["items"].append(n)
        if n == 1:
            agent.checkpoint("early")
            agent.fork("side")
    store.agent("a", branch="side").save({"items": []})
    tracemalloc.start()
    agent.verify()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_verifying_many_steps_back_to_checkpoints_reads_the_log_once(store, monkeypatch):
    """Each of 2,000 rollbacks to as many checkpoints was folded anew from the log's begin: 17 s of
    CPU, which a nightly `verify` of ten times as many would have taken half an hour for."""
    agent = store.agent("a", initial={"n": 0})
    for n in range(150):
        agent.checkpoint(f"c{n}")
    for n in range(150):
        agent.rollback(f"c{n}")
    read: list[int] = []
    original = chain.read_commit

    def counted(agent: str, seq: int, *rest: Any) -> Any:
        read.append(seq)
        return original(agent, seq, *rest)

    monkeypatch.setattr(chain, "read_commit", counted)
    agent.verify()
    assert len(read) < 5 * agent.seq


# -- what cannot be stored ---------------------------------------------------------------------


class Custom:
    pass


@pytest.mark.parametrize("value", [Custom(), lambda: 1, object, 1j, range(3), {1: Custom()}])
def test_i12_a_value_that_cannot_be_stored_is_named_by_its_path(store, steady, value):
    agent = store.agent("a", initial={"messages": [{}, {}]})
    agent.save({"messages": [{"a": 1}, {}]})
    with (
        steady.refuses(agent, Unstorable, r"state\.messages\[1\]\.when"),
        agent.edit() as draft,
    ):
        draft["messages"][0]["a"] = 2
        draft["messages"][1]["when"] = value
    with steady.refuses(agent, Unstorable, r"state\.messages\[1\]\.when"):
        agent.save({"messages": [{}, {"when": value}]})
    with pytest.raises(Unstorable, match=r"state\.x"):
        store.agent("new", initial={"x": value}).state
    assert store.find("new") is None
    with steady.refuses(agent, Unstorable):
        agent.checkpoint("cp", config={"x": value})
    with agent.edit() as draft:
        draft["messages"][1]["when"] = "now"
    agent.verify()


def test_aliases_and_cycles_are_refused(store, steady):
    agent = store.agent("a", initial={"x": {"y": [1]}, "z": None})
    agent.save({"x": {"y": [1]}, "z": 0})
    with steady.refuses(agent, SharedValue, "state.x"), agent.edit() as draft:
        draft["z"] = draft["x"]
    with steady.refuses(agent, SharedValue), agent.edit() as draft:
        draft["x"]["self"] = draft["x"]
    cycle: list[Any] = []
    cycle.append(cycle)
    with steady.refuses(agent, SharedValue), agent.edit() as draft:
        draft["z"] = cycle
    with steady.refuses(agent, SharedValue, "cycle"):
        agent.save({"z": cycle})
    shared = [1]
    with steady.refuses(agent, SharedValue), agent.edit() as draft:
        draft["z"] = [shared, shared]
    with agent.edit() as draft:
        draft["one"] = shared  # copied as it is now, each time
        draft["two"] = shared
    with agent.edit() as draft:
        draft["one"].append(2)
    expected = {"x": {"y": [1]}, "z": 0, "one": [1, 2], "two": [1]}
    assert agent.state == store.agent("a").state == expected


def test_a_state_that_breaks_its_schema_is_refused(ticket, store, steady):
    with ticket.edit() as draft:
        draft.status = "running"
    with steady.refuses(ticket, SchemaError, "status"), ticket.edit() as draft:
        draft.status = "exploded"
    with steady.refuses(ticket, SchemaError, "state.messages"), ticket.edit() as draft:
        draft.messages.append({"role": "user"})
    with steady.refuses(ticket, SchemaError):
        ticket.save({"customer": 7})
    with steady.refuses(ticket, SchemaError), ticket.edit() as draft:
        draft.unknown = 1


def test_members_that_never_equal_themselves_are_refused(store, steady):
    """NaN in a set or as a key: the log could add it and then never find it again to remove it."""
    agent = store.agent("a", initial={"s": set(), "d": {}})
    agent.save({"s": {1}, "d": {}})
    nan = float("nan")
    with steady.refuses(agent, Unstorable, "s"), agent.edit() as draft:
        draft["s"].add(nan)
    with steady.refuses(agent, Unstorable, "d"), agent.edit() as draft:
        draft["d"][nan] = 1
    with steady.refuses(agent, Unstorable):
        agent.save({"s": {(1, nan)}, "d": {}})
    agent.save({"s": {1.0}, "d": {"x": nan}})
    assert store.agent("a").state["s"] == {1.0}


@pytest.mark.parametrize(
    "more",
    [
        {"what": "\ud800"},
        {"what": "x", "tags": ["\udfff"]},
        {"what": "x", "key": "\ud800"},
        {"what": "x", "group": "\ud800"},
        {"what": "x", "trace": "\ud800"},
    ],
)
def test_words_that_are_no_text_are_refused_at_the_call(store, steady, more):
    """A lone surrogate in the words of one edit (a user's message, cut in the middle) raised a
    UnicodeEncodeError from the committer: for every other writer of the same batch, too."""
    agent = store.agent("a")
    agent.save({"n": 1})
    with steady.refuses(agent, (ValueError, perdure.PerdureError)), agent.edit(**more) as draft:
        draft["n"] = 2
    agent.save({"n": 3})


@pytest.mark.parametrize("name", ["", "\ud800", "a\0b", "x" * 201])
def test_names_of_branches_and_checkpoints_are_checked(store, steady, name):
    agent = store.agent("a")
    agent.save({"n": 1})
    with steady.refuses(agent, ValueError, "name"):
        agent.fork(name)
    with steady.refuses(agent, ValueError, "name"):
        agent.checkpoint(name)
