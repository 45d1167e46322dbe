"""A commit as the values of one statement, and the statement's answer as an outcome.

All of a commit's checks and writes are in the function `append_1` of the database, and a batch is
one call: one round trip. The parts that only few commits have are one JSON value, with their bytes
beside it by number.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.core.values import codec
from perdure.storage.answers import Standing
from perdure.storage.appending import Append, Appended, Outcome
from perdure.storage.postgres.rows import from_checkpoint, from_message, from_run, text, to_refused
from perdure.storage.postgres.wire import (
    BIGINTS,
    BOOL,
    BYTEAS,
    JSONBS,
    TEXTS,
    blobs,
    jsons,
    numbers,
    texts,
)
from perdure.storage.standing import ClosedError, closed_error, no_such_agent

TYPES = (BOOL, TEXTS, BIGINTS, TEXTS, BYTEAS, JSONBS)


FOLLOWS = 0
"""Stands for the agent's number in a commit that follows the one that creates it."""


def values_of_all(batch: Sequence[Append], durable: bool, now: int) -> tuple[Any, ...]:
    """Returns the values for the statement "append": a boolean, and arrays of `TYPES`. Followers
    come right after their commit.

    Raises:
        TypeError: a result or a message's value is not plain data.
    """
    known: list[int | None] = []
    words: list[str | None] = []
    extra = _Bytes()
    items = _with_followers(batch)
    for item in items:
        key, asked = item.riders.key if item.riders.key is not None else (None, None)
        known += (item.no, item.incarnation, item.seq, item.expected, item.epoch)
        words += (text(item.agent), text(item.branch), None if key is None else text(key))
        extra.all += (item.header, item.payload, item.behind.id, asked)
    more = [_more_of(item, now, extra) for item in items]
    together = len(items) > 1 or len(items[0].riders.runs) + len(items[0].riders.sends) > 1
    return (
        durable,
        texts(_runs_of(items)) if together else None,
        numbers(known),
        texts(words),
        blobs(extra.all),
        jsons(more) if any(more) else None,
    )


def _with_followers(batch: Sequence[Append]) -> Sequence[Append]:
    if not any(item.then for item in batch):
        return batch
    return [
        one
        for item in batch
        for one in (item, *(replace(follower, no=FOLLOWS) for follower in item.then))
    ]


def _runs_of(items: Sequence[Append]) -> list[str]:
    """Returns the runs that a batch is going to write to. They are locked first, in one order for
    all."""
    runs = {text(row.id) for item in items for row in item.riders.runs}
    return sorted(runs | {text(message.run) for item in items for message in item.riders.sends})


def values_of(item: Append, durable: bool, now: int) -> tuple[Any, ...]:
    """Returns the values for the statement "ship"; see `values_of_all`."""
    key, asked = item.riders.key if item.riders.key is not None else (None, None)
    extra = _Bytes()
    more = _more_of(item, now, extra)
    return (
        durable,
        text(item.agent),
        item.no,
        item.incarnation,
        item.seq,
        item.header,
        item.payload,
        item.behind.id,
        text(item.branch),
        item.expected,
        item.epoch,
        None if key is None else text(key),
        asked,
        more,
        blobs(extra.all),
    )


def _more_of(item: Append, now: int, extra: _Bytes) -> str | None:
    """Returns the rare parts of a commit, as JSON."""
    more: dict[str, Any] = {}
    if item.snapshot is not None:
        more["manifest"] = extra.add(item.snapshot.manifest)
        more["leaf_ids"] = list(item.snapshot.leaf_ids)
        more["leaves"] = [[leaf, extra.add(data)] for leaf, data in item.snapshot.leaves.items()]
    if item.riders.checkpoint is not None:
        point = item.riders.checkpoint
        more["checkpoint"] = [text(point.name), point.seq, extra.add(from_checkpoint(point))]
    if item.riders.drop_branch is not None:
        more["drop_branch"] = text(item.riders.drop_branch)
    if item.riders.drop_head is not None:
        more["drop_head"] = item.riders.drop_head
    if item.riders.starts_read:
        more["starts_read"] = True
    if item.riders.consumed:
        more["consumed"] = list(item.riders.consumed)
    if item.riders.read_to:
        more["read_to"] = {text(run): no for run, no in item.riders.read_to.items()}
    if item.riders.fresh:
        more["fresh"] = [text(run) for run in item.riders.fresh]
    if item.riders.going:
        more["going"] = [text(run) for run in item.riders.going]
    if item.riders.runs:
        more["runs"] = [
            {**from_run(row), "result": extra.add(codec.encode(row.result))}
            for row in item.riders.runs
        ]
    if item.riders.sends:
        more["sends"] = [
            [
                *from_message(message),
                extra.add(codec.encode(message.value)),
                text(message.who),
                now,
                new_token(),
            ]
            for message in item.riders.sends
        ]
    if item.riders.known:
        more["known"] = [
            [*from_message(message), text(message.who), message.at_micros]
            for message in item.riders.known
        ]
    if item.riders.holder is not None:
        more["holder"] = text(item.riders.holder)
    if item.epoch_min:
        more["epoch_min"] = item.epoch_min
    if item.riders.release:
        more["release"] = True
    if item.riders.trims is not None:
        more["trims"] = item.riders.trims
    if item.riders.delete_agent:
        more["delete_agent"] = True
        if item.riders.purge:
            more["purge"] = True
    return json.dumps(more) if more else None


class _Bytes:
    """Values by their number, from 1, as PostgreSQL counts."""

    def __init__(self) -> None:
        self.all: list[bytes | None] = []

    def add(self, value: bytes) -> int:
        self.all.append(value)
        return len(self.all)


def new_token() -> int:
    """Returns a token that identifies one attempt to put a message in."""
    return secrets.randbits(63)


def outcome_of(row: Any, item: Append, url: str) -> Outcome:
    """Returns the outcome of a commit from the answer of the statement "append" or "ship"."""
    no, refusal = row
    if refusal is None:
        return Appended(no)
    found = msgspec.json.decode(refusal)
    if found["why"] == "closed":
        return closed_of(found, item.agent, url)
    if found["why"] == "lost":
        return no_such_agent(item.agent, item.incarnation)
    return to_refused(found)


def closed_of(refusal: Mapping[str, Any], agent: str, url: str) -> ClosedError:
    """Returns the error for a write to a closed agent or store."""
    target = f"agent {agent!r}" if refusal["no"] else f"store {url}"
    return closed_error(Standing(True, refusal["says"]), target)
