"""The order of `list`, and what it tells of a thread that is deleted meanwhile."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig

import perdure
from perdure.adapters.foreign_logs import ForeignLog
from perdure.errors import Conflict
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.threads import listing
from perdure.integrations.langgraph.threads.requested_checkpoints import ASKED_MAX, Requested
from perdure.storage.log.commits import CommitReader
from tests.integrations.langgraph.checkpoints import config, get, id_of, line, put, values_of
from tests.integrations.langgraph.conftest import Place
from tests.work import work_of


def ids(saver: PerdureSaver, thread: str = "t", ns: str | None = None) -> list[str]:
    at = config(thread, ns=ns or "")
    if ns is None:
        del at["configurable"]["checkpoint_ns"]
    return [one.config["configurable"]["checkpoint_id"] for one in saver.list(at)]


def test_a_list_goes_on_with_its_writes_when_the_thread_is_deleted(place: Place) -> None:
    """What was told after the deletion came without its writes; and where the thread had begun
    anew, they were looked for in the new one."""
    saver = place.open(keep_deleted=True)
    made = line(saver, 80)
    for at in made:
        saver.put_writes(at, [("out", id_of(at))], "task")
    whole = list(saver.list(config()))
    told = saver.list(config())
    found = [next(told) for _ in range(3)]
    place.open(keep_deleted=True).delete_thread("t")
    put(saver, {"n": "another thread"}, id=id_of(made[0]))
    saver.put_writes(made[0], [("out", "of the other")], "task")
    found += told
    assert found == whole
    assert [one.pending_writes for one in found] == [
        [("task", "out", id_of(one.config))] for one in whole
    ]


def test_a_list_reads_each_commit_once_or_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit of a small thread was read and proved four times: to find the checkpoints, their
    parents, their writes by keys one after the other, and what came behind them. A list took two
    to twenty times as long as with LangGraph's saver. What is left to be read twice is what the
    first state of a page is folded from."""
    saver = place.open()
    at = put(saver, {"n": 0})
    for number in range(99):
        saver.put_writes(at, [("out", number)], f"{number}")
        at = put(saver, {"n": number}, at, number + 2)
    asked: list[str] = []

    def count(owner: type, name: str, what: str) -> None:
        called = getattr(owner, name)

        def counting(self: Any, *args: Any, **more: Any) -> Any:
            asked.append(what)
            return called(self, *args, **more)

        monkeypatch.setattr(owner, name, counting)

    count(ForeignLog, "key", "look-up")
    count(ForeignLog, "keys", "look-up")
    count(CommitReader, "_decode", "commit")
    found = list(place.open().list(config()))
    assert len(found) == 100
    assert [one.pending_writes for one in found[1:]] == [
        [(f"{number}", "out", number)] for number in reversed(range(99))
    ]
    assert asked.count("commit") <= 2 * 199 + 100
    assert asked.count("look-up") <= 10


def test_a_long_list_forgets_what_it_told(saver: PerdureSaver) -> None:
    """What it has read above is dropped; a checkpoint with few writes far above is told whole."""
    made = line(saver, 400)
    saver.put_writes(made[0], [("out", "late")], "task")
    found = list(saver.list(config()))
    assert len(found) == 400
    assert found[-1].pending_writes == [("task", "out", "late")]
    assert [len(one.checkpoint["channel_values"]["log"]) for one in found] == list(
        reversed(range(400))
    )


def test_checkpoints_of_all_namespaces_come_by_descending_id(saver: PerdureSaver) -> None:
    """Each namespace was in order, and all of them together were not: a subgraph's checkpoints
    were put long after others with greater ids."""
    at = None
    for number in range(100):
        at = put(saver, {"n": number}, at or config(), id=f"c{number:03}")
    inner = None
    for number in range(60):
        inner = put(saver, {"n": number}, inner or config(ns="sub:1"), id=f"b{number:03}")
    for number in range(60):
        at = put(saver, {"n": number}, at or config(), id=f"d{number:03}")
    found = ids(saver)
    assert len(found) == 220
    assert found == sorted(found, reverse=True)
    assert ids(saver, ns="sub:1") == sorted(ids(saver, ns="sub:1"), reverse=True)


def test_a_copy_is_listed_in_order_with_what_it_was_copied_from(saver: PerdureSaver) -> None:
    """All of the copy's own came first, whatever their ids."""
    at = None
    for number in range(50):
        at = put(saver, {"n": number}, at or config(), id=f"c{number:03}")
    saver.copy_thread("t", "u")
    later = config("u", "c049")
    for number in range(50):
        later = put(saver, {"n": number}, later, id=f"b{number:03}")
    found = ids(saver, "u", ns="")
    assert len(found) == 100
    assert found == sorted(found, reverse=True)
    put(saver, {"n": "again"}, config("u"), id="c007")
    assert ids(saver, "u", ns="") == found
    assert values_of(saver, config("u", "c007")) == {"n": "again"}
    assert values_of(saver, config("t", "c007")) == {"n": 7}


def test_going_back_is_no_race_however_many_threads_are_used_between(place: Place) -> None:
    """What a thread had been asked for was forgotten with the thread, after 64 others were used;
    going on from there was then called a race."""
    saver = place.open(on_race="conflict")
    root, _ = line(saver, 2)
    assert get(saver, root).config == root
    for number in range(70):
        put(saver, {"n": number}, config(f"other-{number}"))
    put(saver, {"n": "tried again"}, root, 3)
    assert len(ids(saver)) == 3


