"""Retention of a living log: what goes, what stays, and that nothing is built on what went (I7)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import perdure
from perdure import Conflict, Corrupt, NotFound, Store
from perdure.agents import Agent
from perdure.core.format import remains
from perdure.core.format.stored_records import plain_of, written
from perdure.model import to_micros
from perdure.retention import trimming
from perdure.storage.appending import Append
from perdure.storage.log.reader import LogReader
from perdure.storage.retention import RETENTION, Trim
from perdure.transfer.follower import Follower
from perdure.transfer.promotion import promote
from perdure.transfer.restoring import restore
from perdure.types import Trimmed
from tests.state.conftest import Place
from tests.state.copies import backend_of, picture, serve, short, waiting_for, waits

WORDS = "one word after the other, "


def grown(store: Store, name: str = "a", commits: int = 40) -> Agent[dict[str, Any]]:
    """A list that grows, with a checkpoint at 10, a branch from 15 with a commit of its own, and an
    idempotent edit."""
    agent = store.agent(name)
    with agent.edit("begin", key="first") as draft:
        draft["log"], draft["n"] = [], 0
    while agent.seq < commits:
        with agent.edit(f"edit {agent.seq}") as draft:
            draft["log"].append(WORDS * 20 + str(agent.seq))
            draft["n"] = agent.seq
        if agent.seq == 10:
            agent.checkpoint("early")
        if agent.seq == 15:
            side = agent.fork("side")
            with side.edit("aside") as draft:
                draft["aside"] = True
            agent.refresh()
    return agent


def reader_of(store: Store, name: str = "a") -> LogReader:
    info = store.find(name)
    assert info is not None
    return LogReader(backend_of(store), info)


def states(agent: Agent[Any], seqs: list[int]) -> dict[int, Any]:
    return {seq: agent.at(seq).plain for seq in seqs}


def readable(agent: Agent[Any]) -> list[int]:
    found = []
    for seq in range(1, agent.seq + 1):
        with suppress(NotFound):
            agent.at(seq).read()
            found.append(seq)
    return found


def test_the_states_of_names_and_of_what_came_later_stay(store: Store) -> None:
    agent = grown(store)
    heads = {ref.name: ref.head for ref in agent.branches()}
    point = agent.checkpoints()[0].seq
    kept = [1, point, heads["side"], 29, *range(30, agent.seq + 1)]
    before = states(agent, kept)
    payloads = [row.payload for row in backend_of(store).read(1, 1, 99)]
    root = agent.verify().root
    done = agent.trim(30)
    assert (done.before, done.removed, done.bases) == (30, 28 - 2 - 1, 3)
    assert done.freed > 0
    for handle in (agent, store.agent("a")):
        assert states(handle, kept) == before
        assert readable(handle) == kept
    assert handle.at("early").plain == before[point]
    assert handle.branch("side").state["aside"]
    rows = backend_of(store).read(1, 1, 99)
    gone = [row.seq for row in rows if row.payload == remains.REMOVED]
    assert gone == [seq for seq in range(2, 30) if seq not in (point, heads["side"], 29)]
    assert [row.payload for row in rows[29:-1]] == payloads[29:]
    assert not any(row.snapshotted for row in rows[:29])
    proved = store.agent("a").verify(anchor=root)
    assert proved.trimmed == done.removed and proved.commits == agent.seq + 1


def test_headers_still_tell_when_why_and_by_whom(store: Store) -> None:
    agent = grown(store)
    before = [
        (c.seq, c.id, c.cause, c.at, c.parents, c.branch) for c in agent.log(all_branches=True)
    ]
    agent.trim(30)
    after = list(agent.log(all_branches=True))
    assert [(c.seq, c.id, c.cause, c.at, c.parents, c.branch) for c in after[:-1]] == before
    assert [c.seq for c in after if c.trimmed and (c.delta or c.records)] == []
    assert after[-1].cause.kind == "trim" and after[-1].branch == RETENTION
    assert [c.seq for c in agent.log()] == [
        seq for seq, _, _, _, _, branch in before if branch == "main"
    ]


def test_a_key_that_took_effect_before_does_not_again(store: Store) -> None:
    agent = grown(store)
    agent.trim(30)
    again = store.agent("a")
    assert (again.update(lambda draft: draft.clear(), "begin", key="first")) is not None
    assert again.state["n"] == agent.state["n"]


def test_it_may_be_said_as_an_age_a_moment_or_a_name(store: Store) -> None:
    agent = grown(store)
    assert agent.trim(timedelta(hours=1)) == Trimmed("a", 1)
    assert agent.trim(datetime(2020, 1, 1, tzinfo=UTC)) == Trimmed("a", 1)
    moment = agent.commit(20).at
    then = agent.at(moment).plain
    assert agent.trim(moment).before == 20
    assert agent.at(moment).plain == then
    agent.checkpoint("now")
    assert agent.trim("now").before == agent.checkpoints()[1].seq
    last = agent.trim(timedelta(0))
    assert last.before == agent.seq
    assert agent.trim(timedelta(0)).seq == 0  # there is but a word more
    with pytest.raises(ValueError, match="naive"):
        agent.trim(datetime(2020, 1, 1))
    with pytest.raises(ValueError, match="age cannot be negative"):
        agent.trim(timedelta(days=-1))
    with pytest.raises(NotFound):
        agent.trim(9999)
    with pytest.raises(TypeError):
        agent.trim(2.5)  # type: ignore[arg-type]


def test_twice_is_once_and_what_is_gone_does_not_come_back(store: Store) -> None:
    agent = grown(store)
    agent.trim(30)
    end = reader_of(store).last_seq()
    for before in (30, 25, 1):
        done = agent.trim(before)
        assert (done.removed, done.seq, done.before) == (0, 0, 30)
    assert reader_of(store).last_seq() == end
    assert agent.verify().trimmed == 25


def test_time_after_time(store: Store) -> None:
    """What one time kept for what came later, the next removes: a log's size is its window's."""
    agent = grown(store)
    sizes = []
    for _ in range(6):
        for _ in range(40):
            with agent.edit("more") as draft:
                draft["log"].append(WORDS * 20)
                del draft["log"][0]
        agent.trim(agent.seq - 10)
        whole = store.sizes("a")
        sizes.append(whole.payload_bytes + whole.snapshot_bytes + whole.leaf_bytes)
        assert store.agent("a").verify().trimmed == agent.verify().trimmed
        assert store.agent("a").state == agent.state
    assert max(sizes[1:]) < 1.5 * min(sizes[1:])
    assert (
        len([row for row in backend_of(store).read(1, 1, 9999) if row.payload != remains.REMOVED])
        < 25
    )
    assert store.agent("a").at("early").plain["n"] == 9


@pytest.mark.parametrize("build", ["fork", "rollback", "adopt"])
def test_nothing_is_built_on_what_is_gone(store: Store, build: str) -> None:
    agent = grown(store)
    agent.trim(30)
    for seq in (5, 28):
        with pytest.raises(NotFound, match="removed by retention"):
            agent.fork("new", at=seq) if build == "fork" else agent.rollback(seq)
    if build == "fork":
        assert agent.fork("new", at="early").state["n"] == 9
    elif build == "rollback":
        moved = agent.rollback("early")
        assert moved.untold
        assert agent.state["n"] == 9
    else:
        agent.adopt("side")
        assert agent.state["aside"]
    agent.verify()
    with agent.edit("on") as draft:
        draft["n"] = -1
    assert store.agent("a").state["n"] == -1


def test_undo_ends_where_the_history_does(store: Store) -> None:
    agent = grown(store)
    agent.trim(agent.seq - 1)
    agent.undo()
    agent.undo()
    with pytest.raises(NotFound, match="removed by retention"):
        agent.undo()
    agent.redo()
    agent.verify()


def test_a_run_can_be_asked_for_again_and_does_nothing_twice(store: Store) -> None:
    assert store.options(key="r").run(short, "a", 1) == 2
    agent = grown(store, commits=60)
    row = store.runs("a")[0]
    agent.trim(50)
    assert store.options(key="r").run(short, "a", 1) == 2
    assert store.runs("a") == [row]
    with pytest.raises(Conflict):
        store.options(key="r").run(short, "a", 2)
    handle = store.handle(row.id)
    for again in (
        lambda: handle.retry("act#1"),
        lambda: handle.fork("act#1", branch="again", effects="live"),
    ):
        with pytest.raises(NotFound, match="retention removed"):
            again()
    assert handle.report().info.status == "done"
    agent.verify()


def test_an_unfinished_run_holds_what_it_needs(store: Store) -> None:
    agent = grown(store, commits=20)
    handle = store.start(waits, "a", 2)
    serve(store, waiting_for(store, handle.id, "word"))
    began = store.runs("a")[0].turn_at
    agent.refresh()
    for number in range(10):
        with agent.edit("while it waits") as draft:
            draft["n"] = number
    assert agent.trim(agent.seq).before == began
    for word in ("one", "two"):
        handle.signal("word", word)
    serve(store, waiting_for(store, handle.id, "Go on?"))
    handle.answer(True)
    serve(store, lambda: handle.status == "done")
    assert handle.result() == ["one", "two", True]
    agent.refresh()
    done = agent.trim(timedelta(0))
    assert done.before > began
    assert handle.result() == ["one", "two", True]
    agent.verify()


@perdure.tool(on_crash="fail")
def breaks(n: int) -> int:
    raise KeyboardInterrupt


@perdure.agent(dict)
def stops(run: perdure.Run[dict[str, Any]]) -> int:
    return breaks(1)


def test_a_call_in_doubt_stays_in_the_ledger(store: Store) -> None:
    agent = grown(store, commits=20)
    with pytest.raises(KeyboardInterrupt):
        store.run(stops, "a")
    (row,) = store.runs("a")
    handle = store.handle(row.id)
    assert [effect.state for effect in handle.effects()] == ["in doubt"]
    handle.cancel()
    agent.refresh()
    for _ in range(10):
        with agent.edit("later") as draft:
            draft["n"] += 1
    assert agent.trim(agent.seq).before == agent.seq
    assert [effect.state for effect in handle.effects()] == ["in doubt"]
    agent.verify()


# -- others at the same time ------------------------------------------------------------------


def test_who_forks_between_the_look_and_the_word_is_heard(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = grown(store)
    other = place.open().agent("a")
    real = trimming._say
    forked: list[Agent[Any]] = []

    def say(*args: Any) -> Any:
        if not forked:
            forked.append(other.fork("between", at=7))
        return real(*args)

    monkeypatch.setattr(trimming, "_say", say)
    done = agent.trim(30)
    assert done.bases == 4
    assert forked[0].state == other.at(7).state and other.at(7).state["n"] == 6
    agent.verify()
    words = [commit for commit in agent.log(all_branches=True) if commit.branch == RETENTION]
    assert len(words) == 2
    with perdure.open("memory://") as target:  # which hears of both words at once, and of the first
        follow(store, target)
        assert picture(backend_of(target)) == picture(backend_of(store))
        assert target.agent("a").branch("between").state == forked[0].state


def test_a_follower_does_not_act_on_a_word_that_does_not_stand(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its source was killed between that word and the next; what it named is needed there."""
    agent = grown(store)
    other = place.open().agent("a")
    real = trimming._say

    def say(*args: Any) -> Any:
        other.fork("between", at=7)
        real(*args)
        raise Killed

    monkeypatch.setattr(trimming, "_say", say)
    with pytest.raises(Killed):
        agent.trim(30)
    monkeypatch.undo()
    with perdure.open("memory://") as target:
        follow(store, target)
        assert target.agent("a").branch("between").state["n"] == 6
        assert target.agent("a").verify().trimmed == 0
        assert agent.verify().trimmed == 0
        assert agent.trim(30).bases == 4
        follow(store, target)
        assert picture(backend_of(target)) == picture(backend_of(store))
        assert target.agent("a").branch("between").state["n"] == 6


