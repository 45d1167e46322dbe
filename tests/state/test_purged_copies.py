"""Logs that are purged at a source go at its copies, too.

The story: somebody asked to be forgotten. Their agent was deleted, and weeks later `perdure purge`
removed its log. The store's follower had taken in the deletion, which does not speak of a purge,
and nothing came after it: all that was said stayed readable in the copy, for ever.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

import perdure
from perdure import Store
from perdure.model import AgentInfo
from perdure.replication import DivergedError, migrate, promote
from perdure.retention import purging
from perdure.retention.trimming import carry_out
from perdure.storage.capabilities import Shipment
from perdure.storage.log.reader import LogReader
from perdure.transfer import removal_at_copy
from perdure.transfer.follower import Follower
from tests.damaging import Vandal
from tests.postgres.server import shared
from tests.state.conftest import Place
from tests.state.copies import backend_of, picture, short, verify_all
from tests.state.test_replication import until

SECRET = "the words that somebody wants forgotten"


def follower_of(source: Store, target: Store, **more: Any) -> Follower:
    follower = Follower(backend_of(source), backend_of(target))
    follower.begin(**more)
    follower._retry_at = 0.0
    return follower


def follow(source: Store, target: Store, **more: Any) -> None:
    follower_of(source, target, **more).drain()


def say(store: Store, name: str, *words: str) -> None:
    for word in words:
        with store.agent(name).edit("said") as draft:
            draft.setdefault("said", []).append(word)


def delete(store: Store, name: str, *words: str, purge: bool = False) -> None:
    say(store, name, *words)
    store.delete(name, purge=purge)


def has(store: Store, name: str) -> bool:
    return store.find(name) is not None


def has_all_of(source: Store, target: Store, name: str) -> bool:
    here, there = source.find(name), target.find(name)
    return here is not None and there is not None and here.seq == there.seq


def readable(store: Store) -> list[tuple[str, int]]:
    """The deleted agents of whose logs more is there than the deletion."""
    found, cursor = set(), ""
    backend = backend_of(store)
    while (part := backend.feed(cursor, to_the_end=True)).entries:
        found |= {(fed.agent, fed.incarnation) for fed in part.entries}
        cursor = part.cursor
    infos = [backend.agent(*one) for one in sorted(found)]
    return [
        (info.name, info.incarnation)
        for info in infos
        if info is not None and info.deleted and len(backend.read(info.no, 1, info.seq)) > 1
    ]


def followed(source: Store, target: Store, **more: Any) -> list[tuple[str, int]]:
    """What is readable at the target once a follower has looked."""
    follow(source, target, **more)
    return readable(target)


def stepped(follower: Follower, target: Store) -> list[tuple[str, int]]:
    """The same after one look, which tries again what was refused."""
    follower._retry_at = 0.0
    follower.step()
    return readable(target)


def gone(source: Store, target: Store, **more: Any) -> Callable[[], bool]:
    """True once a follower that looked has nothing more to read than its source. PostgreSQL's feed
    may hold something back, for the sake of other databases of its server."""

    return lambda: followed(source, target, **more) == readable(source)


@pytest.mark.parametrize("again", [False, True])
def test_a_purge_by_name_reaches_the_copy(place: Place, other: Place, again: bool) -> None:
    source, target = place.open(), other.open()
    delete(source, "a", SECRET, "more")
    delete(source, "kept", "for an audit")
    if again:
        say(source, "a", "somebody else, under this name")
        source.start(short, "a", 1)
    until(lambda: followed(source, target) == [("a", 1), ("kept", 1)])
    source.purge("a")
    until(gone(source, target))
    assert readable(target) == [("kept", 1)]
    assert picture(backend_of(source)) == picture(backend_of(target))
    verify_all(backend_of(target))


@pytest.mark.parametrize("lacking", [1, 2])
def test_a_purge_comes_along_with_the_deletion(place: Place, other: Place, lacking: int) -> None:
    """Somebody's agent was deleted, and purged by its name, before the follower looked again. The
    deletion was all that the copy lacked, and became a deletion like any other there: all that was
    said stayed readable in the copy, for ever, beside a source that had nothing of it."""
    source, target = place.open(), other.open()
    say(source, "a", SECRET, "more")
    until(lambda: followed(source, target) == [] and has_all_of(source, target, "a"))
    say(source, "a", *["the last word"] * (lacking - 1))
    source.delete("a")
    source.purge("a")
    until(lambda: followed(source, target) == [] and has_all_of(source, target, "a"))
    assert picture(backend_of(source)) == picture(backend_of(target))
    verify_all(backend_of(target))


def test_nothing_of_it_is_left_in_the_copys_file(place: Place, tmp_path: Path) -> None:
    """As complete as at the source: neither in the file nor in its WAL, once room is given back."""
    copy = Place(str(tmp_path / "copy.db"))
    source, target = place.open(), copy.open()
    delete(source, "a", *(f"{SECRET}, {n}" for n in range(50)))
    until(lambda: followed(source, target) == [("a", 1)])
    source.purge("a")
    until(gone(source, target))
    target.shrink()
    copy.close()
    for file in tmp_path.glob("copy.db*"):
        assert file.is_dir() or SECRET.encode() not in file.read_bytes()


class KilledError(BaseException):
    """The follower's process ended here."""


