"""Runs whose surroundings changed: what the command line says of them, and how they go on."""

import re
from typing import Any

import pytest

import perdure
from perdure.testing import run_until_waiting
from tests.cli.operator import Operator

RUN = "page-1/translate/main"
settings = {"model": "m-1"}


def translating(on_change: Any) -> Any:
    guards = perdure.Guards(config=lambda: settings, on_change=on_change)

    @perdure.agent(dict, name="translate", guards=guards)
    def translate(run: perdure.Run[dict]) -> str:
        return f"{settings['model']}: {run.wait_for('checked')}"

    return translate


@pytest.fixture(autouse=True)
def first_model() -> None:
    settings["model"] = "m-1"


def deploy(operator: Operator, on_change: str) -> Any:
    """A run waits, and another program takes it up."""
    translate = translating(on_change)
    with perdure.open(operator.path) as store:
        run_until_waiting(store, translate, "page-1").signal("checked", "fine")
        settings["model"] = "m-2"
        try:
            store.run(translate, "page-1")
        except perdure.NeedsAttention:
            assert on_change == "stop"
    return translate


def test_a_run_that_its_guards_stopped_says_why_and_goes_on_once_resumed(
    operator: Operator,
) -> None:
    translate = deploy(operator, "stop")
    why = operator.see("why", RUN)
    assert "configuration 'model'" in why and f"perdure resume {RUN}" in " ".join(why.split())
    shown = operator.see("run", "show", RUN)
    assert "configuration 'model'" in shown and "stopped" in shown
    found = operator.json("run", "show", RUN)["guards"]
    assert found["on_change"] == "stop"
    assert [change["what"] for change in found["changed"]] == ["configuration 'model'"]
    operator.see("resume", RUN)
    with perdure.open(operator.path) as store:
        assert store.run(translate, "page-1") == "m-2: fine"


def test_a_run_that_went_on_with_other_settings_says_since_when(operator: Operator) -> None:
    deploy(operator, "warn")
    shown = operator.see("run", "show", RUN)
    assert re.search(r"changed +configuration 'model' \(", shown)
    events = operator.json("run", "show", RUN)["timeline"]
    (changed,) = [one for one in events if one["kind"] == "changed"]
    assert changed["words"].startswith("configuration 'model': recorded ")
    assert "its surroundings changed: configuration 'model'" in operator.see("log", "page-1")
