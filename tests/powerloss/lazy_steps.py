"""A run of steps that do not wait for the disk, and of tools, which do: what came before a tool was
called is there, and of what came since a power loss takes some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import perdure
from perdure.store import Store
from tests.powerloss.world import act, moment, recorded, world

AGENT = "estimate"
ROUNDS, STEPS = 3, 4
RESULT = [sum(range(number, number + STEPS)) for number in range(ROUNDS)]


def _was_sent(total: int) -> object:
    return total if f"send {total}" in world else perdure.NOT_DONE


@perdure.step(durability="group")
def estimate(number: int) -> int:
    return number


@perdure.tool(on_crash="probe", probe=_was_sent)
def send(total: int) -> int:
    act(f"send {total}")
    return total


@perdure.agent(dict, name="powerloss-estimates")
def estimates(run: perdure.Run[dict[str, Any]]) -> list[int]:
    sent = []
    for number in range(ROUNDS):
        sent.append(send(sum([estimate(number + more) for more in range(STEPS)])))
        moment()
    return sent


def perform(store: Store, acknowledged: Callable[[], None], mark: Callable[[str], object]) -> None:
    """From its start to its end. `mark` is told of each effect when it has happened."""
    with recorded(acknowledged, mark):
        assert store.run(estimates, AGENT) == RESULT
        acknowledged()


def finish(store: Store, effects: list[str]) -> None:
    """After a power loss: the run goes on, and nothing is sent twice.

    Args:
        effects: what the tool did before.
    """
    world[:] = effects
    assert store.run(estimates, AGENT) == RESULT
    assert sorted(world) == sorted(f"send {total}" for total in RESULT), f"the world: {world}"
    store.agent(AGENT).verify()
