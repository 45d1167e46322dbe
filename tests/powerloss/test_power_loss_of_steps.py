"""What a power loss takes of steps that do not wait for the disk: measured, at each moment."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.storage.log.reader import LogReader
from perdure.storage.sqlite.backend import SqliteBackend
from perdure.store import Store
from tests.powerloss.checking import lay_out
from tests.powerloss.images import Disk
from tests.powerloss.recording import Tape
from tests.powerloss.sweep import Sweep
from tests.powerloss.workloads import NAME, WORKLOADS, Desk

RETURNED = "returned "


def known(path: Path) -> int:
    """Returns how many steps a store on disk knows the results of."""
    backend = SqliteBackend(str(path))
    try:
        info = backend.agent("a")
        reader = None if info is None else LogReader(backend, info)
        commits = [] if reader is None or info is None else [*reader.commits(1, info.seq)]
        return sum(record["t"] == "step" for commit in commits for record in commit.records)
    finally:
        backend.close()


@pytest.mark.parametrize(("commits", "steps"), [(1, 4), (4, 10)])
def test_i1_of_each_n_commits_a_power_loss_takes_all_but_one(
    commits: int, steps: int, tmp_path: Path
) -> None:
    """`GroupPolicy(every_commits=n)`: of what returned, up to n - 1 of the last steps are lost, and
    never one before the last commit that waited for the disk."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    tape = Tape(str(folder))

    @perdure.step(durability="group")
    def think(number: int) -> int:
        return number

    @perdure.agent(dict)
    def act(run: perdure.Run[dict[str, Any]]) -> None:
        with run.edit("begun") as draft:  # waits for the disk: the count begins here
            draft["begun"] = True
        for number in range(steps):
            think(number)
            tape.mark(f"{RETURNED}{number + 1}")

    with tape.recording():
        desk = Desk(tape, folder, random.Random(7))
        store = Store(desk.backend(group=perdure.GroupPolicy(commits, 3600)))
        store.run(act, "a")
        store.close()

    rng, lost, returned = random.Random(7), set(), 0
    disk = Disk(tape.before, rng)
    for operation in tape.operations:
        disk.play(operation)
        if operation.kind == "mark":
            returned = int(operation.name.removeprefix(RETURNED))
            for image in disk.crashes(rng, 3):
                lay_out(image, tmp_path / "image")
                lost.add(returned - known(tmp_path / "image" / NAME))
    assert returned == steps
    assert lost == {*range(commits)}


def test_steps_that_were_promised_would_be_lost(tmp_path: Path, monkeypatch: Any) -> None:
    """A harness that finds nothing may be blind: here each result counts as promised. Some are
    lost, and nothing is ever torn."""

    def promising(desk: Desk) -> None:
        @perdure.step(durability="group")
        def think(number: int) -> int:
            return number

        @perdure.agent(dict)
        def act(run: perdure.Run[dict[str, Any]]) -> None:
            for number in range(12):
                think(number)
                desk.acknowledged()

        with desk.store(perdure.GroupPolicy(6, 3600)) as store:
            store.run(act, "a")

    monkeypatch.setitem(WORKLOADS, "promising", promising)
    swept = Sweep(tmp_path, subsets=2, share=0.2).run("promising", 7)
    assert swept.verdicts["lost"] > 5
    assert not swept.verdicts["corrupt"]
