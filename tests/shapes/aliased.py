"""Generic aliases: their variables stand in what they mean in any order, once, often or never."""

from __future__ import annotations

import random
from typing import Any, TypeVar, TypeVarTuple, Unpack

from typing_extensions import TypeAliasType

from tests.shapes.generate import A_DICT, A_LIST
from tests.shapes.leaves import Make

_K = TypeVar("_K")
_V = TypeVar("_V")
_Ts = TypeVarTuple("_Ts")
K: Any = _K
V: Any = _V
Ts: Any = _Ts
A_TUPLE: Any = tuple
A_STAR: Any = Unpack
"""Without their types: no type checker could know what is made of them."""


def aliased(
    rng: random.Random, name: str, one: tuple[Any, Make], other: tuple[Any, Make]
) -> tuple[Any, Make]:
    """Returns an alias, over one or two steps, and what makes its values: `one` and `other` are
    what its variables stand for."""
    (kind, make), (second, make_second) = one, other

    def alias(said: str, meant: Any, *variables: Any) -> Any:
        return TypeAliasType(f"{name}{said}", meant, type_params=variables)

    swapped = alias("Swapped", A_TUPLE[A_LIST[V], A_DICT[str, K]], K, V)

    def values(first: Make, last: Make) -> Make:
        return lambda rng: ([last(rng)], {"k": first(rng)})

    how = rng.choice(("swapped", "passed on", "in part", "often", "never", "itself", "several"))
    if how == "swapped":
        return swapped[kind, second], values(make, make_second)
    if how == "passed on":
        return alias("On", swapped[V, K], K, V)[kind, second], values(make_second, make)
    if how == "in part":
        return alias("Part", swapped[V, int], V)[kind], values(make, lambda rng: rng.randrange(9))
    if how == "often":
        often = alias("Often", A_TUPLE[V, K, V], K, V)
        return often[kind, second], lambda rng: (make_second(rng), make(rng), make_second(rng))
    if how == "never":
        return alias("Never", A_LIST[V], K, V)[kind, second], lambda rng: [make_second(rng)]
    if how == "itself":
        return alias("Itself", V, K, V)[kind, second], make_second
    several = alias("Several", A_TUPLE[V, A_TUPLE[A_STAR[Ts]]], V, Ts)
    return several[kind, second, int], lambda rng: (make(rng), (make_second(rng), rng.randrange(9)))
