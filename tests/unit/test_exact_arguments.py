"""What an object says of itself may be another thing at each look: its type is asked instead."""

from __future__ import annotations

import ast
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import perdure
from perdure.core.arguments import checks, exact_types, names
from tests.source_tree import SOURCE


class Biting(str):
    """Equal to everything, and without a hash."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        raise AssertionError("nobody asks for it")


class Claiming:
    """Says that it is of another class."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._kind


class Three(int):
    """Passes every check, and is something else where it is used."""

    def __ge__(self, other: object) -> bool:
        return True

    __le__ = __gt__ = __lt__ = __ge__

    def __int__(self) -> int:
        return -1

    def __float__(self) -> float:
        return float("nan")


class Never(timedelta):
    def total_seconds(self) -> float:
        return float("nan")


def test_a_fork_by_a_name_that_cannot_be_hashed_is_made_whole() -> None:
    """`fork` wrote the branch under the plain name, then looked for it under what it was given,
    whose `__hash__` raised: it said that it had failed, and the branch was there."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", initial={"n": 1})
        assert agent.fork(Biting("side")).branch_name == "side"
        assert type(agent.branch(Biting("side")).branch_name) is str
        with pytest.raises(perdure.Conflict):
            agent.fork("side")


def test_a_number_is_what_its_type_says() -> None:
    """`export_log(until=…)` of a number that passed the check and was another one where it was
    used said of a sound log that it was `Corrupt`: commits are missing."""
    with perdure.open("memory://") as store:
        agent = store.agent("a", initial={"n": 1})
        for n in range(4):
            with agent.edit("it") as draft:
                draft["n"] = n
        (info,) = store.agents()
        assert len(list(store.export_log(info, until=Three(3)))) == 3
        assert agent.at(Three(3)).seq == 3
    assert type(checks.count(Three(3), "n=")) is int
    assert checks.seconds(Three(3)) == 3.0
    assert checks.seconds(Never(seconds=2)) == 2.0


@pytest.mark.parametrize("kind", [str, int, float, bool, timedelta, datetime, dict, list])
def test_what_only_claims_to_be_of_a_class_is_refused_by_its_name(kind: type) -> None:
    """`isinstance` believed its `__class__`: then came a bare AttributeError from deep within."""
    given: Any = Claiming(kind)
    refusing: list[Callable[[], Any]] = [
        lambda: names.check_name(given, "an agent"),
        lambda: names.check_words(given, "what="),
        lambda: names.words_of(given, "tags"),
        lambda: checks.count(given, "n="),
        lambda: checks.seconds(given),
        lambda: checks.number(given, "n="),
        lambda: checks.mapping(given, "config= must be a mapping"),
        lambda: checks.one_of(given, "status=", ("done",)),
    ]
    for check in refusing:
        with pytest.raises((TypeError, ValueError), match="Claiming"):
            check()


def test_a_signal_is_waited_for_by_its_plain_name() -> None:
    """`wait_for` recorded its step under what the name said of itself, which was no text: a bare
    UnicodeEncodeError came out of the middle of a run. So it did of `at` with such a name."""

    class Name(str):
        def __str__(self) -> str:
            return "\ud800"

    @perdure.agent(dict)
    def waiting(run: perdure.Run[dict[str, Any]]) -> Any:
        return run.wait_for(Name("go"), timeout=0, default="late")

    with perdure.open("memory://") as store:
        assert store.run(waiting, "a") == "late"
        with pytest.raises(ValueError, match="lone surrogate"):
            store.agent("a").at("a\udfffb")


def test_a_moment_of_a_subclass_is_the_same_moment() -> None:
    class Stamp(datetime):
        def utcoffset(self) -> Any:
            raise AssertionError("nobody asks for it")

    given = Stamp(2024, 5, 6, 7, 8, 9, 10, UTC)
    assert exact_types.moment(given) == datetime(2024, 5, 6, 7, 8, 9, 10, UTC)
    assert type(exact_types.moment(given)) is datetime


CHECKS = {
    "check_name",
    "check_label",
    "check_words",
    "check_key",
    "check_text",
    "check_signal",
    "check_limit",
    "words_of",
    "one_of",
    "count",
    "number",
    "seconds",
    "mapping",
}
ONLY_LOOKED_AT = {
    "perdure/transfer/incoming_log.py": "what a log says: it is read, and of exactly these types",
}


def test_what_was_checked_is_what_is_used() -> None:
    """Whoever checks an argument and goes on with what was given uses another value than the one
    that was checked."""
    dropped = []
    for path in SOURCE.rglob("*.py"):
        here = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            name = _called_for_nothing(node)
            if name in CHECKS and here not in ONLY_LOOKED_AT:
                dropped.append(f"{here}: {name}")
    assert not dropped


def _called_for_nothing(node: ast.AST) -> str:
    """The name of the function that a statement calls, and nothing else."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=str(name)))):
            return name
    return ""
