"""What runs told each other, in stores that were filled from logs: restored, or by imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

import perdure
from perdure import replication
from perdure.cli.portable import write_log
from perdure.core.values import codec
from perdure.engine.control import unbegun
from perdure.errors import Corrupt, NeedsAttention, RunFailed
from perdure.storage.locate import _named_memories
from perdure.store import Store
from perdure.testing import run_until_waiting
from perdure.transfer.portable_file import Portable, read_file
from tests.engine.test_restored_mail import now
from tests.postgres.server import kinds, shared

BOSS, KID = "boss/parent/main", "kid/child/k"


@perdure.agent(dict)
def child(run: perdure.Run[dict]) -> Any:
    return run.wait_for("go")


@perdure.agent(dict)
def parent(run: perdure.Run[dict], picky: bool) -> Any:
    kid = run.options(key="k").start(child, "kid")
    try:
        if picky:
            return run.select(kid=kid, never=perdure.Signal("never")).value
        return kid.result()
    except RunFailed as error:
        return error.problem


@perdure.agent(dict)
def sends_off(run: perdure.Run[dict], picky: bool) -> None:
    run.options(key="k", let_live=True).start(child, "kid")


@perdure.agent(dict)
def leaves(run: perdure.Run[dict]) -> None:
    run.options(key="k", let_live=True).start(child, "kid")
    run.wait_for("never")


@pytest.fixture(params=kinds(["memory", "sqlite"], listed=True))
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    if request.param == "postgres":
        yield shared().new_url(), shared().new_url()
    elif request.param == "memory":
        names = uuid4().hex, uuid4().hex
        yield f"memory://{names[0]}", f"memory://{names[1]}"
        for name in names:
            _named_memories.pop(name, None)
    else:
        yield f"sqlite:///{tmp_path / 'a.db'}", f"sqlite:///{tmp_path / 'b.db'}"


def due(store: Store) -> list[str]:
    """What a worker would go on with."""
    backend = store.runner.context.backend
    asked = [one.run for one in backend.inbox(kind="start")]
    return [*(one.id for one in backend.ready(backend.now(), 100)), *asked]


def boss(store: Store, picky: bool) -> perdure.RunHandle[Any]:
    return run_until_waiting(store, parent, "boss", picky)


def kid(store: Store) -> perdure.RunHandle[Any]:
    return run_until_waiting(store.options(key="k"), child, "kid")


def signalled(store: Store) -> Any:
    kid(store).signal("go", 5)
    return kid(store).result()


def cancelled(store: Store) -> str:
    kid(store).cancel("no use")
    return "was cancelled: no use"


ENDS = pytest.mark.parametrize("end", [signalled, cancelled])
PICKY = pytest.mark.parametrize("picky", [False, True])


@ENDS
@PICKY
def test_a_restored_parent_hears_of_its_childs_end(
    urls: tuple[str, str], end: Callable[[Store], Any], picky: bool
) -> None:
    """A child had ended by the moment, and its parent, whose worker had a break, went on with that
    later. In the restored store the child was done and its parent waited for it, for good: that it
    had ended was neither in its inbox nor in its log, and nobody can send it again."""
    with perdure.open(urls[0]) as store:
        boss(store, picky)
        result = end(store)
        moment = now(store)
        assert boss(store, picky).result() == result
    replication.restore(*urls, moment)
    with perdure.open(urls[1]) as store:
        assert due(store) == [BOSS]
        assert len(store.runner.context.backend.inbox(BOSS)) == 1
        assert boss(store, picky).result() == result
        assert due(store) == []
        for name in ("boss", "kid"):
            store.agent(name).verify()


def test_what_a_restored_parent_has_heard_is_not_told_again(urls: tuple[str, str]) -> None:
    """What is in its inbox still."""
    with perdure.open(urls[0]) as store:
        boss(store, False)
        signalled(store)
        unread = now(store)
    replication.restore(*urls, unread)
    with perdure.open(urls[1]) as store:
        assert len(store.runner.context.backend.inbox(BOSS)) == 1
        assert boss(store, False).result() == 5
        assert store.runner.context.backend.inbox() == []


@ENDS
@PICKY
@pytest.mark.parametrize("agents", [("boss", "kid"), ("kid", "boss")])
def test_a_parent_that_was_imported_hears_of_its_childs_end(
    urls: tuple[str, str], end: Callable[[Store], Any], picky: bool, agents: tuple[str, str]
) -> None:
    """The logs of both were exported when the child had ended, and its parent had not gone on
    with that yet. Where they were imported, it waited for good."""
    with perdure.open(urls[0]) as source, perdure.open(urls[1]) as store:
        boss(source, picky)
        result = end(source)
        for name in agents:
            (info,) = [one for one in source.agents() if one.name == name]
            store.import_log(source.export_log(info))
        assert due(store) == [BOSS]
        assert boss(store, picky).result() == result
        assert store.runner.context.backend.inbox() == []
        for name in agents:
            store.agent(name).verify()


def test_a_log_that_was_imported_tells_nothing_of_a_child_that_goes_on(
    urls: tuple[str, str],
) -> None:
    """It tells of its end itself, once it comes to that."""
    with perdure.open(urls[0]) as source, perdure.open(urls[1]) as store:
        boss(source, False)
        kid(source)
        for info in source.agents():
            store.import_log(source.export_log(info))
        assert due(store) == []
        signalled(store)
        assert due(store) == [BOSS]
        assert boss(store, False).result() == 5


@pytest.mark.parametrize("status", ["waiting", "done"])
def test_what_a_restored_run_asked_for_begins(urls: tuple[str, str], status: str) -> None:
    """A child was asked for by the moment, and began later, as its worker had a break. In the
    restored store there was no such run: its parent waited for good, and one that had let it live
    never got what it had asked for."""
    function = parent if status == "waiting" else sends_off
    with perdure.open(urls[0]) as store:
        before = run_until_waiting(store, function, "boss", False)
        assert before.status == status
        moment = now(store)
        signalled(store)
        run_until_waiting(store, function, "boss", False)
    replication.restore(*urls, moment)
    with perdure.open(urls[1]) as store:
        assert due(store) == [KID]
        (order,) = store.runs("kid")
        assert (order.status, order.parent) == ("pending", before.id)
        signalled(store)
        assert due(store) == ([BOSS] if status == "waiting" else [])
        assert run_until_waiting(store, function, "boss", False).status == "done"
        assert due(store) == []
        (began,) = store.runs("kid")
        assert began.parent == before.id
        for name in ("boss", "kid"):
            store.agent(name).verify()


def test_what_was_not_begun_yet_is_not_asked_for_twice(urls: tuple[str, str]) -> None:
    with perdure.open(urls[0]) as store:
        boss(store, False)
        moment = now(store)
    replication.restore(*urls, moment)
    with perdure.open(urls[1]) as store:
        assert due(store) == [KID]
        assert len(store.runner.context.backend.inbox(kind="start")) == 1


def cancelled_boss(store: Store) -> None:
    store.handle(BOSS).cancel("no use")


def moved_boss(store: Store) -> None:
    store.agent("boss").rollback(1, cancel_run=True)


CANCELS = pytest.mark.parametrize("cancel", [cancelled_boss, moved_boss])


def cancelled_together(store: Store, cancel: Callable[[Store], None] = cancelled_boss) -> datetime:
    """Gives a moment after the parent's end, and before the child's."""
    cancel(store)
    moment = now(store)
    with pytest.raises(RunFailed, match="with boss/parent/main"):
        kid(store)
    return moment


@pytest.mark.parametrize("killed", [False, True])
def test_what_was_to_end_before_it_began_does_not_begin(
    urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """Who had cancelled the parent may have been killed before it ended the child."""
    with perdure.open(urls[0]) as store:
        boss(store, False)
        if killed:
            monkeypatch.setattr(unbegun, "end_unbegun", lambda *_: False)
        moment = cancelled_together(store)
    replication.restore(*urls, moment)
    with perdure.open(urls[1]) as store:
        assert due(store) == []
        assert [run.status for run in store.runs("kid")] == ([] if killed else ["cancelled"])


@CANCELS
def test_what_was_to_end_with_its_parent_ends(
    urls: tuple[str, str], cancel: Callable[[Store], None]
) -> None:
    """The parent was cancelled by the moment, and its child, whose worker had a break, ended with
    it later. In the restored store the child went on waiting, for good."""
    with perdure.open(urls[0]) as store:
        boss(store, False)
        kid(store)
        moment = cancelled_together(store, cancel)
    replication.restore(*urls, moment)
    with perdure.open(urls[1]) as store:
        assert due(store) == [KID]
        with pytest.raises(RunFailed, match="with boss/parent/main"):
            kid(store)


def test_what_ended_with_its_parent_and_was_gone_on_with_goes_on(urls: tuple[str, str]) -> None:
    with perdure.open(urls[0]) as store:
        boss(store, False)
        kid(store)
        cancelled_together(store)
        store.handle(KID).retry("wait_for:go#1")
        assert kid(store).status == "waiting"
        moment = now(store)
    replication.restore(*urls, moment)
    with perdure.open(urls[1]) as store:
        assert due(store) == []
        assert signalled(store) == 5


def test_why_says_that_what_a_run_waits_for_was_not_imported(urls: tuple[str, str]) -> None:
    """A child had begun, and only its parent's log was imported. `why` said to ask the same of a
    run that was not there."""
    with perdure.open(urls[0]) as source, perdure.open(urls[1]) as store:
        boss(source, False)
        kid(source)
        assert source.handle(BOSS).why().ways[0].command == ("why", KID)
        take(source, store, "boss")
        run = store.handle(BOSS)
        assert run.status == "waiting" and due(store) == []
        assert run.why().ways[0].words.startswith("there is no such run")
        run.cancel("its child was not imported")
        with pytest.raises(RunFailed):
            boss(store, False)
        anew = store.options(key="anew")
        run_until_waiting(anew, parent, "boss", False)
        assert due(store) == [KID]
        assert signalled(store) == 5
        assert run_until_waiting(anew, parent, "boss", False).result() == 5


# -- imports ---------------------------------------------------------------------------------------


def exported(store: Store, name: str) -> Portable:
    """By way of a file."""
    (info,) = [one for one in store.agents() if one.name == name]
    stream = BytesIO()
    write_log(info, store.export_log(info), stream, progress=lambda done, total: None)
    stream.seek(0)
    return read_file(stream, name)


def take(source: Store, store: Store, *names: str) -> None:
    for name in names:
        take_file(store, exported(source, name))


def take_file(store: Store, file: Portable) -> None:
    store.import_log(file.entries, root=file.root)


BOTH = pytest.mark.parametrize("names", [("boss", "kid"), ("kid", "boss")])
FUNCTIONS = pytest.mark.parametrize("function", [parent, sends_off])


@FUNCTIONS
def test_what_an_imported_run_asked_for_begins(
    urls: tuple[str, str], function: Callable[..., Any]
) -> None:
    """A child was asked for, and its worker had a break, when its parent was exported: an order is
    in no log. Where that was imported it waited for a run that there was none of, for good."""
    with perdure.open(urls[0]) as source, perdure.open(urls[1]) as store:
        before = run_until_waiting(source, function, "boss", False)
        take(source, store, "boss")
        assert due(store) == [KID]
        (order,) = store.runs("kid")
        assert (order.status, order.parent) == ("pending", before.id)
        assert signalled(store) == 5
        assert run_until_waiting(store, function, "boss", False).status == "done"
        assert due(store) == []
        for name in ("boss", "kid"):
            store.agent(name).verify()


@FUNCTIONS
def test_a_fork_of_an_imported_parent_has_the_same_child(
    urls: tuple[str, str], function: Callable[..., Any]
) -> None:
    """From before its start, under a key of its own: that took a run which did not come."""
    with perdure.open(urls[0]) as source, perdure.open(urls[1]) as store:
        run_until_waiting(source, function, "boss", False)
        take(source, store, "boss")
        (info,) = store.runs("boss")
        fork = store.handle(info.id).fork("start:child#1", branch="beside")
        assert signalled(store) == 5
        beside = store.options(key=fork.info.key)
        result = run_until_waiting(beside, function, "boss", False).result()
        assert result == (5 if function is parent else None)
        assert len(store.runs("kid")) == 1


def test_a_fork_asks_where_its_origins_child_was_not_imported(urls: tuple[str, str]) -> None:
    """It had begun elsewhere. The same run was taken without a word, and waited for, for good."""
    with perdure.open(urls[0]) as source, perdure.open(urls[1]) as store:
        boss(source, False)
        kid(source)
        take(source, store, "boss")
        fork = store.handle(BOSS).fork("start:child#1", branch="beside")
        beside = store.options(key=fork.info.key)
        with pytest.raises(NeedsAttention, match="is not there"):
            run_until_waiting(beside, parent, "boss", False)
        assert due(store) == []
        fork.settle("start:child#1", not_done=True)
        run_until_waiting(beside, parent, "boss", False)
        assert due(store) == [KID]
        assert signalled(store) == 5
        assert run_until_waiting(beside, parent, "boss", False).result() == 5


@BOTH
def test_what_has_begun_by_another_file_does_not_begin_twice(
    urls: tuple[str, str], names: tuple[str, str]
) -> None:
    """The parent was exported before its child began, and the child behind that."""
    with perdure.open(urls[0]) as source, perdure.open(urls[1]) as store:
        boss(source, False)
        files = {"boss": exported(source, "boss")}
        signalled(source)
        files["kid"] = exported(source, "kid")
        for name in names:
            take_file(store, files[name])
        assert due(store) == [BOSS]
        assert boss(store, False).result() == 5
        assert store.runner.context.backend.inbox() == []


def test_what_was_to_end_before_it_began_does_not_begin_by_an_import(
    urls: tuple[str, str],
) -> None:
    with perdure.open(urls[0]) as source, perdure.open(urls[1]) as store:
        boss(source, False)
        source.handle(BOSS).cancel("no use")
        take(source, store, "boss")
        assert due(store) == [] and store.runs("kid") == []


@BOTH
@CANCELS
def test_what_was_to_end_with_its_parent_ends_where_both_are_imported(
    urls: tuple[str, str], names: tuple[str, str], cancel: Callable[[Store], None]
) -> None:
    """The parent was cancelled, and its child, whose worker had a break, not yet, when both were
    exported. Where they were imported the child went on waiting, for good."""
    with perdure.open(urls[0]) as source, perdure.open(urls[1]) as store:
        boss(source, False)
        kid(source)
        cancel(source)
        take(source, store, *names)
        assert due(store) == [KID]
        with pytest.raises(RunFailed, match="with boss/parent/main"):
            kid(store)
        assert due(store) == []


@BOTH
@pytest.mark.parametrize("why", ["lives", "went on"])
def test_what_was_not_to_end_with_its_parent_goes_on_where_both_are_imported(
    urls: tuple[str, str], names: tuple[str, str], why: str
) -> None:
    with perdure.open(urls[0]) as source, perdure.open(urls[1]) as store:
        if why == "lives":
            run = run_until_waiting(source, leaves, "boss")
            kid(source)
            run.cancel("no use")
        else:
            boss(source, False)
            kid(source)
            cancelled_together(source)
            source.handle(KID).retry("wait_for:go#1")
            kid(source)
        take(source, store, *names)
        assert due(store) == []
        assert signalled(store) == 5


@BOTH
@pytest.mark.parametrize("what", ["end", "begin", "cancel"])
def test_two_logs_that_are_imported_at_the_same_time_hear_of_each_other(
    urls: tuple[str, str], names: tuple[str, str], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each had looked for the other before that was there."""
    with perdure.open(urls[0]) as source, perdure.open(urls[1]) as store:
        boss(source, False)
        files = {"boss": exported(source, "boss")}
        if what == "cancel":
            kid(source)
            source.handle(BOSS).cancel("no use")
            files["boss"] = exported(source, "boss")
        else:
            signalled(source)
        if what == "end":
            files["boss"] = exported(source, "boss")
        files["kid"] = exported(source, "kid")
        submit = store.runner.context.committer.submit

        def submitting(proposal: Any) -> Any:
            monkeypatch.undo()
            take_file(store, files[names[1]])
            return submit(proposal)

        monkeypatch.setattr(store.runner.context.committer, "submit", submitting)
        take_file(store, files[names[0]])
        if what == "cancel":
            assert due(store) == [KID]
            with pytest.raises(RunFailed, match="with boss/parent/main"):
                kid(store)
        else:
            assert due(store) == [BOSS]
            assert boss(store, False).result() == 5
        assert due(store) == []


