"""Conditions of a search: filters on values, and conditions on namespaces."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langgraph.store.base import MatchCondition

from perdure.integrations.langgraph.store.items import Namespace

Test = Callable[[Any], bool]
ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
OPERATORS = ("$eq", "$ne", *ORDERED)


def compile_filter(wanted: Any) -> Test:
    """Compiles a filter to a function that returns True for values that meet every condition of it.

    A name with dots is a path (``user.address.city``) unless there is a field of that exact name. A
    field that is missing counts as None. Numbers are ordered among each other, and so are texts; an
    ordering condition on anything else is not met.

    Raises:
        ValueError: an unknown operator. TypeError: it is not a dict.
    """
    if not isinstance(wanted, Mapping):
        raise TypeError(f"a filter is a dict of fields, not {wanted!r:.60}")
    tests = [(name, _test(want)) for name, want in wanted.items()]

    def accepts(value: Any) -> bool:
        return all(test(_at(value, name)) for name, test in tests)

    return accepts


def _at(value: Any, name: Any) -> Any:
    if name in value or not isinstance(name, str) or "." not in name:
        return value.get(name)
    for part in name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _test(wanted: Any) -> Test:
    if isinstance(wanted, Mapping):
        if any(isinstance(name, str) and name.startswith("$") for name in wanted):
            tests = [_operator(name, want) for name, want in wanted.items()]
            return tests[0] if len(tests) == 1 else lambda value: all(one(value) for one in tests)
        accepts = compile_filter(wanted)
        return lambda value: isinstance(value, dict) and accepts(value)
    if isinstance(wanted, list | tuple):
        items = [_test(item) for item in wanted]
        return lambda value: (
            isinstance(value, list | tuple)
            and len(value) == len(items)
            and all(test(item) for test, item in zip(items, value, strict=True))
        )
    return lambda value: bool(value == wanted)


def _operator(name: Any, wanted: Any) -> Test:
    if name == "$eq":
        return lambda value: bool(value == wanted)
    if name == "$ne":
        return lambda value: bool(value != wanted)
    if name not in ORDERED:
        raise ValueError(
            f"Unsupported operator: {name!r:.60}; there are {', '.join(OPERATORS)}, "
            "and operators and fields do not mix in one dict"
        )
    compare = ORDERED[name]
    kinds: tuple[type, ...] = (str,) if isinstance(wanted, str) else (int, float)
    if not isinstance(wanted, str | int | float):
        return lambda _: False
    return lambda value: isinstance(value, kinds) and compare(value, wanted)


def matches(namespace: Namespace, conditions: Iterable[MatchCondition]) -> bool:
    """Returns True if a namespace meets every condition; ``*`` stands for any one label."""
    return all(_matches(namespace, condition) for condition in conditions)


def _matches(namespace: Namespace, condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(
            f"Unsupported match type: {condition.match_type!r:.60}; there are prefix and suffix"
        )
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return all(want in ("*", label) for label, want in zip(part, path, strict=False))
