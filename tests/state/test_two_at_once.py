"""Two commits in one transaction, the second on top of the first (`Committer.submit_together`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.core import chain
from perdure.core.ops import Set
from perdure.errors import Conflict
from perdure.model import Cause
from perdure.storage.committer import Committer, Proposal
from perdure.storage.memory import MemoryBackend
from perdure.storage.port import Backend
from perdure.storage.reader import LogReader
from perdure.storage.refusals import KeyUsedError
from perdure.storage.sqlite.backend import SqliteBackend


@pytest.fixture(params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    backend: Backend = MemoryBackend()
    if request.param == "sqlite":
        backend = SqliteBackend(str(tmp_path / "two.db"), durability="os")
    yield backend
    backend.close()


def proposal(
    what: str, expected: int | None, no: int | None = 1, key: str | None = None,
    branch: str = "main", new: bool = False,
) -> Proposal:  # fmt: skip
    draft = chain.Draft(
        "a", 1, branch, () if expected is None else (expected,), "dict", (1, 0), "x", 0,
        Cause("fork" if new else "save", what, key=key), chain.pack_payload([Set((what,), 1)], []),
    )  # fmt: skip
    return Proposal(
        draft, no=no, expected=None if new else expected, key=None if key is None else (key, b"")
    )


def created(backend: Backend) -> Committer:
    committer = Committer(backend)
    draft = chain.Draft(
        "a", 1, "main", (), "dict", (1, 0), "x", 0, Cause("create"),
        chain.pack_payload([Set((), {})], []),
    )  # fmt: skip
    committer.submit(Proposal(draft, no=None, expected=None))
    return committer


def log_of(backend: Backend) -> list[tuple[int, str, int]]:
    info = backend.agent("a")
    assert info is not None
    return [(one.seq, one.cause.what, one.parent) for one in LogReader(backend, info).commits()]


def test_both_land_in_order_in_one_transaction(backend: Backend) -> None:
    committer = created(backend)
    batches: list[int] = []
    append = backend.append

    def counting(batch: Any) -> Any:
        batches.append(len(batch))
        return append(batch)

    backend.append = counting  # type: ignore[method-assign]
    first, second = proposal("one", 1), proposal("two", 1)
    committer.submit_together(first, second)
    assert (first.outcome().seq, second.outcome().seq) == (2, 3)
    assert batches == [2]
    assert log_of(backend)[1:] == [(2, "one", 1), (3, "two", 2)]


@pytest.mark.parametrize("branch", ["main", "other"])
def test_another_process_commits_in_between(backend: Backend, branch: str) -> None:
    """On the same branch both are refused. On another one the first finds a later place; the
    second may be refused, but never stands anywhere but on top of the first."""
    committer = created(backend)
    first, second = proposal("one", 1), proposal("two", 1)
    Committer(backend).submit(proposal("theirs", 1, branch=branch, new=branch != "main"))
    committer.submit_together(first, second)
    if branch == "main":
        for refused in (first, second):
            with pytest.raises(Conflict):
                refused.outcome()
        assert [what for _, what, _ in log_of(backend)[1:]] == ["theirs"]
        return
    assert first.outcome().seq == 3
    try:
        assert second.outcome().seq == 4
    except Conflict:
        committer.submit(proposal("two", 3))
    assert log_of(backend)[1:] == [(2, "theirs", 1), (3, "one", 1), (4, "two", 3)]


def test_a_first_whose_key_was_used_takes_the_second_with_it(backend: Backend) -> None:
    committer = created(backend)
    committer.submit(proposal("before", 1, key="k"))
    first, second = proposal("one", 2, key="k"), proposal("two", 2)
    committer.submit_together(first, second)
    with pytest.raises(KeyUsedError):
        first.outcome()
    with pytest.raises(Conflict):
        second.outcome()
    assert [what for _, what, _ in log_of(backend)[1:]] == ["before"]


def test_a_second_that_is_refused_leaves_the_first(backend: Backend) -> None:
    committer = created(backend)
    committer.submit(proposal("before", 1, key="k"))
    first, second = proposal("one", 2), proposal("two", 2, key="k")
    committer.submit_together(first, second)
    assert first.outcome().seq == 3
    with pytest.raises(KeyUsedError):
        second.outcome()
    committer.submit(proposal("after", 3))
    assert [what for _, what, _ in log_of(backend)[1:]] == ["before", "one", "after"]


def test_behind_others_they_share_the_transaction_of_whoever_leads(backend: Backend) -> None:
    committer = created(backend)
    entered, go_on = threading.Event(), threading.Event()
    append = backend.append

    def slowly(batch: Any) -> Any:
        entered.set()
        go_on.wait(10)
        return append(batch)

    backend.append = slowly  # type: ignore[method-assign]
    other = threading.Thread(target=committer.submit, args=(proposal("zero", 1),))
    other.start()
    entered.wait(10)
    first, second = proposal("one", 2), proposal("two", 2)
    pair = threading.Thread(target=committer.submit_together, args=(first, second))
    pair.start()
    while len(committer._queue) < 2:
        pass
    go_on.set()
    other.join()
    pair.join()
    committer.close()
    assert [(seq, what) for seq, what, _ in log_of(backend)[1:]] == [
        (2, "zero"), (3, "one"), (4, "two")
    ]  # fmt: skip


def test_an_interrupt_while_they_wait_takes_both_back(backend: Backend) -> None:
    committer = created(backend)
    first, second = proposal("one", 1), proposal("two", 1)
    committer._busy = True  # somebody leads, for ever

    def interrupted() -> None:
        raise KeyboardInterrupt

    class Waiting(Proposal):
        __slots__ = ()

        def wait(self) -> None:
            interrupted()

    second.__class__ = Waiting
    with pytest.raises(KeyboardInterrupt):
        committer.submit_together(first, second)
    assert committer._queue == []
    assert len(log_of(backend)) == 1