ORDER: dict[str, Any] = {"parent": BOSS, "function": "child", "key": "k", "args": {}}


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\xc1",
        b"\x01",
        codec.encode({"kid/child/k": 1}),
        codec.encode({"x": {}}),
        *(
            codec.encode({KID: ORDER | {name: value}})
            for name, value in [
                ("key", 1),
                ("args", {"x": "y"}),
                ("args", 5),
                ("input", [1]),
                ("input", [[], {1: 2}]),
                ("input", 5),
                ("deadline", "soon"),
                ("queue", None),
                (b"x", 1),
            ]
        ),
    ],
)
def test_orders_that_are_none_are_refused(wrong: bytes) -> None:
    with perdure.open("memory://") as source, perdure.open("memory://") as store:
        boss(source, False)
        entries = exported(source, "boss").entries
        (at,) = [n for n, entry in enumerate(entries) if entry.orders is not None]
        for place in {at, at - 1} if wrong else {at - 1}:
            bad = list(entries)
            bad[place] = replace(bad[place], orders=wrong or entries[at].orders)
            with pytest.raises(Corrupt, match="orders"):
                store.import_log(bad)
        with pytest.raises(TypeError, match="made of bytes"):
            store.import_log([replace(entries[0], orders="")])
        assert store.agents() == []
        store.import_log([replace(entry, orders=None) for entry in entries])  # as older ones are
        assert store.runs("kid") == []
