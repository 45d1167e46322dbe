"""The field side by side: a run of it at tiny sizes, and what is made of its results."""

import json
import threading
from pathlib import Path

import pytest

from bench.peers import contenders, digest, tables
from bench.peers.__main__ import main
from bench.peers.beside import TINY
from bench.peers.contest import Pace, message
from bench.peers.contestants import LIMITS, ON_POSTGRES, OURS, PERDURE, compared_with, everybody
from bench.peers.field import measured
from bench.peers.machine import Tracer
from bench.peers.places import Ground
from bench.peers.process import PeerError
from bench.peers.reasons import CLOSE, NOT_LOOKED_AT, WHY, reason
from bench.peers.results import Field, Work, read
from bench.report import Unit

UNITS: dict[str, Unit] = {"step": "s", "written": "B", "files": "B", "resume": "s"}


def example() -> Field:
    """Two lengths of a conversation, and one work beside; SQLiteSession wins one of them."""
    found = Field(
        {
            "at": "then",
            "processors": 2,
            "platform": "here",
            "python": "3",
            "load": [1.0],
            "load_at_end": [2.0],
            "absent": [],
        }
    )
    for length in (1000, 10_000):
        for key, unit in UNITS.items():
            work = found.work(f"{key} at {length}", f"{key} at {length}", unit)
            work.cell(PERDURE).values = [2.0, 4.0, 3.0]
            work.cell("SqliteSaver").values = [20.0, 40.0, 30.0]
            work.cell("SQLiteSession").values = [1.0, 2.0, 1.5]
    found.works["files at 10000"].cell("SqliteSaver").missing = "stopped at 20 messages"
    found.works["files at 10000"].cell("SqliteSaver").values = []
    tools = found.work("tools", "a tool call")
    tools.cell(PERDURE).values = [0.005]
    tools.cell("SqliteSaver").missing = "records outcomes only"
    return found


@pytest.mark.parametrize("part", ["beside", "growing"])
def test_a_tiny_run(part: str, tmp_path: Path) -> None:
    chosen = [one for one in everybody() if one.name in {PERDURE, LIMITS[1]}]
    kept: list[Field] = []
    found = measured(chosen, TINY, tmp_path, kept.append, [part])
    assert kept
    text = tables.table(found)
    assert "failed:" not in text
    works = {
        "beside": ["steps", "tools", "kill", "past", "fork", "delete", "signals", "idle"],
        "growing": [f"{what} at 8" for what in UNITS],
    }
    for key in works[part]:
        assert found.works[key].cells[PERDURE].values, key
    assert [path.name for path in tmp_path.iterdir()] == ["peers-bytecode"]
    found.write(tmp_path / "found.json")
    assert read(tmp_path / "found.json").works == found.works


def test_ratios_are_of_the_rounds() -> None:
    """A busy moment hits a whole round: its ratio says more than the times of different rounds."""
    work = Work("steps", "a step")
    work.cell("a").values = [2.0, 30.0, 4.0]
    work.cell("b").values = [1.0, 10.0, 2.0]
    assert work.ratio("a", "b") == 2.0
    assert work.ratio("a", "nobody") is None


def test_every_line_is_there_with_why(capsys: pytest.CaptureFixture[str]) -> None:
    text = tables.table(example())
    assert "| a tool call | **Perdure** |" in text
    assert "SqliteSaver | – |  |  | records outcomes only |" in text
    assert "stopped at 20 messages" in text


def test_a_loss_says_why_or_that_nobody_knows() -> None:
    found = example()
    assert reason(found.works["step at 10000"], "SqliteSaver") == ""
    assert reason(found.works["step at 10000"], "SQLiteSession") == WHY.get(
        ("step", "SQLiteSession"), WHY.get(("step", ""), NOT_LOOKED_AT)
    )
    assert 0 < CLOSE < 1


