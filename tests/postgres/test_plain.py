"""The short way that most commits go leaves nothing behind where something is in its way."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest
from msgspec.structs import replace

from perdure.core.format.chain import commit_id
from perdure.storage.appending import Append, Appended, Refused
from perdure.storage.postgres.backend import PostgresBackend
from perdure.testing.pen import Pen, elsewhere, refused
from tests.postgres.server import Server
from tests.postgres.test_faults import await_waiting, schema_of


def test_i3_a_place_that_another_branch_takes_is_stale(
    server: Server, url: str, backend: PostgresBackend
) -> None:
    """Two processes write to two branches of one agent at the same moment. Neither holds what the
    other waits for, but there is one next place in the log."""
    pen = Pen(backend)
    pen.write()
    pen.write("other")
    first, _ = pen.make("other")
    second, _ = pen.make()
    assert first.seq == second.seq == 3
    outcomes: list[object] = []
    with psycopg.connect(server.url()) as somebody:
        somebody.execute(
            f"SELECT * FROM {schema_of(url)}.append_1(true, 'a', {pen.number()}, 1, 3, %b, %b, %b, "
            "'other', 2, NULL, NULL, NULL, NULL, NULL)".encode(),
            (first.header, first.payload, first.behind.id),
        )
        writer = threading.Thread(target=lambda: outcomes.extend(backend.append([second])))
        writer.start()
        await_waiting(server, 1)
    writer.join()
    assert [refused(outcome) for outcome in outcomes if isinstance(outcome, Refused)] == ["stale"]
    head = backend.ref(pen.number(), "main")
    assert head is not None and head.seq == 1, "the branch moved, and its commit is not there"
    assert [row.header for row in backend.read(pen.number(), 3, 9)] == [first.header]


def _link_to(item: Append, header: bytes) -> None:
    """As a process does that knows a commit which its server has lost."""
    item.behind = replace(item.behind, id=commit_id(header), header=header)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda item: setattr(item, "expected", 1), "moved"),
        (lambda item: setattr(item, "epoch", 7), "fenced"),
        (lambda item: setattr(item, "branch", "nobody"), "gone"),
        (lambda item: setattr(item, "behind", elsewhere(b"\1" + bytes(32))), "stale"),
        (lambda item: _link_to(item, b"a header that never got in"), "stale"),
        (lambda item: setattr(item, "seq", 9), "stale"),
    ],
    ids=["moved", "fenced", "gone", "not-linked", "linked-elsewhere", "gap"],
)
def test_what_is_refused_is_refused_with_its_reason(
    backend: PostgresBackend, spoil: Callable[[Append], None], why: str
) -> None:
    pen = Pen(backend)
    pen.write()
    pen.write()
    item, _ = pen.make()
    spoil(item)
    (outcome,) = backend.append([item])
    assert refused(outcome) == why
    head = backend.ref(pen.number(), "main")
    assert head is not None and head.seq == 2
    assert len(backend.read(pen.number(), 1, 9)) == 2
    good, _ = pen.make()
    assert backend.append([good]) == [Appended(pen.number())]
