"""A share of `make shapes`: what goes in by each way comes out whole, then and later."""

from __future__ import annotations

import pytest

from tests.shapes.__main__ import in_one_store


@pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning")  # pydantic's
@pytest.mark.parametrize(("kind", "count"), [("memory", 400), ("sqlite", 80), ("postgres", 20)])
def test_what_is_taken_comes_back_whole(kind: str, count: int) -> None:
    """Dataclass fields with `init=False`, private attributes, slots, and kinds of containers were
    dropped or changed without a word, in states as in results."""
    counts = in_one_store(kind, range(count))
    assert counts["taken"] > 0.7 * count
    assert counts["taken by some ways"] <= 0.01 * count


def test_a_loss_is_found() -> None:
    """The comparison that the others trust."""
    from tests.shapes.alike import difference
    from tests.shapes.generate import Boxed, Parent

    one, other = Parent(), Parent()
    assert difference([one], [other]) is None
    other.seen.append(1)
    assert difference(one, other)
    for given, back in [
        ((1,), [1]), (True, 1), (0.0, -0.0), ({1}, frozenset({1})), (Boxed("1"), Boxed(1)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ]:  # fmt: skip
        assert difference(given, back), given
    strayed = Parent()
    strayed.more = 1  # type: ignore[attr-defined]
    assert difference(strayed, Parent())
