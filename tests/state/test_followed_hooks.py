"""Fields that a hook makes of others, where programs without the hook change those others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel, model_validator

import perdure


@dataclass
class Before:
    rows: list[float] = field(default_factory=list)
    total: float = 0.0
    words: list[str] = field(default_factory=list)


@dataclass
class After:
    rows: list[float] = field(default_factory=list)
    total: float = 0.0
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.total = float(sum(self.rows))
        self.words = [str(row) for row in self.rows]


class Model(BaseModel):
    rows: list[float] = []
    total: float = 0.0
    words: list[str] = []

    @model_validator(mode="after")
    def add_up(self) -> Model:
        self.total = float(sum(self.rows))
        self.words = [str(row) for row in self.rows]
        return self


@pytest.mark.parametrize("cls", [After, Model])
@pytest.mark.parametrize("moves_on", ["follow", "refresh"])
def test_a_hook_that_makes_again_what_is_stored_shows_it(cls: Any, moves_on: str) -> None:
    """Another program took a row out and put it in again, without the hook that adds the rows up. A
    handle that followed showed the row beside a sum of nothing, and edits of the sum were refused
    as drift, though nobody had changed anything."""
    older, newer = (perdure.Schema(one, id="cart", version=(1, 0)) for one in (Before, cls))
    with perdure.open("memory://") as store:
        initial = cls(rows=[2.0], total=2.0, words=["2.0"])
        store.agent("x", newer, initial=initial).checkpoint("made")
        theirs, mine = store.agent("x", older), store.agent("x", newer)
        assert mine.state.total == 2.0
        for rows, total in (([], 0.0), ([2.0], 2.0)):
            theirs.update(lambda draft, rows=rows: setattr(draft, "rows", rows))  # type: ignore[misc]
            getattr(mine, moves_on)()
            assert mine.state == store.agent("x", newer).state
            assert (mine.state.total, len(mine.state.words)) == (total, len(mine.state.rows))
            assert mine.drift() == []
        mine.update(lambda draft: draft.rows.append(1.0))
        assert mine.state == store.agent("x", newer).state
        assert mine.state.total == 3.0
