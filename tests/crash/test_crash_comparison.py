"""The crash comparison of `make bench-crash`: our part of it, and what it is made of."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.crash import card, nursery, table
from bench.crash.__main__ import spread
from bench.crash.contestants import CONTESTANTS
from bench.crash.talking import Silent, Talking
from bench.crash.trial import Kill, Place, Seen, Trial

ROOT = Path(__file__).parents[2]
OURS = {which.name: which for which in CONTESTANTS if which.name.startswith("perdure-")}
WRITER = """
import os

def main(path, threads):
    if threads == "yes":
        import threading
        thread = threading.Thread(target=write, args=(path,))
        thread.start()
        thread.join()
    else:
        write(path)

def write(path):
    os.read(os.open(path + ".go", os.O_RDONLY), 1)
    out = os.open(path, os.O_WRONLY | os.O_CREAT)
    pipe = os.pipe()
    for number in range(5):
        os.write(pipe[1], b"nobody sees this")
        os.write(out, b"%d" % number)
"""


@pytest.mark.parametrize("threads", ["no", "yes"])
def test_killed_in_place_of_a_write(tmp_path: Path, threads: str) -> None:
    (tmp_path / "writer.py").write_text(WRITER)
    log = tmp_path / "log"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    with Talking([sys.executable, "-m", nursery.__name__, "writer"], log, environment) as started:
        assert started.hear() == {"ready": "writer"}
        for kill_at, written in [(3, "01"), (1, ""), (0, "01234"), (6, "01234")]:
            out, go = tmp_path / f"out-{kill_at}", tmp_path / f"out-{kill_at}.go"
            os.mkfifo(go)
            started.tell(arguments=[str(out), threads], environment={}, log=str(log))
            started.hear()
            with go.open("w") as gate:  # it has opened the other end, and waits
                started.tell(kill_at=kill_at)
                started.hear()
                gate.write("x")
            killed = kill_at in {1, 3}
            writes = [f"write {out.name}"] * (kill_at if killed else 5)
            assert started.hear() == {"status": -9 if killed else 0, "writes": writes}
            assert out.read_text() == written


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with Place(OURS[request.param], tmp_path, {}) as made:
        yield made


@pytest.mark.parametrize(
    ("place", "before", "charged", "written"),
    [
        ("perdure-retry-key", "once", "once", "once"),
        ("perdure-probe", "once", "once", "once"),
        ("perdure-ask", "not, asks → once", "once, asks → once", "once, asks → once"),
        ("perdure-fail", "not, error", "once, error", "once, error"),
        ("perdure-retry", "once", "**twice**", "**twice**"),
    ],
    indirect=["place"],
)
def test_ours(place: Place, before: str, charged: str, written: str) -> None:
    outcomes = [
        Trial(place, "order-1").observe(Kill(card.BEFORE)),
        Trial(place, "order-2").observe(Kill(card.CHARGED)),
        Trial(place, "order-3").observe(Kill(write=1)),
    ]
    assert [table.cell(outcome) for outcome in outcomes] == [before, charged, written]
    assert all(outcome.killed for outcome in outcomes)
    unharmed = Trial(place, "order-4").observe(Kill())
    assert not unharmed.killed
    assert unharmed.seen == Seen(1, card.FINISHED, unharmed.seen.said)
    assert unharmed.writes[-1] == "write report"
    shown = table.markdown({place.contestant.name: outcomes}, {"dbos": "it is not set up"})
    assert charged in shown
    assert "dbos is left out: it is not set up" in shown
    target = place.folder / "crash.json"
    table.write_json(target, {"a": outcomes}, {}, {})
    assert json.loads(target.read_text())["outcomes"]["a"][1]["kill"]["moment"] == card.CHARGED


def test_a_start_that_ends_otherwise_is_told(tmp_path: Path) -> None:
    with Place(OURS["perdure-probe"], tmp_path, {}) as place:
        place.environment[card.COMPANY] = "1"  # where nobody listens
        with pytest.raises(AssertionError, match="did not die at “charged”"):
            Trial(place, "order-1").observe(Kill(card.CHARGED))


def test_silence_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(signal.SIGTERM)})"]
    with (
        Talking(command, tmp_path / "log", os.environ) as process,
        pytest.raises(Silent, match="ended, with -15"),
    ):
        process.hear()


def test_points_are_spread() -> None:
    assert spread(10, 4) == [1, 4, 7, 10]
    assert spread(3, 4) == spread(3, 0) == [1, 2, 3]
    assert spread(5, 1) == [1]
