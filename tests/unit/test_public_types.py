"""Whoever annotates what a public call gives or takes finds the type under a public name."""

import importlib
import inspect
import typing
from collections.abc import Iterator
from typing import Any

import pytest

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
    """Of a function, a method or a property."""
    function = what.fget if isinstance(what, property) else what
    if inspect.isfunction(function) and function.__module__.startswith("perdure"):
        yield from typing.get_type_hints(function).values()


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


ROOMS = (
    "perdure",
    "perdure.types",
    "perdure.errors",
    "perdure.replication",
    "perdure.testing",
    "perdure.integrations.langgraph",
    "perdure.integrations.openai_agents",
)
"""The modules with public names."""


def _annotated(found: Any) -> Iterator[tuple[str, Any]]:
    """What carries annotations in a class or function, with its name."""
    if inspect.isfunction(found):
        yield found.__qualname__, found
    for cls in found.__mro__ if inspect.isclass(found) else ():
        if not cls.__module__.startswith("perdure"):
            continue
        yield cls.__qualname__, cls
        for name, member in vars(cls).items():
            member = member.fget if isinstance(member, property) else member
            member = getattr(member, "__func__", member)
            if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
                yield member.__qualname__, member


@pytest.mark.parametrize("room", ROOMS)
def test_the_hints_of_all_that_is_public_can_be_had(room: str) -> None:
    """A web framework asked `typing.get_type_hints` of a handler that returned a `RunReport`: it
    raised a NameError, for a name that only type checkers saw."""
    module = importlib.import_module(room)
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    looked, failed = 0, []
    for name in names:
        for what, found in _annotated(getattr(module, name)):
            looked += 1
            try:
                typing.get_type_hints(found, include_extras=True)
            except NameError as error:
                failed.append(f"{what}: {error}")
    assert failed == [] and looked > 5
