"""A class that checks itself may raise errors of its own kind: each place says so alike."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

import perdure
from perdure.errors import SchemaError


class InvalidTicket(Exception):
    pass


class _Raises:
    kind: type[BaseException] = ValueError


@dataclass
class Old:
    cents: int = 0


@dataclass
class Ticket:
    cents: int = 0

    def __post_init__(self) -> None:
        if self.cents < 0:
            raise _Raises.kind("cents may not be negative")


class StructTicket(msgspec.Struct):
    cents: int = 0

    def __post_init__(self) -> None:
        if self.cents < 0:
            raise _Raises.kind("cents may not be negative")


KINDS = [
    ValueError,
    InvalidTicket,
    KeyError,
    ArithmeticError,
    StopIteration,
    NotImplementedError,
    asyncio.CancelledError,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("declared", [Ticket, StructTicket])
def test_what_a_class_raises_of_itself_is_a_schema_error_everywhere(
    declared: Any, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the class's own kind, raised in `__post_init__`, was a SchemaError in an edit,
    and came bare out of `state`, `at`, `save` and `initial=`: it named no agent and no commit, and
    a StopIteration came out of `save` as a RuntimeError of a generator."""
    monkeypatch.setattr(_Raises, "kind", kind)
    with perdure.open("memory://") as store:
        old = store.agent("t-1", perdure.Schema(Old, id="t"))
        old.update(lambda draft: setattr(draft, "cents", -5))
        schema = perdure.Schema(declared, id="t")
        stored = store.agent("t-1", schema)
        for read in (lambda: stored.state, lambda: stored.at(2).state):
            with pytest.raises(SchemaError, match="cents may not be negative") as refused:
                read()
            assert str(refused.value.target).startswith("agent 't-1', commit 2")
            assert refused.value.hint
        fresh = store.agent("t-2", schema, initial=declared(1))
        fresh.checkpoint("before")
        seq, wrong = fresh.seq, declared(1)
        wrong.cents = -7
        with pytest.raises(SchemaError, match="cents may not be negative"), fresh.edit() as draft:
            draft.cents = -1
        with pytest.raises(SchemaError, match="cents may not be negative"):
            fresh.save(wrong)
        with pytest.raises(SchemaError, match="cents may not be negative"):
            store.agent("t-3", schema, initial=wrong).checkpoint("before")
        assert fresh.state == declared(1)
        assert fresh.seq == seq
