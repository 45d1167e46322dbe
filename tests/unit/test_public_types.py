"""Whoever annotates what a public call gives or takes finds the type under a public name."""

import inspect
import typing
from collections.abc import Iterator
from typing import Any

import perdure
import perdure.types

INTERNAL = {
    "Context",
    "Execution",
    "Home",
    "LogReader",
    "Node",
    "Proposal",
    "Registry",
    "Runner",
    "Scope",
    "TypedPlan",
    "Wakeups",
    "WorkingCopy",
}
"""Of constructors that only the library calls, and of what its own rooms ask a schema."""


def _classes_of(hint: Any) -> Iterator[type]:
    if isinstance(hint, list | tuple):
        for one in hint:
            yield from _classes_of(one)
    elif (origin := typing.get_origin(hint)) is not None:
        yield from _classes_of(origin)
        yield from _classes_of(typing.get_args(hint))
    elif isinstance(hint, type):
        yield hint


def _hints_of(what: Any) -> Iterator[Any]:
    """Of a function, a method or a property; what only type checkers see is looked up there."""
    function = what.fget if isinstance(what, property) else what
    if inspect.isfunction(function) and function.__module__.startswith("perdure"):
        names = {**vars(perdure.types), **{one: getattr(perdure, one) for one in perdure.__all__}}
        names |= {one: getattr(perdure.types, one) for one in perdure.types.__all__}
        yield from typing.get_type_hints(function, localns=names).values()


def _unnamed() -> Iterator[str]:
    for name in perdure.__all__:
        found = getattr(perdure, name)
        members = [found]
        if inspect.isclass(found):
            members = [one for key, one in inspect.getmembers(found) if not key.startswith("_")]
        for member in members:
            for hint in _hints_of(member):
                for kind in _classes_of(hint):
                    if kind.__module__.startswith("perdure") and kind.__name__ not in PUBLIC:
                        yield f"{name}: {kind.__qualname__}"


PUBLIC = {*perdure.__all__, *perdure.types.__all__, *INTERNAL}


def test_each_type_of_a_public_signature_has_a_public_name() -> None:
    assert sorted(set(_unnamed())) == []


def test_no_name_is_public_twice() -> None:
    assert {*perdure.__all__} & {*perdure.types.__all__} == set()


def test_each_public_type_is_there() -> None:
    for name in perdure.types.__all__:
        assert getattr(perdure.types, name) is not None
        assert name in dir(perdure.types)
