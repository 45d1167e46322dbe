"""Random threads: whatever is put, by whichever saver and on whichever parent, comes back."""

import copy
import random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from perdure.errors import Unstorable
from tests.integrations.langgraph.checkpoints import config, id_of, put, values_of
from tests.integrations.langgraph.conftest import Place


def change(values: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A next step's values: fresh lists of mostly the same objects, as LangGraph makes them."""
    after = dict(values)
    messages = list(after.get("messages", []))
    kind = chance.randrange(9)
    fresh = HumanMessage("m" * chance.randrange(200), id=str(chance.random()))
    where = chance.randrange(len(messages) + 1)
    if kind <= 2:
        messages.append(fresh)
    elif kind == 3:
        messages.insert(where, fresh)
    elif kind == 4 and messages:
        del messages[min(where, len(messages) - 1)]
    elif kind == 5 and messages:
        messages[min(where, len(messages) - 1)] = AIMessage("other", id=fresh.id)
    elif kind == 6 and messages:
        messages[-1].content = f"changed in place {chance.random()}"
    elif kind == 7:
        messages = messages[where:]
    elif kind == 8 and messages:
        chance.choice(messages[-4:]).additional_kwargs[f"k{chance.randrange(3)}"] = chance.random()
    after["messages"] = messages
    if chance.random() < 0.3:
        after[f"channel {chance.randrange(3)}"] = chance.choice(
            [1, 1.0, True, None, {"a": [chance.random()]}, [1, True], "x" * 100, {1, 2}]
        )
    if chance.random() < 0.2:
        after.pop(f"channel {chance.randrange(3)}", None)
    return after


def exact(values: Any) -> str:
    return repr({name: values[name] for name in sorted(values)})


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_put_comes_back(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    savers = [place.open() for _ in range(2)]
    expected: dict[str, dict[str, Any]] = {}
    live: dict[str, dict[str, Any]] = {}
    latest: str | None = None
    for step in range(60):
        saver = savers[0] if chance.random() < 0.8 else savers[1]
        parent = latest
        if expected and chance.random() < 0.15:
            parent = chance.choice(list(expected))
        values: dict[str, Any] = {}
        if parent is not None:
            values = live.get(parent, {})
            if parent != latest or chance.random() < 0.3:  # as an invocation begins
                values = values_of(saver, config("t", parent))
        values = change(values, chance)
        if chance.random() < 0.1:  # refused as a whole, when other channels were gone over
            with pytest.raises(Unstorable, match="odd"):
                put(saver, {**values, "odd": object()}, config("t", parent), step + 1)
        at = put(saver, values, config("t", parent), step + 1)
        latest = id_of(at)
        live = {latest: values}
        expected[latest] = copy.deepcopy(values)
    for saver in (savers[1], place.open()):
        for one in expected:
            assert exact(values_of(saver, config("t", one))) == exact(expected[one])
        listed = {
            one.checkpoint["id"]: exact(one.checkpoint["channel_values"])
            for one in saver.list(config())
        }
        assert listed == {one: exact(values) for one, values in expected.items()}
    info = savers[0].store.find("t")
    assert info is not None
    savers[0].store.agent_of(info).verify()
