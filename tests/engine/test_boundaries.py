"""Killed anywhere, any number of times, a program ends as if it had never been killed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import perdure
from perdure.errors import InDoubt
from perdure.testing import Ending, kill_program_at_every_boundary, run_with_kills

# -- the migration, at every boundary ----------------------------------------------------------


def moved(folder: str, batch: int) -> Any:
    key = perdure.idempotency_key()
    return batch if key in lines(Path(folder) / "moved") else perdure.NOT_DONE


@perdure.tool(on_crash="probe", probe=moved)
def move(folder: str, batch: int) -> int:
    with open(Path(folder) / "moved", "a") as file:
        file.write(f"{perdure.idempotency_key()}\n")
    return batch


@perdure.step
def plan(count: int) -> list[int]:
    return list(range(1, count + 1))


@perdure.agent(dict)
def migration(run: perdure.Run[dict], folder: str) -> list[int]:
    done = []
    started = run.now()
    for batch in plan(2):
        done.append(move(folder, batch))
        with run.edit(f"batch {batch} is done") as draft:
            draft["next"] = batch + 1
            draft["started"] = started
    return done


def migrate(folder: Path) -> Any:
    with perdure.open(folder / "m.db") as store:
        result = store.run(migration, "m", str(folder))
        return result, store.agent("m").state["next"], store.agent("m").verify().commits


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_migration_killed_anywhere_moves_everything_once(tmp_path: Path) -> None:
    endings: list[Ending] = []

    def check(end: Ending) -> None:
        endings.append(end)
        assert end.error is None, (end.killed_at, end.error)
        assert end.result[:2] == ([1, 2], 3), end.killed_at
        keys = lines(end.folder / "moved")
        assert len(keys) == len(set(keys)) == 2, end.killed_at

    count = kill_program_at_every_boundary(migrate, check, tmp_path)
    killed = [end.killed_at[0] for end in endings if end.killed_at]
    assert len(killed) == count == len(set(killed)) == len(endings[0].reached)
    assert {"before append 1", "after append 3", "before tool 2", "after tool 2"} <= set(killed)


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    """The helper itself, on a program that is not durable."""

    def naive(folder: Path) -> str:
        for batch in (1, 2):
            store = perdure.open(folder / "m.db")
            with store, store.agent("m").edit("done") as draft:
                draft[str(batch)] = True
            with open(folder / "moved", "a") as file:
                file.write(f"{batch}\n")
        return "done"

    def check(end: Ending) -> None:
        assert lines(end.folder / "moved") == ["1", "2"], end.killed_at

    with pytest.raises(AssertionError, match="append 3"):
        kill_program_at_every_boundary(naive, check, tmp_path)


def test_a_program_that_is_stuck_is_found(tmp_path: Path) -> None:
    def stuck(folder: Path) -> None:
        while True:
            pass

    with pytest.raises(TimeoutError, match="stuck for"):
        run_with_kills(stuck, tmp_path, [], timeout_s=0.3)


def test_errors_and_results_that_cannot_be_pickled_are_told(tmp_path: Path) -> None:
    def failing(folder: Path) -> None:
        raise ValueError("no")

    assert run_with_kills(failing, tmp_path, []).error == "ValueError: no"
    assert "lambda" in run_with_kills(lambda folder: lambda: 1, tmp_path, []).result


# -- any program, any kills --------------------------------------------------------------------

Program = tuple[tuple[str, int], ...]
TOOLS = ("retry", "probe", "fail")
KINDS = ("step", "retry", "probe", "fail", "edit", "failing edit", "failing step", "now", "reset")


def tools(folder: Path) -> dict[str, Any]:
    def act(number: int) -> int:
        with open(folder / "effects", "a") as file:
            file.write(f"{perdure.idempotency_key()} {number}\n")
        return number * 2

    def probe(number: int) -> Any:
        return (
            number * 2
            if f"{perdure.idempotency_key()} {number}" in lines(folder / "effects")
            else perdure.NOT_DONE
        )

    return {
        "retry": perdure.tool(on_crash="retry", name="retry")(act),
        "probe": perdure.tool(on_crash="probe", probe=probe, name="probe")(act),
        "fail": perdure.tool(on_crash="fail", name="fail")(act),
    }


def interpret(run: perdure.Run[dict], program: Program, calls: dict[str, Any]) -> list[Any]:
    state, seen = run.state, []
    for place, (kind, number) in enumerate(program):
        match kind:
            case "step":
                seen.append(run.call(divmod, number + place, 3))
            case "retry" | "probe" | "fail":
                try:
                    seen.append((kind, calls[kind](number * 100 + place)))
                except InDoubt:
                    seen.append((kind, None))
            case "edit" | "reset":
                with run.edit(f"{kind} {number}") as draft:
                    if kind == "reset":
                        draft.clear()
                    draft.setdefault("list", []).append(number)
                    draft[f"k{number}"] = len(draft["list"])
            case "failing edit":
                try:
                    with run.edit("failing") as draft:
                        draft["list"] = draft["nothing"]
                except KeyError as error:
                    seen.append(repr(error))
            case "failing step":
                try:
                    run.call(divmod, number, 0)
                except ZeroDivisionError as error:
                    seen.append(str(error))
            case "now":
                assert run.now().tzinfo and 0 <= run.random() < 1
        seen.append((len(run.state.get("list", [])), state == run.state))
    return seen


@settings(
    max_examples=25,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    program=st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(0, 3)), min_size=1, max_size=7
    ).map(tuple),
    kills=st.lists(st.integers(3, 40), min_size=1, max_size=3),
)
def test_any_program_killed_anywhere_ends_the_same(program: Program, kills: list[int]) -> None:
    def scenario(folder: Path) -> Any:
        calls = tools(folder)

        @perdure.agent(dict, name="any")
        def anything(run: perdure.Run[dict]) -> list[Any]:
            return interpret(run, program, calls)

        with perdure.open(folder / "p.db", durability="os") as store:
            result = store.run(anything, "a")
            agent = store.agent("a")
            agent.verify()
            attempts = [
                (e.place, e.state, e.attempts) for e in store.handle("a/any/main").effects()
            ]
            return result, agent.state, attempts

    with tempfile.TemporaryDirectory() as place:
        whole, killed = Path(place) / "whole", Path(place) / "killed"
        whole.mkdir()
        killed.mkdir()
        expected = run_with_kills(scenario, whole, [])
        end = run_with_kills(scenario, killed, kills)
        assert (expected.error, end.error) == (None, None), end.killed_at
        result, state, attempts = end.result
        assert state == expected.result[1], end.killed_at
        assert len(result) == len(expected.result[0])
        for got, wanted in zip(result, expected.result[0], strict=True):
            doubted = isinstance(got, list | tuple) and list(got) == ["fail", None]
            assert got == wanted or doubted, end.killed_at
        check_effects(lines(killed / "effects"), program, result, attempts)


def check_effects(
    effects: list[str], program: Program, result: list[Any], attempts: list[Any]
) -> None:
    outcomes = [
        one for one in result if isinstance(one[0], str) and one[0] in ("retry", "probe", "fail")
    ]
    called = [
        (place, one) for place, one in enumerate(program) if one[0] in ("retry", "probe", "fail")
    ]
    for (place, (kind, number)), (_, value), (_, state, tries) in zip(
        called, outcomes, attempts, strict=True
    ):
        marks = [line for line in effects if line.endswith(f" {number * 100 + place}")]
        assert len(set(marks)) <= 1, "one call, one idempotency key"
        if kind == "retry":
            assert 1 <= len(marks) <= tries
        elif kind == "probe":
            assert len(marks) == 1
        else:
            assert len(marks) == 1 if value is not None else len(marks) <= 1
            assert tries == 1 and state == ("done" if value is not None else "failed")
