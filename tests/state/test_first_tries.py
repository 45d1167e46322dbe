"""What is written at first, as in other libraries: it did nothing, without a word, or an error
named something else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import perdure


@dataclass
class Ticket:
    status: str = "new"
    notes: list[str] = field(default_factory=list)


@perdure.step
async def _allowed(cents: int) -> bool:
    return cents < 5


allowed: Any = _allowed  # type checkers know better


def test_an_edit_that_is_not_entered_takes_nothing() -> None:
    """`agent.edit("opened").status = "open"` changed an attribute of the block, and was gone."""
    with perdure.open("memory://") as store:
        agent: Any = store.agent("a", Ticket)
        with pytest.raises(AttributeError):
            agent.edit("opened").status = "open"
        with pytest.raises(AttributeError, match=r"with agent\.edit"):
            agent.edit("opened").notes.append("open")
        assert not agent.exists


def test_an_asynchronous_edit_that_is_not_entered_takes_nothing() -> None:
    async def main() -> None:
        async with perdure.open_async("memory://") as store:
            agent: Any = await store.agent("a", Ticket)
            with pytest.raises(AttributeError):
                agent.edit("opened").status = "open"
            with pytest.raises(AttributeError, match=r"async with agent\.edit"):
                agent.edit("opened").notes.append("open")

    asyncio.run(main())


NEXT: dict[type, Callable[[Any], Any]] = {
    dict: lambda state: {**state, "status": "open"},
    Ticket: lambda state: Ticket("open", state.notes),
}


@pytest.mark.parametrize("schema", NEXT)
def test_an_update_that_returns_the_next_state_is_refused(schema: type) -> None:
    """Reducers return the next state; update commits what was done to the draft, which was nothing.
    As the first edit of an agent it made a commit that said so."""
    initial = schema(status="new")
    with perdure.open("memory://") as store:
        agent: Any = store.agent("a", schema, initial=initial)
        with pytest.raises(TypeError, match="left the draft"):
            agent.update(NEXT[schema], "opened")
        assert not agent.exists

    async def main() -> None:
        async with perdure.open_async("memory://") as store:
            agent: Any = await store.agent("a", schema, initial=initial)
            with pytest.raises(TypeError, match="left the draft"):
                await agent.update(NEXT[schema], "opened")

    asyncio.run(main())


def test_what_else_an_update_returns_is_its_own_business() -> None:
    """`draft.pop("cart", {})` was refused where there was no cart: it gave a dict, and changed
    nothing."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", initial={"n": 1})
        agent.update(lambda draft: draft.setdefault("cart", {"s": 1}))
        for _ in range(2):
            agent.update(lambda draft: draft.pop("cart", {}))
            agent.update(lambda draft: draft)
            agent.update(lambda draft: dict(draft))
            agent.update(lambda draft: {"moved": 0})
        assert agent.state == {"n": 1}


def test_decorators_without_what_they_need_say_it() -> None:
    with pytest.raises(TypeError, match=r"@perdure\.invariant\('status'\)"):

        @perdure.invariant  # type: ignore[arg-type]
        def fine(before: Any, after: Any) -> None: ...


def test_an_agent_needs_no_parentheses() -> None:
    """`@perdure.agent` took the function for a schema, where `@perdure.step` takes it as it is; the
    error named a function `decorate` that nobody had written."""

    @perdure.agent
    def counts(run: perdure.Run[dict[str, Any]], by: int) -> int:
        with run.edit() as draft:
            draft["n"] = draft.get("n", 0) + by
        return int(run.state["n"])

    @perdure.agent(name="other")
    def named(run: perdure.Run[dict[str, Any]]) -> str:
        return run.id

    with perdure.open("memory://") as store:
        assert store.run(counts, "a", 2) == 2
        assert store.agent("a").state == {"n": 2}
        assert store.run(named, "b").startswith("b/other")


def test_asynchronous_steps_are_no_truth_of_a_plain_function() -> None:
    """`all(run.map(allowed, prices))` approved each price: the items were coroutines, of which
    nobody had asked anything."""

    @perdure.agent(dict)
    def approving(run: perdure.Run[dict]) -> str:
        return "approved" if all(run.map(allowed, [1, 20])) else "declined"

    @perdure.agent(dict)
    def submitting(run: perdure.Run[dict]) -> str:
        with run.executor() as threads:
            return "approved" if threads.submit(allowed, 20).result() else "declined"

    for function in (approving, submitting):
        with (
            perdure.open("memory://") as store,
            pytest.raises(TypeError, match="_allowed is async"),
        ):
            store.run(function, "a")


def test_what_is_not_open_yet_says_how_it_is_opened(tmp_path: Path) -> None:
    opening: Any = perdure.open_async(tmp_path / "agents.db")
    with pytest.raises(AttributeError, match=r"await perdure\.open_async"):
        opening.agent("a")
