"""A share of `make between`: of two that act at the same time, one came after the other."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.between.trying import try_program


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What is expected here would fill a log."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("store", "first", "count"),
    [("memory", 0, 10), ("memory", 10, 10), ("sqlite", 100, 3), ("postgres", 200, 1)],
)
def test_one_comes_after_the_other(store: str, first: int, count: int) -> None:
    """Agents that were on their way to one store were moved to another one as well, and lived in
    both."""
    tried: Counter[str] = Counter()
    for seed in range(first, first + count):
        tried += try_program(seed, store, points=3)
    assert tried.total() > count
