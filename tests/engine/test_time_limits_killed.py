"""Runs whose time is up, and whose process dies at any moment."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import perdure
from perdure.errors import RunFailed, TimedOut
from perdure.testing import run_until_waiting, run_with_kills
from tests.engine.saga_world import begin_world, book_room, happened, pay
from tests.engine.test_sagas_cut_short import LATE
from tests.engine.test_time_limits_of_families import BOTH, begin, ends, family
from tests.engine.waits import HOUR, Clock


@BOTH
def test_a_family_ends_the_same_wherever_its_process_dies(
    tmp_path: Path, clock: Clock, how: str
) -> None:
    def program(folder: Any) -> Any:
        with perdure.open(folder / "a.db", durability="os") as store:
            options: dict[str, Any] = {how: HOUR}
            store.options(**options).start(family, "a")
            with suppress(TimedOut):
                run_until_waiting(store, family, "a")
                begin(store, "bound", "detached")
                clock.forward(HOUR + 1)
                run_until_waiting(store, family, "a")
            begin(store, "bound", "detached", "asked for")
            return ends(store), store.handle("a/family/main").status

    number = 0
    while True:
        folder = tmp_path / str(number)
        folder.mkdir()
        end = run_with_kills(program, folder, [number])
        assert end.error is None, end
        left, status = end.result
        assert status == "failed" and left["bound"] in ("failed", "cancelled"), end
        assert left["asked for"] == "cancelled", end
        assert left["detached"] in ("waiting", "pending"), end
        if not end.killed_at:
            break
        number += 3
    assert number > 12


@perdure.agent(dict, compensate=True)
def waiting(run: perdure.Run[dict]) -> None:
    run.options(key="main").start(idle, "child")
    book_room("Ada")
    pay(500)
    run.wait_for("never")


@perdure.agent(dict)
def idle(run: perdure.Run[dict]) -> None:
    run.wait_for("never")


@BOTH
def test_i5_a_run_whose_time_is_up_is_undone_once_wherever_its_process_dies(
    tmp_path: Path, clock: Clock, how: str
) -> None:
    """Its children end with it, at its very end."""

    def program(folder: Any) -> Any:
        with perdure.open(folder / "a.db", durability="os") as store:
            said = ""
            options: dict[str, Any] = {how: HOUR}
            store.options(**options).start(waiting, "a")
            try:
                run_until_waiting(store, waiting, "a")
                clock.forward(HOUR + 1)
                run_until_waiting(store, waiting, "a")
            except TimedOut as late:
                said = late.problem
            with suppress(RunFailed):
                run_until_waiting(store, idle, "child")
            rows = [store.handle(one).info for one in ("a/waiting/main", "child/idle/main")]
            return said, [row.status for row in rows]

    number = 0
    while True:
        folder = tmp_path / str(number)
        folder.mkdir()
        begin_world(folder)
        end = run_with_kills(program, folder, [number])
        assert end.result == (LATE[how], ["failed", "cancelled"]), end
        assert happened() == ["book Ada", "pay 500", "refund", "cancel Ada"], end.killed_at
        if not end.killed_at:
            break
        number += 3 if number > 4 else 1
    assert number > 12
