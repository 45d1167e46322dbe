"""What an undo or redo says of what need not be read behind it changes no plan of a later one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import perdure
from perdure import Agent, Store
from perdure.core.undo import undo_plan
from perdure.errors import Conflict, NotFound
from perdure.model import Commit
from perdure.state.time_travel import _Path

ACTS = (
    "edit",
    "edit",
    "edit",
    "undo",
    "undo",
    "undo",
    "redo",
    "redo",
    "rollback",
    "step",
    "fork",
    "open",
)
GROUPS = (None, None, None, "g", "h")

acts = st.lists(
    st.tuples(st.sampled_from(ACTS), st.integers(0, 9), st.sampled_from(GROUPS)), max_size=40
)


class All(_Path):
    """The path without what its undos and redos say of it."""

    def since(self, seq: int, count: int | None = None) -> Iterator[Commit]:
        for commit in super().since(seq, count):
            yield replace(commit, records=())


def plans(agent: Agent[Any]) -> Iterator[undo_plan.Plan | None]:
    """What undo and redo would do, by all of the path and by what is left of it."""
    reader, seq = agent._working.reader, agent.seq
    _, (major, _) = agent._working.schema_to_write
    for plan in (undo_plan.plan_undo, undo_plan.plan_redo):
        for path in (All(reader, seq), _Path(reader, seq)):
            made = plan(path, lambda at: reader.fold(at).state if at else None, major)
            yield None if made is None else replace(made, record=None)


def act(store: Store, agent: Agent[Any], what: str, number: int, group: str | None) -> Agent[Any]:
    match what:
        case "edit":
            with agent.edit(group=group) as draft:
                match number % 5:
                    case 0:
                        draft["items"].append(number)
                    case 1 if draft["items"]:
                        del draft["items"][0]
                    case 2 if draft["items"]:
                        draft["items"][-1] = number
                    case _:
                        draft[f"k{number % 4}"] = agent.seq
        case "rollback":
            agent.rollback(max(1, agent.seq - number))
        case "step":
            agent.checkpoint(f"c{agent.seq}-{number}")
        case "fork":
            return agent.fork(f"f{agent.seq}-{number}")
        case "open":
            return store.agent("a")
        case _:
            getattr(agent, what)()
    return agent


@settings(max_examples=120, deadline=None)
@given(acts)
def test_a_plan_is_the_same_by_all_of_the_path_and_by_what_is_left_of_it(todo: Any) -> None:
    """Each of 800 undos in a row read all that the ones before it had undone, and those."""
    with perdure.open("memory://", durability="os") as store:
        agent = store.agent("a", initial={"items": [0, 1, 2]})
        agent.checkpoint("begun")
        for what, number, group in todo:
            try:
                agent = act(store, agent, what, number, group)
            except (Conflict, NotFound):
                agent.refresh()
            by_all, by_left, redo_by_all, redo_by_left = plans(agent)
            assert by_left == by_all and redo_by_left == redo_by_all
        agent.verify()
