"""Writes of an older program that leave alone what a newer one stored: they raise `n`."""

from __future__ import annotations

import copy
from typing import Any


def edited(agent: Any) -> None:
    with agent.edit("something else") as draft:
        draft.n += 1


def saved(agent: Any) -> None:
    whole = copy.deepcopy(agent.state)
    whole.n = 1
    agent.save(whole)
