"""What a machine lacks is no failure of a run: it stops, says what, and goes on with it."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import perdure
from perdure.core.values.zones import named
from perdure.errors import NeedsAttention, UnknownZone
from tests.machine import machine

WHEN = dt.datetime(2026, 8, 12, 12, tzinfo=ZoneInfo("Pacific/Chatham"))
MADE: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    MADE.clear()


@perdure.step
def look_up() -> dt.datetime:
    MADE.append("look_up")
    return dt.datetime(2026, 8, 12, 12, tzinfo=named("Pacific/Chatham"))


@perdure.step
def stamp(when: dt.datetime) -> float:
    MADE.append("stamp")
    return when.timestamp()


@perdure.tool
def remind(when: dt.datetime) -> str:
    MADE.append("remind")
    return str(when)


@perdure.agent(dict)
def by_itself(run: perdure.Run[dict[str, Any]]) -> str:
    when = look_up()
    run.wait_for("go")
    return when.astimezone(dt.UTC).isoformat()


@perdure.agent(dict)
def in_a_step(run: perdure.Run[dict[str, Any]]) -> float:
    when = look_up()
    run.wait_for("go")
    try:
        return stamp(when)
    except Exception:
        return -1.0


@perdure.agent(dict)
def in_a_tool(run: perdure.Run[dict[str, Any]]) -> str:
    when = look_up()
    run.wait_for("go")
    return remind(when)


@perdure.agent(dict)
def in_a_group(run: perdure.Run[dict[str, Any]]) -> float:
    when = look_up()
    run.wait_for("go")
    try:
        return when.timestamp()
    except Exception as error:
        raise ExceptionGroup("as a task group has it", [ValueError("beside"), error]) from None


EXPECTED = {
    "by_itself": "2026-08-11T23:15:00+00:00",
    "in_a_step": WHEN.timestamp(),
    "in_a_group": WHEN.timestamp(),
}


@pytest.mark.parametrize("function", [by_itself, in_a_step, in_a_group])
def test_a_run_stops_and_goes_on(tmp_path, function):
    """A function that asked for a moment's offset, on a machine without the zone, ended its run as
    failed; a step that did so had failed for good."""
    url = str(tmp_path / "store.db")
    with perdure.open(url) as store:
        handle = store.start(function, "a")
        handle.signal("go")
        with machine("UTC"):
            for _ in range(2):
                with pytest.raises(NeedsAttention, match=r"'Pacific/Chatham'.*\n.*tzdata"):
                    store.run(function, "a")
                assert handle.status == "needs_attention"
                assert "perdure resume" in str(handle.info.problem)
        assert store.run(function, "a") == EXPECTED[function.__name__]
        assert MADE.count("look_up") == 1
        store.agent("a").verify()


def test_a_tool_that_met_it_is_in_doubt(tmp_path):
    """What it did before that is not known: it is not made again by itself (I5)."""
    with perdure.open(str(tmp_path / "store.db")) as store:
        handle = store.start(in_a_tool, "a")
        handle.signal("go")
        with machine("UTC"), pytest.raises(NeedsAttention, match="Chatham"):
            store.run(in_a_tool, "a")
        with pytest.raises(NeedsAttention, match="settle"):
            store.run(in_a_tool, "a")
        assert MADE.count("remind") == 1


def test_arguments_are_told_apart_by_what_was_written(tmp_path):
    """The digest of an argument with a missing zone is that of the machine that has it."""
    with perdure.open(str(tmp_path / "store.db")) as store:
        assert store.run(stamping, "a", WHEN) == WHEN.timestamp()
        with machine("UTC"):
            again = store.agent("a").state["when"]
            with pytest.raises(UnknownZone):
                again.timestamp()
            assert store.run(stamping, "a", again) == WHEN.timestamp()


@perdure.agent(dict)
def stamping(run: perdure.Run[dict[str, Any]], when: dt.datetime) -> float:
    with run.edit() as draft:
        draft["when"] = when
    return stamp(when)
