"""What is remembered of the objects that a state came from: shared by the states that go on from
one, and none of them takes what another one added for its own."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from perdure.core.values import ops
from perdure.core.values.plain_values import Plain, same
from perdure.integrations.langgraph.threads import state_changes
from perdure.integrations.langgraph.values.built_in_kinds import BUILT_IN
from perdure.integrations.langgraph.values.rich_values import Coder

CODER = Coder(BUILT_IN)
STEPS = 150
KEPT = 6


def spoken(number: int) -> BaseMessage:
    kind = HumanMessage if number % 2 else AIMessage
    return kind(f"word {number}", id=str(number))


def counted(number: int) -> int:
    return number


def noted(number: int) -> dict[str, Any]:
    return {"number": number}


def advance(
    state: Plain, sources: state_changes.Sources, items: list[Any], version: int, **how: bool
) -> tuple[Plain, state_changes.Sources]:
    """What a checkpoint with these items leads to; its delta leads there as well."""
    given = {"channel_values": {"items": items}, "channel_versions": {"items": version}}
    before = copy.deepcopy(state)
    delta, made, fresh = state_changes.advance(CODER, state, sources, given, **how)
    assert how.get("own") or same(state, before), "what was stored is not touched"
    reached = before
    for op in copy.deepcopy(delta):
        reached = ops.apply(reached, op)
    assert same(reached, made)
    return made, fresh


def changed(chance: random.Random, items: list[Any], make: Any) -> list[Any]:
    """A fresh list of mostly the same objects, as a graph hands it over."""
    items, end = list(items), len(items)
    for _ in range(chance.choice((0, 1, 1, 3))):
        items.append(make(chance.randrange(10**6)))
    what = chance.randrange(8)
    if what == 0 and end:
        items[chance.randrange(end)] = make(chance.randrange(10**6))
    elif what == 1 and end:
        del items[chance.randrange(end) :]
    elif what == 2 and end:
        items.insert(chance.randrange(end), make(chance.randrange(10**6)))
    elif what == 4 and end and isinstance(items[0], BaseMessage):
        items[chance.randrange(end)].content = str(chance.random())
    return items


def is_late(item: Any, known: list[tuple[Plain, state_changes.Sources, list[Any]]]) -> bool:
    """Whether, wherever it is, it is one of the last items: of those everything is looked at."""
    return not any(item is one for _, _, items in known for one in items[: -state_changes.TAIL])


@pytest.mark.parametrize("make", [spoken, counted, noted])
@pytest.mark.parametrize("seed", range(8))
def test_states_that_share_what_is_remembered(make: Any, seed: int) -> None:
    chance = random.Random(seed)
    known: list[tuple[Plain, state_changes.Sources, list[Any]]] = [
        (state_changes.nothing(), {}, [])
    ]
    for version in range(1, STEPS):
        # Mostly the latest one goes on; at times an older one: a fork, or a put that failed.
        number = len(known) - 1 if chance.random() < 0.7 else chance.randrange(len(known))
        state, sources, items = known[number]
        items = changed(chance, items, make)
        last = items[-1] if items else None
        if isinstance(last, BaseMessage) and chance.random() < 0.3 and is_late(last, known):
            last.additional_kwargs["seen"] = chance.random()
        kept = [(one, copy.deepcopy(one[0])) for one in known]
        own = chance.random() < 0.5
        if own:  # of no use any more
            del kept[number]
        made, fresh = advance(state, sources, items, version, own=own)
        assert same(made[state_changes.VALUES]["items"], CODER.encode(items))
        assert all(same(one[0], before) for one, before in kept), "what is others' was touched"
        known = [*(one for one, _ in kept[-KEPT:]), (made, fresh, items)]


def test_equal_is_not_the_same() -> None:
    state, sources = advance(state_changes.nothing(), {}, [1, 2, 3], 1)
    state, _ = advance(state, sources, [True, 2.0, 3], 2)
    assert [type(one) for one in state[state_changes.VALUES]["items"]] == [bool, float, int]


def flagged(number: int, flag: Any) -> BaseMessage:
    return AIMessage(f"word {number}", id=str(number), additional_kwargs={"flag": flag})


MANY = 4 * state_changes.RECENT


@pytest.mark.parametrize("exactly", [True, False])
def test_a_message_that_is_replaced_by_an_equal_one(exactly: bool) -> None:
    """What a person puts is compared exactly; in the steps of a graph one is found in its turn."""
    items = [flagged(number, 1) for number in range(MANY)]
    state, sources = advance(state_changes.nothing(), {}, items, 1)
    items = list(items)
    items[5] = items[5].model_copy(update={"additional_kwargs": {"flag": True}})
    items[MANY // 2] = flagged(MANY // 2, 1.0)
    items[-3] = flagged(MANY - 3, True)
    for version in range(2, 2 + (1 if exactly else MANY // state_changes.RECENT)):
        state, sources = advance(state, sources, items, version, exactly=exactly)
        assert state[state_changes.VALUES]["items"][MANY - 3]["additional_kwargs"]["flag"] is True
        assert CODER.decode(state[state_changes.VALUES]["items"]) == items
        items = [*items, flagged(MANY + version, 1)]
    assert same(state[state_changes.VALUES]["items"], CODER.encode(items[:-1]))


def test_a_message_far_back_that_is_replaced_by_another_one() -> None:
    items = [spoken(number) for number in range(MANY)]
    state, sources = advance(state_changes.nothing(), {}, items, 1)
    items = [*items, spoken(MANY)]
    items[MANY // 2] = spoken(MANY + 1)
    state, _ = advance(state, sources, items, 2)
    assert same(state[state_changes.VALUES]["items"], CODER.encode(items))


class Loose(HumanMessage):
    """Equal to every other one of its id."""

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Loose) and other.id == self.id


class Touchy:
    """What has no truth of its own, as an array's comparison."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("is it any, or all?")

    __hash__ = object.__hash__