def test_all_losses_of_a_whole_run_have_a_reason() -> None:
    """A table once said "why was not looked at" of half of the lost rows."""
    found = Field()
    others = [one.name for one in everybody() if not one.ours and one.name not in LIMITS]
    for key in (
        "concurrent",
        "tokens",
        "past",
        "fork",
        "delete",
        "recent",
        "idle",
        "files at 9",
        "written at 9",
        "resume at 9",
        "step at 9",
    ):
        work = found.work(key, key)
        for name in (*OURS, *others):
            work.cell(name).values = [2.0 if name in OURS else 1.0]
        for name in others:
            assert reason(work, name) not in ("", NOT_LOOKED_AT), (key, name)
        assert not any(reason(work, name) for name in OURS)


def test_who_is_on_postgresql_is_compared_with_us_there() -> None:
    assert compared_with("SqliteSaver") == compared_with(ON_POSTGRES) == PERDURE
    assert compared_with("DBOS, PostgreSQL") == compared_with("PostgresSaver") == ON_POSTGRES
    found = example()
    for name, seconds in ((ON_POSTGRES, 4.0), ("PostgresSaver", 12.0)):
        found.contestants[name] = {"version": "1"}
        found.works["step at 10000"].cell(name).values = [seconds]
    assert "| PostgresSaver | 12 s |  | 3 |" in tables.table(found)


def test_nobody_is_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A contestant's thread had died of an error: it never answered, and the comparison hung."""
    monkeypatch.setattr(contenders, "ANSWER_S", 0.2)
    chosen = [one for one in everybody() if one.name == LIMITS[1]]
    ground = Ground(tmp_path, tmp_path / "bytecode")
    with contenders.contending(chosen, ground) as (contender,):
        with pytest.raises(PeerError, match=r"did not answer within 0\.2 s"):
            contender.ask("steps", count=10**8)
        contender.ask_quietly("steps", count=1)
        work = Work("steps", "steps")
        contender.attempt(work.cell(contender.name), lambda one: float(one.ask("steps")["wall"]))
        assert "the process ended" in work.cell(contender.name).missing
        assert contender.gone


def test_a_conversation_that_has_ended_is_not_waited_for() -> None:
    pace = Pace()
    pace.leave()
    with pytest.raises(RuntimeError, match="ended"):
        pace.arrived()


def test_the_readme_takes_the_results_between_its_marks(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{digest.BEGIN}\nold\n{digest.END}\nafter\n")
    digest.publish(example(), readme)
    once = readme.read_text()
    digest.publish(example(), readme)
    assert readme.read_text() == once
    assert once.startswith("before\n")
    assert once.endswith("after\n")
    assert "old" not in once
    assert "stopped before" in once
    assert "30 s (10)" in once
    readme.write_text("no marks")
    with pytest.raises(ValueError, match="no marks"):
        digest.publish(example(), readme)


def test_a_pace_lets_steps_pass_and_knows_the_next() -> None:
    pace, done = Pace(), []

    def run() -> None:
        number = 4  # three are recorded: a resumed run calls the fourth first
        while pace.passed(number):
            done.append(number)
            number += 1

    thread = threading.Thread(target=run)
    thread.start()
    assert pace.arrived() == 4
    assert pace.go_on(3)["count"] == 3
    assert done == [4, 5, 6]
    pace.leave()
    thread.join()


def test_syncs_are_counted_once(tmp_path: Path) -> None:
    """A call that another thread interrupts in the trace has two lines."""
    (tmp_path / "syncs").write_text(
        "7 fdatasync(3) = 0\n7 fsync(4 <unfinished ...>\n8 fdatasync(5) = 0\n"
        "7 <... fsync resumed>) = 0\n"
    )
    assert Tracer(tmp_path).syncs == 3


def test_messages_are_the_same_everywhere_and_differ() -> None:
    assert message(7) == message(7) != message(8)
    assert len(message(7)) == 500


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nobody"]) == 2
    assert "no such contestant: nobody" in capsys.readouterr().err
    path = tmp_path / "peers.json"
    example().write(path)
    assert json.loads(path.read_text())["works"]
    assert main(["--table", "--json", str(path)]) == 0
    assert "a tool call" in capsys.readouterr().out
