"""A share of `make shapes`: what goes in by each way comes out whole, then and later."""

from __future__ import annotations

import random
from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from typing import Any, get_origin

import pytest

import perdure
from perdure.core.types.parts import Parts
from perdure.engine.journal.values import parameters_of
from tests.shapes.__main__ import in_one_store, programs
from tests.shapes.alike import difference
from tests.shapes.generate import Shape
from tests.shapes.hashable import Hashable, Spot
from tests.shapes.ways import look_at_shape, put_shape, shape_of
from tests.shapes.wider import RECURSIVE


@pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning")  # pydantic's
@pytest.mark.parametrize(("kind", "count"), [("memory", 250), ("sqlite", 60), ("postgres", 20)])
def test_what_is_taken_comes_back_whole(kind: str, count: int) -> None:
    """Dataclass fields with `init=False`, private attributes, slots, and kinds of containers were
    dropped or changed without a word, in states as in results."""
    counts = in_one_store(kind, range(count))
    assert counts["taken"] >= 0.65 * count
    assert counts["taken by some ways"] <= 0.01 * count


@pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning")  # pydantic's
@pytest.mark.parametrize(("kind", "count"), [("memory", 220), ("sqlite", 30), ("postgres", 10)])
def test_programs_of_edits_show_what_plain_python_does(kind: str, count: int) -> None:
    """An edit of some shapes could not be undone, and after a rollback a handle could not be read:
    each time in a corner that no test by hand had thought of."""
    assert programs(kind, range(count)) > 4 * count


def test_members_and_keys_are_kept_or_refused() -> None:
    """A frozen dataclass within a tuple has a hash, and its plain form has none: as a member of a
    set or a key of a dict it was a bare TypeError out of the middle of the library."""
    with perdure.open("memory://") as store:
        for seed in range(150):
            generator = Hashable(seed)
            shape = generator.shape()
            taken = put_shape(store, seed, shape)
            assert generator.beside or set(taken.values()) == {not generator.fields}, (seed, shape)
            look_at_shape(store, seed, shape, taken)


def test_the_refusal_of_a_member_names_its_path() -> None:
    spot = (Spot(1), 2)
    for shape in (Sequence[set[tuple[Spot, int]]], list[dict[tuple[Spot, int], str]]):
        members: Any = {spot: "a"} if "dict" in str(shape) else {spot}
        with pytest.raises(perdure.Unstorable) as refused:
            perdure.Schema(shape, id="spots").take([members], aliases_refused=True)
        assert str(refused.value).startswith(f"state[0][{spot!r}]: a set member or dict key")
        assert "NamedTuple" in refused.value.hint


def test_what_holds_itself_is_taken_by_each_way() -> None:
    """An alias or a generic model that names itself was refused, or held plain data only."""
    with perdure.open("memory://") as store:
        for seed, (kind, make) in enumerate(RECURSIVE * 5):
            shape = Shape(kind, make(random.Random(seed)), odd=False)
            taken = put_shape(store, seed, shape)
            assert set(taken.values()) == {True}, (shape, taken)
            look_at_shape(store, seed, shape, taken)


REFUSED = {deque, defaultdict, OrderedDict}


@pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning")  # pydantic's
def test_an_argument_is_what_is_declared_or_refused() -> None:
    """Where a run's argument did not fit its type, the function got it as plain data."""
    refused: list[Any] = []
    for seed in range(300):
        shape = shape_of(seed)
        if shape is None or REFUSED & {
            get_origin(one.type) for one in Parts(shape.kind).annotations
        }:
            continue  # no instance of such a class can be stored

        def f(run: Any, value: Any) -> None: ...

        f.__annotations__["value"] = shape.kind
        schema, arguments = perdure.Schema(shape.kind, id="f"), parameters_of(f)
        for given in [3, "no", None, [["x"]], {"of": "another"}, {"a": {}}, {}]:
            try:
                ((plain,), _) = arguments.take((given,), {})
            except perdure.SchemaError as error:
                refused.append((seed, given, type(error)))
            else:
                ((built,), _) = arguments.build([plain], {})
                assert difference(built, schema.build(plain), odd=True) is None, (seed, given)
    assert len(refused) > 1000
    assert {kind for *_, kind in refused} == {perdure.SchemaError}


def test_a_loss_is_found() -> None:
    """The comparison that the others trust."""
    from tests.shapes.generate import Boxed, Parent

    one, other = Parent(), Parent()
    assert difference([one], [other]) is None
    other.seen.append(1)
    assert difference(one, other)
    for given, back in [
        ((1,), [1]),
        (True, 1),
        (0.0, -0.0),
        ({1}, frozenset({1})),
        (Boxed("1"), Boxed(1)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ]:
        assert difference(given, back), given
    strayed = Parent()
    strayed.more = 1  # type: ignore[attr-defined]
    assert difference(strayed, Parent())
