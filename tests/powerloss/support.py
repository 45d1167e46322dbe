"""The run of the recordings: a step, a signal, a tool that can be asked, a question, a tool that
may be repeated. What its tools do is kept beside the store, as the world is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import perdure
from perdure.engine.control.run_handle import RunHandle
from perdure.store import Store
from perdure.testing import run_until_waiting
from tests.powerloss.world import act, moment, recorded, world

ARGUMENTS = ("ticket", "c-7")
RESULT = "refunded 500, told c-7"
TURNS_MAX = 10


def _was_refunded(cents: int) -> object:
    return cents if f"refund {cents}" in world else perdure.NOT_DONE


@perdure.step
def look_up(customer: str) -> list[str]:
    moment()
    return [f"{customer}-{number}" for number in range(40)]


@perdure.tool(on_crash="probe", probe=_was_refunded)
def refund(cents: int) -> int:
    act(f"refund {cents}")
    return cents


@perdure.tool(on_crash="retry")
def tell(customer: str) -> str:
    act(f"tell {customer}")
    return customer


@perdure.agent(dict, name="powerloss-support")
def support(run: perdure.Run[dict[str, Any]], customer: str) -> str:
    found = look_up(customer)
    with run.edit("found") as draft:
        draft["found"] = found
    moment()
    paid = refund(run.wait_for("cents", schema=int))
    moment()
    if run.ask("Tell them?"):
        tell(customer)
    with run.edit("done") as draft:
        draft["paid"] = paid
    return f"refunded {paid}, told {customer}"


def go_on(store: Store) -> RunHandle[Any]:
    return run_until_waiting(store, support, *ARGUMENTS)


def perform(store: Store, acknowledged: Callable[[], None], mark: Callable[[str], object]) -> None:
    """From its start to its end. `mark` is told of each effect when it has happened."""
    with recorded(acknowledged, mark):
        handle = go_on(store)
        acknowledged()
        handle.signal("cents", 500, key="cents")
        acknowledged()
        go_on(store)
        acknowledged()
        handle.answer(True)
        acknowledged()
        assert go_on(store).result() == RESULT
        acknowledged()


def finish(store: Store, effects: list[str]) -> None:
    """After a power loss: who comes goes on with it, and no effect is repeated but by policy.

    Args:
        effects: what the tools did before.
    """
    world[:] = effects
    handle = go_on(store)
    for _ in range(TURNS_MAX):
        if handle.status == "done":
            break
        if handle.questions():
            handle.answer(True)
        else:
            handle.signal("cents", 500, key="cents")
        handle = go_on(store)
    assert handle.status == "done", f"the run is {handle.status}: {handle.info.problem}"
    assert handle.result() == RESULT
    assert world.count("refund 500") == 1, f"the world: {world}"
    assert 1 <= world.count("tell c-7") <= 2, f"the world: {world}"
    store.agent(ARGUMENTS[0]).verify()
