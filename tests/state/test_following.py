"""`Agent.follow`: a view that is kept in step with the log by what others committed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

import perdure
from perdure.errors import SchemaError
from tests.state.conftest import Place


@dataclass
class Ticket:
    status: str = "pending"
    messages: list[str] = field(default_factory=list)


@dataclass
class Renamed:
    """What cannot be read of a Ticket."""

    status: int = 0


def test_it_gives_the_commits_also_to_whoever_never_looks_at_the_state(place: Place) -> None:
    """A program kept a list of an agent's commits by `follow`, and needed no state: each call gave
    None, for ever, as if everything had to be read anew, until something looked at `state`."""
    theirs = place.open().agent("ticket-1", Ticket)
    with theirs.edit("opened") as draft:
        draft.status = "running"
    watched = place.open().agent("ticket-1", Ticket)
    assert watched.follow() is None  # the first time: from here on it is followed
    for number in range(3):
        with theirs.edit(f"message {number}") as draft:
            draft.messages.append("hi")
        followed = watched.follow()
        assert followed is not None
        assert [commit.cause.what for commit in followed] == [f"message {number}"]
        assert watched.seq == theirs.seq
    assert watched.follow() == []
    assert watched.state == Ticket("running", ["hi"] * 3) == theirs.state
    assert watched.drift() == []
    with watched.edit("mine") as draft:
        draft.messages.append("there")
    assert theirs.refresh() == watched.state


def test_a_rollback_is_said_also_where_no_state_was_built(place: Place) -> None:
    theirs = place.open().agent("ticket-1", Ticket)
    for number in range(3):
        with theirs.edit(f"message {number}") as draft:
            draft.messages.append("hi")
    watched = place.open().agent("ticket-1", Ticket)
    assert watched.follow() is None
    theirs.rollback(2)
    assert watched.follow() is None
    assert watched.state == Ticket(messages=["hi"])


def test_commits_are_followed_whose_state_this_program_cannot_build(place: Place) -> None:
    theirs = place.open().agent("ticket-1", perdure.Schema(Ticket, id="ticket"))
    with theirs.edit("opened") as draft:
        draft.status = "running"
    watched = place.open().agent("ticket-1", perdure.Schema(Renamed, id="ticket"))
    assert watched.follow() is None
    with theirs.edit("closed") as draft:
        draft.status = "completed"
    followed = watched.follow()
    assert followed is not None and [commit.cause.what for commit in followed] == ["closed"]
    with pytest.raises(SchemaError):
        _ = watched.state


def test_it_follows_in_coroutines_too(place: Place) -> None:
    async def main() -> None:
        async with perdure.open_async(place.url) as store:
            theirs = await store.agent("ticket-1", Ticket)
            async with theirs.edit("opened") as draft:
                draft.status = "running"
            watched = await store.agent("ticket-1", Ticket)
            await watched.follow()
            for number in range(2):
                async with theirs.edit(f"message {number}") as draft:
                    draft.messages.append("hi")
                followed = await watched.follow()
                assert followed is not None
                assert [commit.cause.what for commit in followed] == [f"message {number}"]

    asyncio.run(main())
