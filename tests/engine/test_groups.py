"""Errors in groups, as a `TaskGroup` raises them: recorded, and raised again as groups."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

import perdure
from perdure.engine.journal.failures import HELD_MAX, LEVELS_MAX, error_record, rebuild_error
from perdure.errors import CallFailed
from tests.engine.conftest import CrashError, Crashes, Place


class Refused(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"refused with {code}")
        self.code = code


class Several(ExceptionGroup[Exception]):
    """One that is made of other arguments than a group's."""

    where: str

    def __new__(cls, errors: list[Exception], where: str) -> Several:
        self = super().__new__(cls, f"several, {where}", errors)
        self.where = where
        return self


def local(words: str) -> Exception:
    class Local(Exception):
        pass

    return Local(words)


def told(error: BaseException) -> Any:
    """What somebody who handles it can tell."""
    if isinstance(error, BaseExceptionGroup):
        return type(error), error.message, [told(one) for one in error.exceptions]
    return type(error), str(error), {**vars(error), "target": ""}


def back(error: Exception) -> Exception:
    return rebuild_error(error_record(error), "")


def test_a_run_that_failed_with_a_group_fails_with_it_whenever_it_is_asked(place: Place) -> None:
    """Who wrote `except*` around `store.run` met the group the first time; asked again, the failed
    run raised a CallFailed, which said no more than how many there had been."""

    @perdure.agent(dict)
    async def act(run: perdure.AsyncRun[dict[str, Any]]) -> None:
        async def fails(error: Exception) -> None:
            raise error

        async with asyncio.TaskGroup() as group:
            group.create_task(fails(ValueError("no")))
            group.create_task(fails(Refused(51)))

    async def run() -> None:
        async with perdure.open_async(place.url) as other:
            await other.run(act, "a")

    store = place.open()
    found = []
    for _ in range(2):
        with pytest.raises(ExceptionGroup) as seen:
            asyncio.run(run())
        found.append(told(seen.value))
    with pytest.raises(ExceptionGroup) as seen:
        store.handle("a/act/main").result()
    assert found == [told(seen.value)] * 2
    assert [kind for kind, *_ in found[0][2]] == [ValueError, Refused]
    assert found[0][2][1][2]["code"] == 51


@pytest.mark.parametrize("kind", ["step", "tool"])
def test_a_call_that_raised_a_group_raises_it_on_replay(
    place: Place, crash: Crashes, kind: str
) -> None:
    """It left the call as a CallFailed, and `except*` had no part of it. A member that does not
    come back is one, the first time, too."""
    seen: list[Any] = []

    @getattr(perdure, kind)
    def act() -> None:
        raise ExceptionGroup("both", [Refused(51), ExceptionGroup("deep", [local("gone")])])

    @perdure.agent(dict)
    def f(run: perdure.Run[dict[str, Any]]) -> None:
        try:
            act()
        except* Refused as group:
            seen.append(told(group))
        except* CallFailed as group:
            seen.append(told(group))
            crash("handled")

    crash.arm("handled")
    with pytest.raises(CrashError):
        place.open().run(f, "a")
    place.open().run(f, "a")
    first, again = seen[:2], seen[2:]
    assert first == again
    assert first[0][2][0][0] is Refused and "Local: gone" in first[1][2][0][2][0][1]


GROUPS = {
    "nested": ExceptionGroup("a", [ExceptionGroup("b", [ValueError(1), OSError(2, "c", "d")])]),
    "of a class of its own": Several([ValueError("e")], "here"),
    "in another error": RuntimeError(ExceptionGroup("f", [Refused(5)])),
    "of ours": ExceptionGroup("g", [KeyError("h"), perdure.Conflict("i")]),
    "of another module": ExceptionGroup("j", [pickle.PicklingError("k")]),
}


@pytest.mark.parametrize("error", GROUPS.values(), ids=GROUPS.keys())
def test_a_group_comes_back(error: Exception) -> None:
    again = back(error)
    assert told(again) == told(error)
    assert [told(one) for one in again.args if isinstance(one, Exception)] == [
        told(one) for one in error.args if isinstance(one, Exception)
    ]


def test_a_member_of_a_group_is_what_it_would_be_alone() -> None:
    errors = [ValueError("a"), local("b"), Refused(3), local("c")]
    group = back(ExceptionGroup("d", errors))
    assert isinstance(group, ExceptionGroup)
    assert [told(one) for one in group.exceptions] == [told(back(one)) for one in errors]


def test_a_group_has_room_for_so_many() -> None:
    errors = [ValueError(str(number)) for number in range(HELD_MAX + 10)]
    group = back(ExceptionGroup("many", errors))
    assert isinstance(group, ExceptionGroup) and len(group.exceptions) == len(errors)
    kinds = [type(one) for one in group.exceptions]
    assert kinds == [ValueError] * (HELD_MAX - 1) + [CallFailed] * 11
    assert "ValueError: 1009" in str(group.exceptions[-1])


def test_a_group_is_not_endlessly_deep() -> None:
    error: Exception = ValueError("inside")
    for level in range(200):
        error = ExceptionGroup(f"{level}", [error])
    again, levels = back(error), 0
    while isinstance(again, ExceptionGroup):
        again, levels = again.exceptions[0], levels + 1
    assert levels == LEVELS_MAX and type(again) is CallFailed


@pytest.mark.parametrize("count", [1, 2, 400])
def test_errors_that_hold_each_other_have_a_record(count: int) -> None:
    """Each of a group's errors had the group as an attribute: a record was made of it in each of
    them, and in each of those of that."""
    errors = [ValueError(str(number)) for number in range(count)]
    group = ExceptionGroup("all", errors)
    for error in errors:
        vars(error).update(group=group, first=errors[0])
    again = back(group)
    assert isinstance(again, ExceptionGroup)
    assert {type(one) for one in again.exceptions} == {ValueError}
    assert [str(one) for one in again.exceptions] == [str(one) for one in errors]
