"""Bytes in the store's files per byte of change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import zstandard

import perdure
from bench.corpus import texts
from bench.registry import row
from bench.report import Figure, Line, Target
from bench.workplace import (
    TEXT_SIZE,
    Message,
    Ticket,
    Workplace,
    append,
    file_bytes,
    open_ticket,
    ticket,
)

RATIO_MAX = 2.0


@row("disk")
def disk(workplace: Workplace) -> Iterator[Line]:
    """Size of the files after 10,000 appended 500 B messages; growth by a large state's changes.

    Default settings, snapshots included, all files, after `close`. The text is made by
    `bench.corpus`, and compresses like English. The second line changes one number of a state of
    1 MB, 1,000 times: what the files grow by, for each commit; the contestant is the state itself.
    """
    yield _appended(workplace.folder() / "ours.db", workplace.sizes.disk_messages)
    yield _small_changes(workplace, workplace.folder() / "ours.db")


def _appended(path: Path, count: int) -> Line:
    raw = texts(count, TEXT_SIZE, seed=4)
    with perdure.open(path) as store:
        agent = store.agent("a", Ticket, initial=ticket(0))
        for text in raw:
            append(agent, Message(role="user", content=text))
        sizes = store.sizes()
    size, text_size = file_bytes(path), sum(map(len, raw))
    pieces = sum(len(zstandard.ZstdCompressor(level=1).compress(text.encode())) for text in raw)
    return Line(
        f"files after {count:,} messages of {TEXT_SIZE} B",
        Figure(size, "B"),
        Figure(text_size, "B", "raw text"),
        size / text_size,
        Target(RATIO_MAX),
        f"log {Figure(sizes.header_bytes + sizes.payload_bytes, 'B')}, {sizes.snapshots} snapshots "
        f"{Figure(sizes.snapshot_bytes, 'B')} with {sizes.leaves} leaves of "
        f"{Figure(sizes.leaf_bytes, 'B')}; zstd -1 makes each text "
        f"{text_size / pieces:.2f} times smaller",
    )


def _small_changes(workplace: Workplace, path: Path) -> Line:
    changes = workplace.sizes.number_changes
    with perdure.open(path) as store:
        agent = open_ticket(store, "a", workplace.sizes.window_messages)
    before = file_bytes(path)
    with perdure.open(path) as store:
        agent = store.agent("a", Ticket)
        for _ in range(changes):
            with agent.edit("counted") as draft:
                draft.turns += 1
        text_size = sum(len(message.content) for message in agent.state.messages)
    grown = (file_bytes(path) - before) / changes
    return Line(
        f"files per change of one number, over {changes:,}",
        Figure(grown, "B"),
        Figure(text_size, "B", "text in the state"),
        grown / text_size,
    )