def test_nobody_asked_for_is_a_race_still(place: Place) -> None:
    saver = place.open(on_race="conflict")
    root, _ = line(saver, 2)
    for number in range(70):
        put(saver, {"n": number}, config(f"other-{number}"))
    with pytest.raises(Conflict):
        put(saver, {"n": "loser"}, root, 3)


def test_what_was_asked_for_is_bounded_and_the_oldest_goes_first() -> None:
    asked = Requested()
    asked.note("t", "", "first")
    asked.note("t", "", "second")
    asked.note("t", "", "first")
    for number in range(ASKED_MAX - 1):
        asked.note("t", "", str(number))
    assert asked.knows("t", "", "first")
    assert not asked.knows("t", "", "second")
    assert not asked.knows("u", "", "first")


@pytest.mark.parametrize("seed", [28, 44, 56, 61, 105])
def test_a_list_tells_each_checkpoint_as_it_is_asked_for(
    place: Place, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Ids in any order, lines that branch anywhere, pages of few: states move on in place, and what
    a commit adds becomes part of them. One that was gone over twice added what others had made of
    it since."""
    monkeypatch.setattr(listing, "FIRST", 3)
    monkeypatch.setattr(listing, "PAGE", 3)
    rolls = random.Random(seed)
    saver = place.open()
    made: list[tuple[RunnableConfig, list[list[int]]]] = []
    ids_left = [f"c{number:02}" for number in range(24)]
    rolls.shuffle(ids_left)
    for number, id in enumerate(ids_left):
        parent, log = rolls.choice(made[-4:]) if made else (None, [])
        log = [list(items) for items in log]
        if log and rolls.random() < 0.6:
            rolls.choice(log).append(number)
        else:
            log.append([number])
        at = put(saver, {"log": log}, parent, number + 1, id=id, source="fork")
        made.append((at, log))
    told = list(place.open().list(config(), filter={"source": "fork"} if seed % 2 else None))
    assert [id_of(one.config) for one in told] == sorted(ids_left, reverse=True)
    logs = {id_of(at): log for at, log in made}
    for one in told:
        assert one.checkpoint["channel_values"]["log"] == logs[id_of(one.config)]


def paged(thread: str = "t", ns: str | None = None, before: str = "") -> dict[str, Any]:
    at = config(thread, ns=ns or "")
    if ns is None:
        del at["configurable"]["checkpoint_ns"]
    return {"config": at, "before": {"configurable": {"checkpoint_id": before}}}


def page_of(saver: PerdureSaver, at: dict[str, Any], limit: int | None) -> list[Any]:
    return list(saver.list(**at, limit=limit))


def test_an_old_page_takes_as_long_as_a_new_one() -> None:
    """Each page was looked for from the log's end: to page through a long conversation took time
    with the square of its length. To read one of the first checkpoints read the whole log, and kept
    it."""
    pages, early = list[int](), list[int]()
    for length in (200, 1600):
        with perdure.open("memory://") as store:
            made = line(PerdureSaver(store), length)
            saver = PerdureSaver(store)
            old = paged(before=id_of(made[50]))
            pages.append(work_of(partial(page_of, saver, old, 10)))
            early.append(work_of(partial(get, saver, made[5])))
    assert pages[1] < 1.5 * pages[0]
    assert early[1] < 1.5 * early[0]


@pytest.mark.parametrize("seed", range(4))
def test_each_page_is_a_part_of_the_whole(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Wherever a page begins: with lines that branch, a subgraph's checkpoints and writes in
    between, writes that come much later, and what is read in a copy."""
    monkeypatch.setattr(listing, "STRETCH", 2 + seed)
    monkeypatch.setattr(listing, "WINDOW", 4)
    rolls, saver = random.Random(seed), PerdureSaver(perdure.open("memory://"))
    thread, made, inner = "t", list[RunnableConfig](), list[RunnableConfig]()
    for number in range(60):
        if number == 40:
            saver.copy_thread("t", "u")
            thread = "u"
        ahead = number // 2 * 2 + 1 - number % 2 if seed % 2 else number
        parent = rolls.choice(made[-2:]) if made and seed > 1 else made[-1] if made else config()
        parent = config(thread, id_of(parent)) if made else parent
        made.append(put(saver, {"n": number}, parent, number + 1, id=f"c{ahead:02}", source="fork"))
        if rolls.random() < 0.4:
            at = config(thread, f"i{number - 3:02}", "sub") if inner else config(thread, ns="sub")
            inner.append(put(saver, {"n": number}, at, id=f"c{number:02}5"))
        if rolls.random() < 0.5:
            late = config(thread, id_of(rolls.choice(made)))
            saver.put_writes(late, [("out", number)], f"{number}")
    for ns in ("", "sub", None):
        whole = list(saver.list(paged(thread, ns)["config"]))
        assert len(whole) > 10
        assert [id_of(at.config) for at in whole] == sorted(
            (id_of(at.config) for at in whole), reverse=True
        )
        for number in range(seed, 60, 7):
            page = paged(thread, ns, f"c{number:02}3")
            below = [one for one in whole if id_of(one.config) < f"c{number:02}3"]
            assert page_of(saver, page, None) == below
            assert page_of(saver, page, 3) == below[:3]
        for one in whole[::7]:
            same = [at for at in whole if at.config == one.config]
            assert list(saver.list(one.config)) == same
