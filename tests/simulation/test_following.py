"""A share of the lives that are followed, or moved; `make simulate` has others, and many more."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

import perdure
from perdure import Store
from perdure.storage.locate import _named_memories
from tests.postgres.server import shared
from tests.simulation.following import follow, move

KINDS = ("memory", "sqlite", "postgres")
SEEDS = {"memory": 10, "sqlite": 2, "postgres": 1}
"""How many lives, by the slower of the two."""

_names = itertools.count()


@pytest.mark.parametrize("life", [follow, move])
@pytest.mark.parametrize("kinds", list(itertools.product(KINDS, KINDS)), ids="-to-".join)
def test_a_copy_is_the_same_whatever_came_in_whatever_order(
    kinds: tuple[str, str], life: Callable[..., object], tmp_path: Path
) -> None:
    for seed in range(SEEDS[max(kinds, key=KINDS.index)]):
        opened: list[Store] = []

        def open_(url: str, opened: list[Store] = opened) -> Store:
            opened.append(perdure.open(url, durability="os"))
            return opened[-1]

        try:
            life(open_, *(_url(kind, tmp_path) for kind in kinds), seed)
        finally:
            for store in opened:
                store.close()
            for name in [name for name in _named_memories if name.startswith("followed-")]:
                del _named_memories[name]


def _url(kind: str, folder: Path) -> str:
    name = f"followed-{next(_names)}"
    if kind == "postgres":
        return shared().new_url()
    return f"memory://{name}" if kind == "memory" else str(folder / f"{name}.db")
