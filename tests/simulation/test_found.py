"""What simulations found, each as a test of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import perdure
from perdure.errors import StoreUnavailable
from perdure.storage.appending import Append, Outcome
from perdure.storage.memory.backend import MemoryBackend
from perdure.store import Store


class BusyOnce(MemoryBackend):
    """Refuses one append; `seen` counts them."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        self.seen = 0

    def append(self, batch: Sequence[Append]) -> list[Outcome]:
        self.seen += 1
        if self.seen == self.at:
            return [StoreUnavailable("is busy")] * len(batch)
        return super().append(batch)


@perdure.agent(dict)
def turning(run: perdure.Run[dict[str, Any]], left: int) -> Any:
    with run.edit("counts") as draft:
        draft["turns"] = draft.get("turns", 0) + 1
    return run.again(left - 1) if left else run.state["turns"]


@pytest.mark.parametrize("at", range(1, 8))
def test_a_busy_store_at_the_end_of_a_turn_does_not_fail_the_run(at: int) -> None:
    """The commit that ends a turn was made where the function's own errors are caught. A store
    that was busy just then (or a commit whose answer was lost) made the run "failed", for good,
    with a StoreUnavailable that the function never saw. Everywhere else the run goes on as soon
    as the store does."""
    backend = BusyOnce(at)
    with Store(backend) as store:
        with pytest.raises(StoreUnavailable, match="is busy"):
            store.run(turning, "a", 2)
        assert store.run(turning, "a", 2) == 3
        assert store.agent("a").state == {"turns": 3}
    assert backend.seen > 7
