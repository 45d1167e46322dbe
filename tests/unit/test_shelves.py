"""Shelves are in step with each other, also behind a change that was taken back."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from perdure.storage.memory.shelves import Shelves
from perdure.storage.memory.undoing import Undo

CHANGES = st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=20)


def labels(value: int) -> Iterable[str]:
    return f"odd {value % 2}", f"third {value % 3}"


def change(shelves: Shelves[int, int], changes: list[tuple[int, bool]]) -> None:
    for key, put in changes:
        if put:
            shelves.put(key, key)
        else:
            shelves.take(key)


def seen(shelves: Shelves[int, int]) -> dict[str, list[int]]:
    every = {label for key in range(13) for label in labels(key)}
    return {"all": [*shelves]} | {label: [*shelves.of(label)] for label in every}


@given(CHANGES, CHANGES)
def test_i2_each_shelf_has_what_it_is_for(
    before: list[tuple[int, bool]], after: list[tuple[int, bool]]
) -> None:
    undo = Undo()
    shelves = Shelves[int, int](undo, labels)
    change(shelves, before)
    shelves.in_order()
    undo.keep()
    expected = seen(shelves)
    assert expected["all"] == sorted(expected["all"])
    for label, found in expected.items():
        assert label == "all" or found == [n for n in expected["all"] if label in labels(n)]
    change(shelves, after)
    undo.back()
    shelves.in_order()
    assert seen(shelves) == expected
    change(shelves, after)
    undo.back()
    shelves.note()
    change(shelves, after)
    shelves.in_order()
    undo.back()
    shelves.in_order()
    assert seen(shelves) == expected
