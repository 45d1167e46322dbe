"""A share of what `make rubbish` does: everything public is called, and every value is used."""

from __future__ import annotations

import gc
import random
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rubbish import command_line
from tests.rubbish.attack import Attack, one_wrong, several_wrong
from tests.rubbish.subjects import EXCUSED, classes_left_out, found
from tests.rubbish.world import new_memory

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CALLS = 1_000
RANDOM_CALLS = 400


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """What was called with rubbish, and not awaited, says so when it is collected: not in a test
    behind this one."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture
def attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attack]:
    deep = tmp_path / "some" / "where"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)  # urls that are made up are paths, too
    one = Attack(new_memory)
    yield one
    one.close()


def test_nothing_public_is_forgotten(attack: Attack) -> None:
    """Whoever adds a public function adds it here, or says why not."""
    called = {target for target, _ in attack.caller.targets()}
    without_arguments = set(found()) - called - set(EXCUSED)
    assert classes_left_out() == {"EphemeralMark"} & classes_left_out()
    assert set(EXCUSED) <= set(found())
    assert not {name for name in without_arguments if _takes_something(name)}


def test_nothing_beside_the_core_is_forgotten_either(attack: Attack) -> None:
    rooms = {*attack.caller.rooms.values()}
    called = {target for target, _ in attack.caller.targets()}
    assert len(rooms) >= 8
    for room in rooms:
        assert set(room.excused) <= set(room.found())
        assert set(room.parts) <= called
        assert not {name for name in room.found() if name not in called | set(room.excused)}


def _takes_something(name: str) -> bool:
    from tests.rubbish.subjects import parameters

    method = "." in name and not name.endswith("__init__")
    return any(not one.name.startswith("_") for one in parameters(found()[name], method=method))


def test_wrong_words_on_the_command_line_are_refused_or_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`export --output` with a name that is too long was "unexpected", exit code 1."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(1)
    chosen = rng.sample(list(command_line.one_wrong()), 10)
    export = next(one for one in command_line.commands() if one.name == "export")
    chosen.append((export, {"output": "x" * 10_001}))
    operator = command_line.Operator(str(tmp_path))
    try:
        problems = [problem for case in chosen if (problem := operator.run(case))]
    finally:
        operator.close()
    assert not problems


def test_wrong_arguments_are_refused_or_do_no_harm(attack: Attack) -> None:
    rng = random.Random(1)  # the same each time: `make rubbish` looks further
    cases = list(one_wrong(attack.caller))
    chosen = rng.sample(cases, CALLS)
    several = several_wrong(attack.caller, rng)
    chosen += [next(several) for _ in range(RANDOM_CALLS)]
    findings = [str(finding) for case in chosen if (finding := attack.run(case)) is not None]
    assert not findings, "\n".join(findings[:10])
