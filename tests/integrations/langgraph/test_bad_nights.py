"""What went wrong when somebody tried to break it; each told by its story."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from pydantic import BaseModel

from perdure import NotFound
from perdure.integrations.langgraph import PerdureSaver
from tests.integrations.langgraph.checkpoints import (
    checkpoint,
    config,
    get,
    id_of,
    put,
    values_of,
)
from tests.integrations.langgraph.conftest import Place


def test_a_late_checkpoint_of_a_deleted_thread_is_none_of_the_new_one(saver: PerdureSaver) -> None:
    """The thread was deleted and begun anew; then a run of the old one put its next checkpoint. It
    was taken in as a line of the new thread, had the greatest id, and was its state."""
    old = put(saver, {"x": "old"})
    saver.delete_thread("t")
    put(saver, {"x": "new"}, version=2)
    with pytest.raises(NotFound, match="deleted"):
        put(saver, {"x": "late"}, old, version=3)
    with pytest.raises(NotFound, match="deleted"):
        saver.put_writes(old, [("x", "late")], "task")
    assert values_of(saver) == {"x": "new"}
    assert len(list(saver.list(config()))) == 1


def test_an_unknown_parent_is_still_no_error(saver: PerdureSaver) -> None:
    put(saver, {"x": 1})
    saver.delete_thread("t")
    put(saver, {"x": 2}, version=2)
    never = config(checkpoint_id=checkpoint({}, 9)["id"])
    put(saver, {"x": 3}, never, version=3)
    assert values_of(saver) == {"x": 3}


def test_what_was_removed_does_not_come_back_in_a_copy(saver: PerdureSaver) -> None:
    """A copy, and a copy of that, showed the checkpoints that its origin had removed."""
    first = put(saver, {"x": 1}, run_id="r1")
    put(saver, {"x": 2}, first, version=2, run_id="r2")
    saver.delete_for_runs(["r2"])
    saver.copy_thread("t", "copy")
    saver.copy_thread("copy", "again")
    for name in ("t", "copy", "again"):
        assert values_of(saver, config(name)) == {"x": 1}
        assert len(list(saver.list(config(name)))) == 1
    saver.prune(["again"])
    assert values_of(saver, config("again")) == {"x": 1}


class Square(BaseModel):
    side: int

    @cached_property
    def area(self) -> int:
        return self.side**2


def test_what_a_model_has_cached_is_not_stored(place: Place) -> None:
    """A cached property that had been read was stored as a field, which the class has not: the
    checkpoint could not be read any more."""
    square = Square(side=3)
    assert square.area == 9
    put(place.open(types=[Square]), {"square": square})
    found = values_of(place.open(types=[Square]))["square"]
    assert found == square
    assert "area" not in vars(found) and found.area == 9


def test_a_name_that_is_empty_is_not_none(place: Place) -> None:
    """Of a message's fields those that are empty by default are left out; a name's default is None,
    and an empty one came back as that."""
    message = AIMessage("hello", name="", id="")
    put(place.open(), {"messages": [message]})
    found = values_of(place.open())["messages"][0]
    assert (found.name, found.id) == ("", "")
    assert found == message


@pytest.mark.parametrize(("before", "after"), [(1, True), (1, 1.0), ([0], [False])])
def test_a_value_that_only_equals_the_one_before_counts(
    saver: PerdureSaver, before: Any, after: Any
) -> None:
    """Put once more under the same id with True where 1 had been, it was taken for the same."""
    same_id = id_of(put(saver, {"x": before}))
    put(saver, {"x": after}, id=same_id)
    found = values_of(saver)["x"]
    assert repr(found) == repr(after)


def test_namespaces_may_end_like_the_second_line_of_others(place: Place) -> None:
    """The branch of namespace ``x~2`` was that of the second line of ``x``."""
    saver = place.open()
    root = put(saver, {"x": 1}, config(ns="x"))
    put(saver, {"x": 2}, root, version=2)
    put(saver, {"x": 3}, root, version=3)
    put(saver, {"x": "other"}, config(ns="x~2"), version=4)
    for one in (saver, place.open()):
        assert values_of(one, config(ns="x")) == {"x": 3}
        assert values_of(one, config(ns="x~2")) == {"x": "other"}


def test_runs_are_found_by_uuids_too(saver: PerdureSaver) -> None:
    """LangChain's run ids are UUIDs; those in metadata were compared with texts."""
    from uuid import UUID

    run = UUID(int=7)
    first = put(saver, {"x": 1})
    put(saver, {"x": 2}, first, version=2, run_id=run)
    saver.delete_for_runs([str(run)])
    assert get(saver).checkpoint["channel_values"] == {"x": 1}
