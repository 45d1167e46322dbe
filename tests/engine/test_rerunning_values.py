"""Values that a run had drawn before the step to which it is set back, or at which it is forked."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import NeedsAttention, Store
from perdure.testing import replay


@pytest.fixture
def paid() -> list[str]:
    return []


@pytest.fixture
def selling(paid: list[str]) -> Any:
    @perdure.tool(on_crash="ask")
    def pay(order: str) -> int:
        paid.append(order)
        return len(paid)

    @perdure.agent(dict)
    def selling(run: perdure.Run[dict]) -> list[Any]:
        new = run.patched("orders have random ids")
        order = f"{run.uuid() if new else 0} {run.now()} {run.random()}"
        with run.edit("ordered") as draft:
            draft["at"], draft["order"] = run.uuid().hex, order
        chance = f"{order} {run.uuid()}"
        return [order, run.state["at"], pay(chance)]

    return selling


def test_a_call_with_an_id_that_was_drawn_for_it_is_the_same_call(
    store: Store, selling: Any, paid: list[str]
) -> None:
    """A function drew an id for its order, and paid for it. The id had come into the log with the
    payment, so that the run that was set back to the payment had none. It drew another one, and
    that made another payment of it: it was made again, and nobody was asked."""
    first = store.run(selling, "a")
    handle = store.handle("a/selling/main")
    for _ in range(2):  # the second time from where it was set back
        handle.retry("pay#1", effects="reuse")
        assert store.run(selling, "a") == first
    handle.retry("pay#1")
    handle.cancel()
    handle.retry("pay#1")  # it did not come so far in between
    with pytest.raises(NeedsAttention, match="made before"):
        store.run(selling, "a")
    handle.settle("pay#1", done=1)
    assert store.run(selling, "a") == first
    assert len(paid) == 1
    assert replay(store, selling, handle.id).check() == first
    store.agent("a").verify()


def test_a_fork_has_the_values_from_before_its_step(
    store: Store, selling: Any, paid: list[str]
) -> None:
    first = store.run(selling, "a")
    forked = store.handle("a/selling/main").fork("pay#1", branch="b", effects="reuse")
    assert store.options(key="main@b").run(selling, "a") == first
    third = forked.fork("pay#1", branch="c", effects="reuse", key="third")
    assert store.options(key="third").run(selling, "a") == first
    assert len(paid) == 1
    assert replay(store, selling, third.id).check() == first
    store.agent("a").verify()


def test_what_is_drawn_in_the_block_of_an_edit_belongs_to_it(
    store: Store, selling: Any, paid: list[str]
) -> None:
    """What was drawn before the edit stays. Its block runs anew, and its code may be another one
    now; it says when it was made, too."""
    order, at, _ = store.run(selling, "a")
    handle = store.handle("a/selling/main")
    handle.retry("edit:ordered#1", effects="reuse")
    again = store.run(selling, "a")
    assert again[0] == order
    assert again[1] != at
    assert len(paid) == 2, "the id that it is paid under is drawn after that step"
    assert replay(store, selling, handle.id).check() == again
