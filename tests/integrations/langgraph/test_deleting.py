"""What deleted threads leave: nothing that takes room, unless a copy lives on it."""

from __future__ import annotations

import pytest

from perdure.errors import Corrupt, NotFound
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.threads import thread_deletion
from perdure.retention import purging
from perdure.storage.capabilities import Backend
from tests.integrations.langgraph.checkpoints import (
    checkpoint,
    config,
    get,
    id_of,
    line,
    put,
    values_of,
)
from tests.integrations.langgraph.conftest import Place


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with much to do must not look like one that leaves something."""
    monkeypatch.setattr(thread_deletion, "PURGE_S", 60.0)


def backend_of(saver: PerdureSaver) -> Backend:
    return saver.store._context.backend


def left_of(saver: PerdureSaver, thread: str = "t", incarnation: int = 1) -> int:
    """Commits that are stored of a thread."""
    info = backend_of(saver).agent(thread, incarnation)
    assert info is not None
    return backend_of(saver).maintain("sizes", no=info.no).commits


def test_a_deleted_thread_leaves_one_commit(place: Place) -> None:
    """It stayed in the file for ever: fifty deleted threads took the room of fifty."""
    saver = place.open()
    made = line(saver, 40)
    saver.put_writes(made[-1], [("out", 1)], "task")
    line(saver, 3, config("t", ns="node:1"))
    line(saver, 5, config("other"))
    before = list(saver.list(config("other")))
    saver.delete_thread("t")
    assert left_of(saver) == 1
    assert backend_of(saver).to_purge() == []
    for one in (saver, place.open()):
        assert one.get_tuple(config()) is None
        assert one.get_tuple(made[3]) is None
        assert list(one.list(config())) == []
        assert list(one.list(config("other"))) == before
    info = saver.store.find("t")
    assert info is not None and info.purged
    proved = saver.store.agent_of(info).verify()
    assert proved.purged and proved.commits == info.seq
    assert saver.store.agent_of(info).verify(anchor=proved.root) == proved
    with pytest.raises(NotFound, match="purged"):
        list(saver.store.agent_of(info).log())
    with pytest.raises(NotFound, match="purged"):
        list(saver.store.export_log(info))


def test_many_threads_that_come_and_go_take_the_room_of_few(place: Place) -> None:
    saver = place.open()
    for number in range(30):
        line(saver, 10, config(f"t{number}"))
        saver.delete_thread(f"t{number}")
    assert saver.store.sizes().commits == 30
    assert saver.store.sizes().snapshots == 0


def test_nothing_late_comes_into_a_thread_that_was_purged(place: Place) -> None:
    saver, late = place.open(), place.open()
    made = line(saver, 3)
    assert values_of(late, made[-1])["n"] == 2
    saver.delete_thread("t")
    for one in (saver, late):
        with pytest.raises(NotFound, match="was deleted"):
            put(one, {"n": 9}, made[-1], 4)
        with pytest.raises(NotFound, match="was deleted"):
            one.put_writes(made[-1], [("out", 1)], "task")
    new = put(saver, {"n": "new"})
    for one in (saver, late):
        with pytest.raises(NotFound, match="was deleted"):
            put(one, {"n": 9}, made[-1], 4)
        with pytest.raises(NotFound, match="was deleted"):
            one.put_writes(made[0], [("out", 1)], "task")
        assert [one.config for one in late.list(config())] == [new]
    assert values_of(late) == {"n": "new"}


def test_what_a_copy_reads_stays_until_the_copy_goes(place: Place) -> None:
    saver = place.open()
    made = line(saver, 20)
    saver.copy_thread("t", "copy")
    saver.copy_thread("copy", "copy of it")
    saver.delete_thread("t")
    whole = [one.checkpoint for one in place.open().list(config("copy"))]
    assert len(whole) == 20
    saver.delete_thread("copy")  # it is read by the other, and reads the first
    assert left_of(saver) > 20 and left_of(saver, "copy") > 1
    for one in (saver, place.open()):
        assert [two.checkpoint for two in one.list(config("copy of it"))] == whole
        assert get(one, config("copy of it", id_of(made[3]))).checkpoint["id"] == id_of(made[3])
    saver.store.agent_of(saver.store.find("t")).verify()  # type: ignore[arg-type]
    saver.delete_thread("copy of it")
    assert [left_of(saver, name) for name in ("t", "copy", "copy of it")] == [1, 1, 1]


def test_a_copy_that_went_on_still_reads_its_origin(place: Place) -> None:
    saver = place.open()
    made = line(saver, 5)
    saver.copy_thread("t", "copy")
    on = put(saver, {"n": "on"}, config("copy", id_of(made[-1])), 6)
    saver.delete_thread("t")
    assert values_of(place.open(), on) == {"n": "on"}
    assert len(list(place.open().list(config("copy")))) == 6


def test_a_copy_that_is_being_made_keeps_its_origin(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The origin is deleted between what is said in its log of the copy and its first commit."""
    saver, other = place.open(), place.open()
    line(saver, 5)
    create = type(saver._logs).create

    def slow(*args: object, **more: object) -> object:
        other.delete_thread("t")
        return create(*args, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(type(saver._logs), "create", slow)
        saver.copy_thread("t", "copy")
    assert len(list(place.open().list(config("copy")))) == 5
    saver.delete_thread("copy")
    assert left_of(saver) == 1


def test_a_copy_that_was_never_made_keeps_nothing_for_ever(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = place.open()
    line(saver, 5)

    def killed(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(type(saver._logs), "create", killed)
        saver.copy_thread("t", "copy")
    saver.delete_thread("t")
    assert left_of(saver) > 1
    monkeypatch.setattr(purging, "ANNOUNCED_US", 0)
    assert [info.name for info in saver.store.purge().agents] == ["t"]
    assert left_of(saver) == 1


def test_a_deleted_thread_is_no_source_of_copies(place: Place) -> None:
    saver, late = place.open(), place.open()
    line(saver, 3)
    get(late)
    saver.delete_thread("t")
    with pytest.raises(NotFound, match="no such thread"):
        late.copy_thread("t", "copy")
    assert saver.store.find("copy") is None


def test_threads_that_are_kept_can_be_purged_by_name(place: Place) -> None:
    saver = place.open(keep_deleted=True)
    made = line(saver, 10)
    saver.delete_thread("t")
    line(saver, 2)
    saver.delete_thread("t")
    assert (left_of(saver), left_of(saver, "t", 2)) == (len(made) + 1, 3)
    assert saver.store.purge().agents == []
    assert [info.incarnation for info in saver.store.purge("t").agents] == [1, 2]
    assert (left_of(saver), left_of(saver, "t", 2)) == (1, 1)
    for name in ("t2", "alive"):
        put(saver, {"n": 1}, config("alive"), id="c1")
        with pytest.raises(NotFound, match="no deleted agent"):
            saver.store.purge(name)


def test_what_a_killed_process_left_goes_when_the_next_thread_begins(place: Place) -> None:
    first = place.open()
    line(first, 10)
    first.store.delete("t", purge=True)  # and then it was killed
    assert left_of(first) > 10
    second = place.open()
    put(second, {"n": 1}, config("another"))
    assert left_of(second) == 1


def test_a_long_thread_goes_a_part_at_a_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call must not take as long as all of a thread takes: what is left goes when others come
    or go."""
    saver = place.open()
    line(saver, 30)
    backend = backend_of(saver)
    purge = backend.purge
    monkeypatch.setattr(backend, "purge", lambda no: purge(no, 8))
    monkeypatch.setattr(thread_deletion, "PURGE_S", 0.0)
    saver.delete_thread("t")
    left = left_of(saver)
    assert left > 1
    with pytest.raises(NotFound):
        put(saver, {"n": 1}, config("t", "c1"))
    for number in range(40):
        put(saver, {"n": 1}, config(f"new-{number}"))
    assert left_of(saver) == 1


def test_a_store_that_cannot_purge_deletes_all_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role of PostgreSQL that may only append, or a disk that fails at that moment."""
    saver = place.open()
    line(saver, 5)

    def fails(no: int, limit: int = 0) -> bool:
        raise Corrupt("a page is damaged")

    with monkeypatch.context() as patch:
        patch.setattr(backend_of(saver), "purge", fails)
        saver.delete_thread("t")
    assert saver.get_tuple(config()) is None
    assert len(saver.store.purge().agents) == 1


def test_a_list_of_a_thread_that_is_purged_ends_with_an_error(place: Place) -> None:
    saver = place.open()
    line(saver, 80)
    listing = saver.list(config())
    next(listing)
    place.open().delete_thread("t")
    with pytest.raises(NotFound, match="purged"):
        list(listing)


def test_ids_of_ones_own_may_begin_anew(place: Place) -> None:
    """Of a purged log only times are known: ids that have none are taken for new ones."""
    saver = place.open()
    saver.put(config("t"), checkpoint({"n": 1}, id="a"), {"source": "loop", "step": 1}, {})
    saver.delete_thread("t")
    saver.put(config("t"), checkpoint({"n": 2}, id="b"), {"source": "loop", "step": 1}, {})
    saver.put(config("t", "z"), checkpoint({"n": 3}, id="c"), {"source": "loop", "step": 2}, {})
    assert values_of(saver) == {"n": 3}


@pytest.mark.parametrize("first", ["writes", "child"])
def test_a_thread_that_somebody_else_begins_just_now_was_not_deleted(
    place: Place, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Two processes began a thread at once. One had found none, looked whether it had been
    deleted, found the other's, and refused its writes as too late."""
    ours, theirs = place.open(), place.open()
    thread, new = ours._thread("t"), checkpoint({"n": 1}, 2)
    views, begun = thread.views, [put(theirs, {"n": 0}, config("elsewhere"))]

    def views_before() -> object:
        found = views()
        if begun:
            begun.pop()
            put(theirs, {"n": 0})
        return found

    monkeypatch.setattr(thread, "views", views_before)
    if first == "writes":
        ours.put_writes(config("t", new["id"]), [("out", 1)], "task")
        put(ours, {"n": 1}, None, 2, new["id"])
        assert get(ours, config("t", new["id"])).pending_writes == [("task", "out", 1)]
    else:
        put(ours, {"n": 1}, config("t", new["id"]), 2)
    assert not begun
    assert {at.checkpoint["channel_values"]["n"] for at in theirs.list(config())} == {0, 1}
    assert len(list(theirs.list(config()))) == 2
