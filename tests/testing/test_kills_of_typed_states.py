"""`kill_at_every_boundary` of agent functions whose state has a type."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

import perdure
from perdure.testing import kill_at_every_boundary


@dataclasses.dataclass
class Ticket:
    paid: int = 0


@dataclasses.dataclass(eq=False)
class Unequal:
    paid: int = 0


class Model(pydantic.BaseModel):
    paid: int = 0


class Packed(msgspec.Struct):
    paid: int = 0


class Typed(TypedDict, total=False):
    paid: int


KINDS: dict[str, Any] = {
    "dict": dict,
    "dataclass": Ticket,
    "without ==": Unequal,
    "pydantic": Model,
    "msgspec": Packed,
    "TypedDict": Typed,
    "Schema": perdure.Schema(Ticket, id="ticket", version=(2, 1)),
}


def pay() -> int:
    return 7


def put(state: Any, paid: int) -> None:
    if hasattr(state, "paid"):
        state.paid = paid
    else:
        state["paid"] = paid


def paid(state: Any) -> Any:
    return state["paid"] if isinstance(state, dict) else state.paid


def paying(schema: Any, returns: Callable[[], int]) -> list[Callable[..., Any]]:
    """An agent function that pays once, and the same as ``async def``."""
    tool = perdure.tool(on_crash="retry", name="pay")(returns)

    @perdure.agent(schema)
    def waiting(run: perdure.Run[Any]) -> int:
        cents = tool()
        with run.edit("paid") as draft:
            put(draft, cents)
        return cents

    @perdure.agent(schema)
    async def awaiting(run: perdure.AsyncRun[Any]) -> int:
        cents = await run.call(tool)
        async with run.edit("paid") as draft:
            put(draft, cents)
        return cents

    return [waiting, awaiting]


@pytest.mark.parametrize(
    ("kind", "by"), [*((kind, "exception") for kind in KINDS), ("dataclass", "sigkill")]
)
def test_the_state_is_of_the_functions_type(kind: str, by: Any) -> None:
    """Whoever tried his own function, of a dataclass, was told "agent 'tried': its state was
    written under schema 'Ticket', not 'dict'", of an agent that he had not opened: the state in the
    end was read as a dict, and only functions of dicts could be tried. One of a class that does not
    say what is equal would have ended otherwise each time."""
    functions = paying(KINDS[kind], pay)
    for function in functions if by == "exception" else functions[:1]:
        endings = kill_at_every_boundary(function, by=by)
        assert len(endings) > 8
        assert {paid(end.state) for end in endings} == {7}
        schema = perdure.Schema.of(KINDS[kind])
        wanted = dict if kind in ("dict", "TypedDict") else schema.type
        assert {type(end.state) for end in endings} == {wanted}


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_depends_on_the_process_is_found(kind: str) -> None:
    lives: list[int] = []

    @perdure.agent(KINDS[kind])
    def counting(run: perdure.Run[Any]) -> None:
        lives.append(1)
        with run.edit("counted") as draft:
            put(draft, len(lives))

    with pytest.raises(AssertionError, match=r"the state is .*2.*, undisturbed .*1"):
        kill_at_every_boundary(counting, before=lambda _: lives.clear())


def test_an_initial_state_and_one_that_is_waited_with() -> None:
    @perdure.agent(Ticket)
    def asking(run: perdure.Run[Ticket]) -> int:
        more = run.ask("How much more?", schema=int)
        with run.edit("paid") as draft:
            draft.paid += more
        return run.state.paid

    endings = kill_at_every_boundary(asking, state=Ticket(40), answers=[2])
    assert all((end.result, end.state) == (42, Ticket(42)) for end in endings)