def test_two_at_once_remove_what_both_wanted(store: Store, place: Place) -> None:
    agent = grown(store, commits=60)
    kept = states(agent, [1, agent.checkpoints()[0].seq, *range(50, 61)])
    handles = [place.open().agent("a") for _ in range(3)]
    with ThreadPoolExecutor() as pool:
        done = [pool.submit(handle.trim, 30 + 10 * n) for n, handle in enumerate(handles)]
        assert all(one.result().before >= 30 for one in done)
    assert states(place.open().agent("a"), [*kept]) == kept
    assert agent.verify().trimmed >= 45
    assert agent.trim(50).before == 50
    agent.verify()


def test_a_run_that_is_set_back_before_the_word_keeps_its_history(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was done when retention looked; then somebody let it run again from a step."""
    grown(store, commits=20)
    store.options(key="r").run(short, "a", 1)
    agent = grown(store)
    (row,) = store.runs("a")
    agent.rollback(row.ended)
    real, once = trimming._say, [place.open()]

    def say(*args: Any) -> Any:
        if once:
            once.pop().handle(row.id).retry("act#1", effects="live")
        return real(*args)

    monkeypatch.setattr(trimming, "_say", say)
    assert agent.trim(timedelta(0)).before == row.turn_at
    assert store.options(key="r").run(short, "a", 1) == 2
    agent.verify()


def test_who_forks_after_the_word_is_refused(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He had looked at the place before, and found it whole."""
    agent = grown(store)
    other = place.open()
    handle = other.agent("a")
    backend = backend_of(other)
    real = backend.append
    others = [agent]

    def append(batch: list[Append]) -> list[Any]:
        if others:
            others.pop().trim(30)
        return real(batch)

    monkeypatch.setattr(backend, "append", append)
    with pytest.raises((Conflict, NotFound), match="retention"):
        handle.fork("late", at=7)
    assert "late" not in [branch.name for branch in agent.branches()]
    agent.verify()


def test_who_goes_on_with_leaves_that_went_writes_them_anew(store: Store, place: Place) -> None:
    """A process had read a snapshot; retention removed it; its next one shared its leaves."""
    agent = grown(store, commits=150)
    other = place.open(snapshots=perdure.SnapshotPolicy(on=("snap",))).agent("a")
    assert other.state == agent.state
    with other.edit("snap") as draft:
        draft["n"] = 0
    with other.edit("more") as draft:
        draft["log"].append(WORDS * 20)
    agent.refresh()
    with agent.edit("more") as draft:
        draft["log"].append(WORDS * 20)
    agent.trim(agent.seq)
    assert store.sizes("a").leaves == 0
    other.refresh()
    for word in ("snap", "between", "snap"):
        with other.edit(word) as draft:
            draft["log"].append(WORDS * 20)
    assert place.open().agent("a").state == other.state
    agent.refresh()
    assert agent.verify().snapshots >= 1


def test_a_copy_that_lives_keeps_the_log(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = grown(store)
    monkeypatch.setattr(trimming, "needed_by", lambda backend, info: "copy")
    with pytest.raises(Conflict, match="'copy'"):
        agent.trim(30)
    assert agent.verify().trimmed == 0


# -- ended in the middle ----------------------------------------------------------------------


class Killed(BaseException):
    pass


def killed_after(backend: Any, calls: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Its `trim` fails after so many calls; what undoes that."""
    real, left = backend.trim, [calls]

    def trim(*args: Any) -> Any:
        if not left[0]:
            raise Killed
        left[0] -= 1
        return real(*args)

    monkeypatch.setattr(backend, "trim", trim)
    monkeypatch.setattr(trimming, "PART", 4)
    return monkeypatch.undo


@pytest.mark.parametrize("calls", range(12))
@pytest.mark.parametrize("later", [30, 35, 20])
def test_killed_anywhere_nothing_that_stays_is_lost(
    place: Place, calls: int, later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.open()
    agent = grown(store)
    kept = [1, agent.checkpoints()[0].seq, 30, 35, agent.seq]
    before = states(agent, kept)
    undo = killed_after(backend_of(store), calls, monkeypatch)
    killed = False
    try:
        agent.trim(30)
    except Killed:
        killed = True
    undo()
    if place.durable:
        place.close()
        store = place.open()
    agent = store.agent("a")
    assert states(agent, kept) == before
    assert killed or agent.verify().trimmed == 25
    agent.verify()
    done = agent.trim(later)
    assert done.before in (30, later)
    assert states(agent, [seq for seq in kept if seq != 30 or later != 35]) == {
        seq: state for seq, state in before.items() if seq != 30 or later != 35
    }
    agent.verify()
    assert agent.trim(later).removed == 0


# -- damage -----------------------------------------------------------------------------------


def test_what_is_gone_without_a_word_is_damage(store: Store) -> None:
    agent = grown(store)
    backend_of(store).trim(1, 0, {12: remains.REMOVED})
    with pytest.raises(Corrupt, match="does not say that it was removed"):
        agent.verify()


@pytest.mark.parametrize("at", [4, 5, 21, 30, -1])
def test_a_kept_state_that_was_changed_is_found(store: Store, at: int) -> None:
    agent = grown(store)
    agent.trim(30)
    backend = backend_of(store)
    (row,) = backend.read(1, 29, 29)
    changed = bytearray(row.payload)
    changed[at] ^= 1
    backend.trim(1, agent.branches()[0].head, {29: bytes(changed)})
    with pytest.raises(Corrupt, match="commit 29"):
        agent.at(29).read()
    with pytest.raises(Corrupt, match="commit 29"):
        agent.verify()


def test_a_kept_state_that_was_exchanged_is_found_by_verify(store: Store) -> None:
    agent = grown(store)
    agent.trim(30)
    backend = backend_of(store)
    (row,) = backend.read(1, 29, 29)
    payload = remains.payload_of(row.payload, "it")
    backend.trim(
        1, agent.branches()[0].head, {29: remains.write_base(payload, {"log": [], "n": 10**6})}
    )
    with pytest.raises(Corrupt, match="retention kept"):
        agent.verify()


@pytest.mark.parametrize(
    "wrong",
    [
        {"t": 1},
        {"before": -1},
        {"seen": None},
        {"removed": [[1]]},
        {"bases": [[1, 2]]},
        {"previous": "x"},
    ],
)
def test_a_word_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    word = plain_of(Trim(0, 9, 0, 5, ((2, 3),), {4: "sha256:"}).record())
    written([word])
    with pytest.raises((TypeError, ValueError)):
        written([{**word, **wrong}])


def test_the_stores_own_names_are_its_own(store: Store) -> None:
    agent = grown(store)
    with pytest.raises(ValueError, match="reserved for the store"):
        agent.fork(RETENTION)
    agent.trim(30)
    with pytest.raises(Conflict, match="retention"):
        agent.delete_branch(RETENTION)


# -- copies of it -----------------------------------------------------------------------------


def test_it_can_be_exported_and_imported(store: Store, place: Place) -> None:
    agent = grown(store)
    store.options(key="r").run(short, "a", 1)
    agent.refresh()
    agent.trim(30)
    info = store.find("a")
    assert info is not None
    entries = list(store.export_log(info))
    with perdure.open("memory://") as elsewhere:
        elsewhere.import_log(entries, root=agent.verify().root)
        there = elsewhere.agent("a")
        assert there.verify().trimmed == 25
        assert there.state == store.agent("a").state
        assert there.at("early").plain == agent.at("early").plain
        assert readable(there) == readable(agent)
        assert elsewhere.options(key="r").run(short, "a", 1) == 2


def follow(source: Store, target: Store) -> None:
    follower = Follower(backend_of(source), backend_of(target))
    follower.begin()
    follower.drain()


@pytest.mark.parametrize("had", [0, 5, 20, 36, 99])
def test_a_follower_trims_too_however_far_it_was(store: Store, had: int) -> None:
    agent = grown(store, commits=max(had, 2) if had < 40 else 40)
    with perdure.open("memory://") as target:
        if had:
            follow(store, target)
        grown(store, commits=40)
        agent.refresh()
        agent.trim(30)
        follow(store, target)
        assert picture(backend_of(target)) == picture(backend_of(store))
        there = LogReader(backend_of(target), backend_of(target).agent("a"))  # type: ignore[arg-type]
        assert there.fold(agent.seq).state == agent.at(agent.seq).plain


def restored(source: Store, until: datetime, target: Store) -> None:
    follower = Follower(
        backend_of(source), backend_of(target), kind="restoring", until=to_micros(until)
    )
    restore(follower)


def test_a_moment_is_restored_though_retention_came_to_it_later(store: Store) -> None:
    """The word on what is gone is later than the moment: the restored log says it anew."""
    agent = grown(store)
    moment, then = agent.commit(35).at, agent.at(35).plain
    early = agent.commit(20).at
    agent.trim(30)
    with perdure.open("memory://") as target:
        restored(store, moment, target)
        there = target.agent("a")
        assert there.at(35).plain == then
        assert there.verify().trimmed == 25
        assert there.at("early").plain == agent.at("early").plain
        with there.edit("on") as draft:
            draft["n"] = 0
        there.verify()
    with perdure.open("memory://") as target:
        with pytest.raises(Conflict, match="retention removed what was before"):
            restored(store, early, target)
        assert target.agents() == []
    with perdure.open("memory://") as target:
        restored(store, datetime.now(UTC), target)
        assert picture(backend_of(target)) == picture(backend_of(store))


def test_a_moment_between_two_trims_is_restored(store: Store) -> None:
    """The second trim had removed the first one's word, too: the restored log had a word that
    said nothing, and verify, fork, rollback and trim of that agent were `Corrupt`."""
    agent = grown(store)
    agent.trim(15)
    agent.update(lambda draft: draft.update(n=-1))
    at, moment, then = agent.seq, agent.commit(agent.seq).at, agent.at(agent.seq).plain
    for n in range(2):
        agent.update(lambda draft: draft.update(n=-2))
        agent.trim(at - 1 + n)
        with perdure.open("memory://") as target:
            restored(store, moment, target)
            there = target.agent("a")
            assert there.state == then
            assert there.verify().trimmed > 15
            assert there.at("early").plain == agent.at("early").plain
            there.fork("aside")
            there.rollback("early")
            assert there.trim(there.seq).removed > 0
            there.verify()


def test_what_a_moment_needs_and_retention_removed_is_said(store: Store) -> None:
    """A branch that was deleted since, or a run that has ended since: the restored agent would have
    a branch that cannot be read, or a run that does again what it did."""
    agent = store.agent("a")
    agent.update(lambda draft: draft.update(n=1))
    side = agent.fork("side")
    side.update(lambda draft: draft.update(n=2))
    agent.update(lambda draft: draft.update(n=3))
    moment = agent.commit(agent.seq).at
    agent.delete_branch("side")
    agent.trim(agent.seq - 1)
    store.agent("b").update(lambda draft: draft.update(n=1))
    with perdure.open("memory://") as target:
        with pytest.raises(Conflict, match=r"state of commit \d+, the head of branch 'side' then"):
            restored(store, moment, target)
        assert target.agents() == []
    later = store.agent("b").commit(1).at
    with perdure.open("memory://") as target:
        follower = Follower(
            backend_of(store), backend_of(target), kind="restoring", until=to_micros(moment)
        )
        (left_out,) = restore(follower, take_incomplete=True)[2]
        assert (left_out.agent, target.agents()) == ("a", [])
    with perdure.open("memory://") as target:
        restored(store, later, target)
        assert [info.name for info in target.agents()] == ["a", "b"]


def test_a_call_that_was_in_doubt_at_a_moment_is_not_restored_as_settled(store: Store) -> None:
    """A person had settled it since, and its begin was removed: in the restored store it counted as
    removed, though nobody had settled it there: whether it was paid is unknown."""
    agent = grown(store, commits=5)
    with pytest.raises(KeyboardInterrupt):
        store.run(stops, "a")
    handle = store.handle(store.runs("a")[0].id)
    handle.cancel()
    for _ in range(3):
        agent.update(lambda draft: draft.update(n=-1))
    moment, horizon = agent.commit(agent.seq).at, agent.seq
    (effect,) = handle.effects()
    agent.trim(horizon - 1)
    with perdure.open("memory://") as target:
        restored(store, moment, target)
        assert [one.state for one in target.handle(handle.id).effects()] == ["in doubt"]
    settled = handle.settle(effect.place, done=1).at
    store.agent("a").trim(horizon)
    refused = pytest.raises(Conflict, match=r"call breaks#1 of run .*, which was in doubt then")
    with perdure.open("memory://") as target, refused:
        restored(store, moment, target)
    with perdure.open("memory://") as target:
        restored(store, settled, target)


def test_a_follower_that_lost_its_source_has_no_holes(store: Store) -> None:
    """Its look ended between the commits that retention had removed and the word that says so.
    Promoted without its source, the agent was `Corrupt`."""
    agent = grown(store)
    agent.trim(30)
    with perdure.open("memory://") as target:
        follower = Follower(backend_of(store), backend_of(target))
        follower.begin()
        follower.step(limit=5)
        promote(backend_of(target), None)
        there = target.agent("a")
        there.verify()
        assert there.state == agent.state


def test_nobody_writes_to_the_stores_own_branches(store: Store) -> None:
    """`agent.branch("@retention")` could be written to. The last commit there then said nothing of
    what is gone, and the agent was `Corrupt` for everybody, for good."""
    agent = grown(store)
    agent.trim(30)
    own = agent.branch(RETENTION)
    assert list(own.log())
    for write in (
        lambda: own.adopt("main"),
        lambda: own.rollback(1),
        lambda: own.undo(),
        lambda: own.checkpoint("there"),
        lambda: own.save({"x": 1}),
        lambda: own.update(lambda draft: draft.update(x=1)),
        lambda: agent.delete_branch(RETENTION),
    ):
        with pytest.raises((Conflict, NotFound)):
            write()
    agent.verify()
    assert agent.trim(agent.seq).removed > 0


@pytest.mark.parametrize("seed", range(3))
def test_beside_writers_of_all_kinds_every_branch_can_be_read(place: Place, seed: int) -> None:
    """Who edits, forks and goes back gets through, or is refused and leaves no trace."""
    grown(place.open())
    stop = threading.Event()
    trouble: list[BaseException] = []

    def work(number: int) -> None:
        luck = random.Random(f"{seed} {number}")
        handle = place.open().agent("a")
        count = 0
        try:
            while not stop.is_set():
                count += 1
                with suppress(Conflict, NotFound):
                    at = max(1, handle.seq - luck.randrange(30))
                    match luck.randrange(5):
                        case 0:
                            handle.fork(f"fork-{number}-{count}", at=at)
                        case 1:
                            handle.rollback(at)
                        case 2 if count % 10 == 0:
                            handle.checkpoint(f"point-{number}-{count}")
                        case _:
                            handle.update(lambda draft: draft.setdefault("log", []).append(WORDS))
                with suppress(Conflict):
                    handle.refresh()
                time.sleep(0.001)
        except BaseException as error:
            trouble.append(error)

    def look() -> None:
        handle = place.open().agent("a")
        try:
            while not stop.is_set():
                handle.verify()
        except BaseException as error:
            trouble.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    workers.append(threading.Thread(target=look))
    for worker in workers:
        worker.start()
    agent = place.open().agent("a")
    removed = 0
    for _ in range(8):
        with suppress(Conflict):
            agent.refresh()
            removed += agent.trim(max(1, agent.seq - 10)).removed
    stop.set()
    for worker in workers:
        worker.join()
    assert trouble == []
    assert removed
    fresh = place.open().agent("a")
    fresh.verify()
    for branch in fresh.branches():
        if branch.name != RETENTION:
            assert fresh.branch(branch.name).seq == branch.head
    for point in fresh.checkpoints():
        fresh.at(point.name).read()