@pytest.mark.parametrize("strange", [{"role": "user"}, "text", 5, None, [spoken(1)]])
@pytest.mark.parametrize("exactly", [False, True])
def test_a_late_message_that_is_replaced_by_what_is_none(strange: Any, exactly: bool) -> None:
    """Of the last messages of a list all is looked at, as of messages: where one of them was
    replaced by a dict or a text, `put` ended with an AttributeError."""
    items: list[Any] = [spoken(number) for number in range(9)]
    for index in (0, 2, 5, 8):
        state, sources = advance(state_changes.nothing(), {}, items, 1)
        others = [*items[:index], strange, *items[index + 1 :]]
        made, sources = advance(state, sources, others, 2, exactly=exactly)
        advance(made, sources, items, 3)


def test_messages_that_are_equal_in_a_way_of_their_own_are_compared_by_identity() -> None:
    coder = Coder(BUILT_IN.with_types([Loose]))
    items: list[Any] = [Loose(content=f"word {number}", id=str(number)) for number in range(MANY)]
    given = {"channel_values": {"items": items}, "channel_versions": {"items": 1}}
    _, state, sources = state_changes.begin(coder, given)
    items = list(items)
    items[MANY // 2] = Loose(content="another", id=items[MANY // 2].id)
    given = {"channel_values": {"items": items}, "channel_versions": {"items": 2}}
    _, state, _ = state_changes.advance(coder, state, sources, given)
    assert same(state[state_changes.VALUES]["items"], coder.encode(items))


def test_messages_that_cannot_be_compared_are_compared_by_identity() -> None:
    messages: list[Any] = [spoken(number) for number in range(MANY)]
    middle = MANY // 2
    messages[middle].additional_kwargs["array"] = Touchy()
    source = state_changes.ValueSource(messages)
    messages = list(messages)
    messages[middle] = spoken(middle)
    messages[middle].additional_kwargs["array"] = Touchy()
    assert source.unchanged(messages) == (MANY, [middle])


def test_what_is_changed_inside_of_a_late_message_is_found() -> None:
    message: Any = HumanMessage("word", id="1", mood="calm")
    items: list[Any] = [message, spoken(2)]
    state, sources = advance(state_changes.nothing(), {}, items, 1)
    for version, change in enumerate(
        (
            lambda: setattr(message, "mood", "cross"),
            lambda: message.additional_kwargs.update(seen=True),
            lambda: message.additional_kwargs.update(seen=False),
            lambda: message.additional_kwargs.clear(),
            lambda: setattr(message, "name", "Ann"),
        ),
        2,
    ):
        change()
        items = list(items)
        state, sources = advance(state, sources, items, version)
        assert same(state[state_changes.VALUES]["items"], CODER.encode(items))


def test_two_that_go_on_from_one() -> None:
    first = [spoken(1), spoken(2)]
    state, sources = advance(state_changes.nothing(), {}, first, 1)
    one, one_sources = advance(state, sources, [*first, spoken(3)], 2)
    other, other_sources = advance(state, sources, [*first, spoken(4)], 2)
    more, _ = advance(one, one_sources, [*first, spoken(3), spoken(5)], 3)
    rest, _ = advance(other, other_sources, [*first, spoken(4), spoken(6)], 3)
    found = [[one["id"] for one in end[state_changes.VALUES]["items"]] for end in (more, rest)]
    assert found == [["1", "2", "3", "5"], ["1", "2", "4", "6"]]


def shuffled(chance: random.Random, old: dict[str, Any], make: Any) -> dict[str, Any]:
    """Names as graphs have them, mostly in the old order; at times some are gone or come first."""
    names = list(old)
    if chance.random() < 0.2:
        chance.shuffle(names)
    if names and chance.random() < 0.2:
        names.remove(chance.choice(names))
    new = {name: old[name] for name in names}
    for _ in range(chance.randrange(3)):
        new[f"name {chance.randrange(12)}"] = make()
    if names and chance.random() < 0.1:
        new[names[0]] = chance.choice([1, 1.0, True, None])
    return new


@pytest.mark.parametrize("seed", range(8))
def test_versions_in_any_order(seed: int) -> None:
    chance = random.Random(seed)
    state, sources = state_changes.nothing(), state_changes.sources_of({})
    versions: dict[str, Any] = {}
    seen: dict[str, Any] = {}
    for _ in range(STEPS):
        versions = shuffled(chance, versions, lambda: chance.randrange(1000))
        seen = shuffled(chance, seen, lambda: shuffled(chance, {}, lambda: chance.randrange(9)))
        seen = {node: one if isinstance(one, dict) else {} for node, one in seen.items()}
        values = shuffled(chance, {}, lambda: chance.choice([1, 1.0, True, None, "a", [1], ["b"]]))
        given = {"channel_values": values, "channel_versions": versions, "versions_seen": seen}
        reached = copy.deepcopy(state)
        delta, state, sources = state_changes.advance(CODER, state, sources, given)
        for op in copy.deepcopy(delta):
            reached = ops.apply(reached, op)
        wanted = {
            state_changes.VALUES: values,
            state_changes.VERSIONS: versions,
            state_changes.SEEN: seen,
        }
        assert same(state, wanted)
        assert same(reached, wanted)