@pytest.mark.parametrize("then", ["followed on", "source is lost", "handed over"])
def test_a_follower_is_killed_between_the_word_and_the_removal(
    place: Place, other: Place, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """It had noted that it knows of all of it. Whoever comes next has to remove what is left."""
    source, target = place.open(), other.open()
    delete(source, "a", SECRET, "more")
    delete(source, "b", "more")
    until(lambda: followed(source, target) == [("a", 1), ("b", 1)])
    source.purge("a")

    def killed(_: Any) -> None:
        raise KilledError

    follower = follower_of(source, target)
    with monkeypatch.context() as patched:
        patched.setattr(removal_at_copy.RemovalAtCopy, "purge", killed)
        with pytest.raises(KilledError):
            until(lambda: bool(stepped(follower, target)) and False)
    assert readable(target) == [("a", 1), ("b", 1)]
    if then == "followed on":
        follower_of(source, target)
    elif then == "source is lost":
        promote(other.url, source_is_lost=True)
    else:
        promote(other.url, place.url)
    assert readable(target) == [("b", 1)]
    verify_all(backend_of(target))


def test_what_retention_said_is_removed_where_the_source_is_lost(
    place: Place, other: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower had the word of a trim, and was killed. The promoted copy took itself for tidy,
    and its log said that something was gone that could be read."""
    source, target = place.open(), other.open()
    say(source, "a", SECRET, *"123456789")
    until(lambda: followed(source, target) == [] and has_all_of(source, target, "a"))
    source.agent("a").trim(8)
    with monkeypatch.context() as patched:
        patched.setattr(removal_at_copy.RemovalAtCopy, "trim", lambda self, agents: None)
        until(lambda: followed(source, target) == [] and has_all_of(source, target, "a"))
    assert target.agent("a").at(2).plain == {"said": [SECRET]}
    promote(other.url, source_is_lost=True)
    assert target.agent("a").verify().trimmed == source.agent("a").verify().trimmed > 0
    for seq in range(2, 7):
        with pytest.raises(perdure.NotFound):
            target.agent("a").at(seq).read()


def test_a_purge_reaches_an_agent_that_is_set_aside(place: Place, other: Place) -> None:
    """The name lived again, with a commit that no copy takes: nothing of that name was read."""
    source, target = place.open(), other.open()
    delete(source, "a", SECRET, "more")
    say(source, "a", "again")
    Vandal(source, "a").damage("no envelope")
    follower = follower_of(source, target)
    until(lambda: stepped(follower, target) == [("a", 1)] and bool(follower.aside))
    source.purge("a")

    until(lambda: stepped(follower, target) == [])
    assert [one.agent for one in follower.aside] == ["a"]


def test_what_cannot_be_purged_now_is_purged_later(
    place: Place, other: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target refused, or something there still read the log; that was looked at again when the
    next agent was purged, maybe never."""
    source, target = place.open(), other.open()
    delete(source, "a", SECRET, "more")
    delete(source, "b", SECRET, "more")
    follower = follower_of(source, target)
    until(lambda: stepped(follower, target) == [("a", 1), ("b", 1)])
    source.purge("a")
    source.purge("b")
    tries = 0

    def refused(*_: Any) -> bool:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise perdure.StoreUnavailable("is busy", target="the target")
        return tries == 2  # in the way is a copy that is about to go

    monkeypatch.setattr(purging, "is_needed", refused)

    until(lambda: stepped(follower, target) == [])
    assert tries > 2 and not follower.shipper.retries


def test_what_cannot_be_trimmed_now_is_trimmed_later(
    place: Place, other: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = place.open(), other.open()
    say(source, "a", SECRET, *"123456789")
    until(lambda: followed(source, target) == [] and has_all_of(source, target, "a"))
    source.agent("a").trim(8)
    tries = 0

    def refused(backend: Any, reader: LogReader) -> int | None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise perdure.StoreUnavailable("is busy", target="the target")
        return carry_out(backend, reader)

    monkeypatch.setattr(removal_at_copy, "carry_out", refused)
    follower = follower_of(source, target)
    wanted = source.agent("a").verify().trimmed

    def trimmed() -> bool:
        stepped(follower, target)
        return has(target, "a") and target.agent("a").verify().trimmed == wanted

    until(trimmed)
    assert tries == 2 and not follower.shipper.retries


def test_a_purge_goes_on_along_a_chain_of_copies(
    place: Place, other: Place, tmp_path: Path
) -> None:
    """From a store to the copy that took its place, from there to the next one, and back."""
    source, second = place.open(), other.open()
    third = Place(str(tmp_path / "third.db"))
    delete(source, "a", SECRET, "more")
    say(source, "b", "lives")
    until(lambda: followed(source, second) == [("a", 1)])
    promote(other.url, place.url)
    last = third.open()
    for one in (last, source):
        until(gone(second, one, resync=True))
        assert readable(one) == [("a", 1)]
    second.purge("a")
    for one in (last, source):
        until(gone(second, one))
        verify_all(backend_of(one))
    third.close()


def test_a_promoted_copy_keeps_what_it_did_itself(place: Place, other: Place) -> None:
    """An old primary purges what it has under a name that lives on in its copy."""
    source, target = place.open(), other.open()
    say(source, "a", SECRET, "more")
    until(lambda: followed(source, target) == [] and not follower_of(source, target).lag().commits)
    promote(other.url, source_is_lost=True)
    say(target, "a", "its own")
    delete(source, "a", "too late")
    source.purge("a")
    with pytest.raises(DivergedError):
        follow(source, target)
    assert target.agent("a").state == {"said": [SECRET, "more", "its own"]}
    verify_all(backend_of(target))


def test_a_source_that_is_put_back_revives_nothing(other: Place, tmp_path: Path) -> None:
    """From a backup of the day before the purge. The copy has what it had, and takes what comes."""
    path, backup = tmp_path / "source.db", tmp_path / "backup.db"
    target = other.open()
    with perdure.open(path) as source:
        delete(source, "a", SECRET, "more")
        say(source, "b", "lives")
        follow(source, target)
    shutil.copy(path, backup)
    with perdure.open(path) as source:
        source.purge("a")
        follow(source, target)
    assert readable(target) == []
    for file in tmp_path.glob("source.db*"):
        if file.is_file():
            file.unlink()
    shutil.copy(backup, path)
    with perdure.open(path) as source:
        say(source, "b", "on")
        assert readable(source) == [("a", 1)]
        follow(source, target)
        assert readable(target) == []
        assert target.agent("b").state == {"said": ["lives", "on"]}
        source.purge("a")
        follow(source, target)
        assert picture(backend_of(source)) == picture(backend_of(target))


def test_a_copy_that_is_put_back_is_purged_again(place: Place, tmp_path: Path) -> None:
    path, backup = tmp_path / "copy.db", tmp_path / "backup.db"
    source = place.open()
    delete(source, "a", SECRET, "more")

    def looked(wanted: list[tuple[str, int]]) -> bool:
        with perdure.open(path) as target:
            follow(source, target)
            return readable(target) == wanted

    until(lambda: looked([("a", 1)]))
    shutil.copy(path, backup)
    source.purge("a")
    until(lambda: looked([]))
    for file in tmp_path.glob("copy.db*"):
        if file.is_file():
            file.unlink()
    shutil.copy(backup, path)
    until(lambda: looked([]))


@pytest.mark.parametrize("way", ["promoted", "moved"])
def test_a_purge_that_a_foreign_transaction_hides(
    other: Place, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """PostgreSQL's feed gives nothing that is younger than the oldest transaction of its server, a
    backup say. The copy took the place of its source meanwhile, and nobody looked again."""
    place = Place(shared().new_url())
    source, target = place.open(), other.open()
    delete(source, "a", SECRET, "more")
    if way == "promoted":
        until(lambda: followed(source, target) == [("a", 1)])
    with psycopg.connect(place.url.partition("?")[0]) as backup:
        backup.execute("SELECT pg_current_xact_id()")
        source.purge("a")
        if way == "promoted":
            promote(other.url, place.url)
        else:
            migrate(place.url, other.url)
    assert readable(target) == []
    verify_all(backend_of(target))
    place.close()


def test_a_deletion_lets_go_what_the_deleted_agent_read(place: Place, other: Place) -> None:
    """A copy of an agent was deleted for an audit, then its origin was purged, which it had read.
    At the follower the origin stayed until another agent was purged."""
    source, target = place.open(), other.open()
    delete(source, "origin", SECRET, "more", purge=True)
    say(source, "copy", "reads it")
    needs = "copy"

    def may_go(backend: Any, info: AgentInfo, known: Any = None) -> bool:
        reader = backend.agent(needs)
        return info.name == "origin" and reader is not None and not reader.deleted

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(purging, "is_needed", may_go)
        patched.setattr(removal_at_copy, "is_needed", may_go)
        until(lambda: followed(source, target) == [("origin", 1)] and has(target, "copy"))
        follower = follower_of(source, target)
        source.delete("copy")
        until(lambda: stepped(follower, target) == [("copy", 1)])


def test_who_begins_anew_keeps_their_messages(
    place: Place, other: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another agent's commits were refused, so each agent's went alone. What was left of the purged
    log emptied the inbox of the name, and nobody filled it again."""
    source, target = place.open(), other.open()
    delete(source, "a", SECRET, "more", purge=True)
    source.purge()
    source.start(short, "a", 1)
    say(source, "b", "lives")
    ship = backend_of(target).ship

    def refuses(shipment: Shipment) -> None:
        agents = {item.agent for item in [*shipment.appends, *shipment.graves]}
        if "b" in agents:
            raise perdure.Conflict("is refused", target="agent 'b'")
        ship(shipment)

    follower = follower_of(source, target)
    monkeypatch.setattr(follower.shipper, "target", Changed(backend_of(target), ship=refuses))
    until(lambda: stepped(follower, target) == [] and has(target, "a"))
    assert [one.agent for one in follower.aside] == ["b"]
    assert backend_of(target).inbox() == backend_of(source).inbox() != []


class Changed:
    """A backend with some methods of a test's own."""

    def __init__(self, backend: Any, **own: Any) -> None:
        self._backend = backend
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)
