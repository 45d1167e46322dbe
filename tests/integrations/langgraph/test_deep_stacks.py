"""As tests/state/test_deep_stacks.py, for threads: a saver is called from within a graph."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from langchain_core.messages import HumanMessage
from langgraph.types import Send
from pydantic import BaseModel, RootModel

from perdure.errors import Unstorable
from tests.integrations.langgraph.checkpoints import config, get, put, values_of
from tests.integrations.langgraph.conftest import Place
from tests.state.test_deep_stacks import LEFT, nested, with_frames_left


class Model(BaseModel):
    a: Any


class Root(RootModel[Any]):
    pass


@dataclass(frozen=True)
class Data:
    a: Any


class Pair(NamedTuple):
    left: Any
    right: Any


WRAPS: dict[str, Callable[[Any], Any]] = {
    "list": lambda v: [v],
    "dict": lambda v: {"a": v},
    "tuple": lambda v: (v,),
    "model": lambda v: Model(a=v),
    "root": Root,
    "dataclass": Data,
    "pair": lambda v: Pair(v, 1),
    "ordered": lambda v: OrderedDict(a=v),
    "deque": lambda v: deque([v]),
    "pairs": lambda v: {(1, 2): v},
    "tag": lambda v: {"@": v},
    "send": lambda v: Send("n", v),
    "frozenset": lambda v: frozenset([Data(v)]),
    "message": lambda v: HumanMessage("x", additional_kwargs={"a": v}),
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_what_is_taken_can_be_read(place: Place, wrap: Callable[[Any], Any]) -> None:
    """As deep as a value may be nested, it is read, also with little of the stack left; deeper, it
    is refused, and what was there stays."""
    saver = place.open()
    deepest = 0
    at = None
    for levels in (10, 33, 34, 50, 51, 99, 100, 101, 1000):
        value = (
            nested(levels, wrap, levels) if levels < 200 or wrap is not WRAPS["frozenset"] else 0
        )
        if value == 0:
            continue
        try:
            at = put(saver, {"x": value}, at, version=levels)
        except Unstorable:
            assert levels > 33
            break
        deepest = levels
        assert values_of(place.open()) == {"x": value}
    assert deepest >= 33
    fresh = place.open()
    read = 0
    for left in LEFT:
        for call in (lambda: get(fresh), lambda: get(saver), lambda: list(saver.list(config()))):
            try:
                with_frames_left(left, call)
                read += 1
            except RecursionError:
                pass
    assert read > len(LEFT)
    assert values_of(saver) == {"x": nested(deepest, wrap, deepest)}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_who_is_deep_in_calls_writes_or_does_not(place: Place, wrap: Callable[[Any], Any]) -> None:
    saver = place.open()
    at = put(saver, {"x": nested(0, wrap, 30)})
    kept = 0
    for version, left in enumerate(LEFT, 2):
        value = nested(version, wrap, 30)
        try:
            at = with_frames_left(left, lambda: put(saver, {"x": value}, at, version))  # noqa: B023
            kept = version
        except RecursionError:
            pass
        assert values_of(saver) == values_of(place.open()) == {"x": nested(kept, wrap, 30)}
    assert kept
    saver.store.agent("t").verify()
