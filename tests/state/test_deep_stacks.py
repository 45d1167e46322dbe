"""Who calls from deep within other calls gets the state or a `RecursionError`, and never `Corrupt`.

A graph's node, or a recursive program, has little of Python's stack left. What it reads is sound.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.core.values import codec
from perdure.errors import Unstorable
from perdure.storage.standing import Why, read_why
from perdure.system import stack_room

LEFT = (700, 500, 400, 300, 240, *range(200, 20, -12), 16, 12, 8)
"""Frames that are left to who is called."""


def with_frames_left(left: int, call: Callable[[], Any]) -> Any:
    frame, used = sys._getframe(), 0
    while frame is not None:
        frame, used = frame.f_back, used + 1  # type: ignore[assignment]

    def go_down(by: int) -> Any:
        return call() if by <= 0 else go_down(by - 1)

    return go_down(sys.getrecursionlimit() - used - left)


def nested(leaf: Any, wrap: Callable[[Any], Any], levels: int) -> Any:
    for _ in range(levels):
        leaf = wrap(leaf)
    return leaf


WRAPS: dict[str, Callable[[Any], Any]] = {
    "lists": lambda value: [value],
    "dicts": lambda value: {"a": value},
    "tuples": lambda value: (value,),
    "pairs": lambda value: [[(1, value)]],
}


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_values_are_the_same_at_each_depth(wrap):
    value = nested(1, wrap, 30)
    data = codec.encode(value)
    done = 0
    for left in LEFT:
        try:
            assert with_frames_left(left, lambda: codec.encode(value)) == data
            read = with_frames_left(left, lambda: codec.decode(data))
        except RecursionError:
            continue
        assert read == value
        done += 1
    assert done > len(LEFT) // 2


def test_what_is_nested_too_deep_is_still_refused():
    value = nested(1, WRAPS["lists"], 100_000)
    with pytest.raises(Unstorable, match="nested too deep"):
        codec.encode(value)
    with pytest.raises(codec.UndecodableError):
        codec.decode(b"\x91" * 100_000 + b"\xc0")
    while value != 1:  # taken apart without recursion
        (value,) = value


def test_without_a_thread_it_stays_a_recursion_error(monkeypatch):
    def refuse(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(stack_room._Afresh, "start", refuse)
    with pytest.raises(RecursionError, match="new thread"):
        stack_room.afresh(lambda: 1)


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_an_agent_of_who_is_deep_in_calls(place, wrap):
    """A sound log was `Corrupt`, "no commit before it can be read", for who read it in deep
    calls."""
    store = place.open()
    agent = store.agent("deep", dict, initial={"n": 0, "v": nested(0, wrap, 30)})
    with agent.edit("begin") as draft:
        draft["n"] = 1
    kept = 1

    def edit() -> None:
        with agent.edit("deep") as draft:
            draft["n"] += 1
            draft["v"] = nested(draft["n"], wrap, 30)

    read = 0
    for left in LEFT:
        for call in (edit, lambda: store.agent("deep", dict).state, agent.verify, agent.refresh):
            try:
                with_frames_left(left, call)
                read += 1
            except RecursionError:
                pass
        fresh = store.agent("deep", dict)
        assert fresh.state["n"] >= kept
        kept = fresh.state["n"]
        assert agent.state == fresh.state
    assert read > len(LEFT)
    agent.verify()
    with perdure.open(place.url) if place.durable else place.open() as other:
        assert other.agent("deep", dict).state["n"] == kept


def test_a_standing_is_what_it_is_at_each_depth():
    """A follower that looked at its copy from deep within other calls was told that a store of its
    own was not free, for a reason of a newer version."""
    why = Why("follows", url="postgresql://db/agents")
    standing = why.standing()
    done = 0
    for left in LEFT:
        try:
            assert with_frames_left(left, lambda: read_why(standing)) == why
        except RecursionError:
            continue
        done += 1
    assert done
    with pytest.raises(RecursionError):
        with_frames_left(60, lambda: pass_on_within(40))


def pass_on_within(levels: int) -> None:
    if levels:
        pass_on_within(levels - 1)
    else:
        stack_room.pass_on(RecursionError())
