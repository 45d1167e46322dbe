"""The benchmarks run: each row at tiny sizes. What they measure, `make bench` says."""

import json
import subprocess
import sys
from operator import le
from pathlib import Path

import pytest

from bench import report
from bench.__main__ import main
from bench.corpus import texts
from bench.harness import Samples, interleave, ratio
from bench.hops.__main__ import WORKS
from bench.hops.__main__ import main as hops
from bench.peers.process import ROOT
from bench.registry import rows
from bench.report import Figure, Line, Target
from bench.versions.__main__ import main as beside_itself
from bench.workplace import TINY, Workplace


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if row.long else ())
        for name, row in rows().items()
    ],
)
def test_row(name: str, tmp_path: Path) -> None:
    lines = list(rows()[name].measure(Workplace(TINY, tmp_path)))
    assert lines
    assert rows()[name].about
    for line in lines:
        assert line.ours.value >= 0
        assert line.what in report.table({name: [line]})
    target = tmp_path / "results" / "bench.json"
    report.write_json(target, {name: lines}, report.machine(tmp_path))
    assert json.loads(target.read_text())["rows"][name][0]["what"] == lines[0].what


def test_contestants_take_turns_in_changing_order() -> None:
    done: list[str] = []
    contestants = {name: lambda _, name=name: done.append(name) for name in "ab"}
    samples = interleave(contestants, 4, turn=2, warm_up=0)
    assert "".join(done) == "aabb" + "bbaa"
    assert len(samples["a"].values) == 4


def test_statistics() -> None:
    ours = Samples([float(number) for number in range(1, 301)])
    assert (ours.median, ours.p99) == (150.5, 297.0)
    found = ratio(ours, Samples([1.0] * 300))
    assert (found.low, found.value, found.high) == (50.5, 150.5, 250.5)


@pytest.mark.parametrize(
    ("target", "reached"),
    [
        (Target(2.0), True),
        (Target(1.0), False),
        (Target(2.0, at_least=True), False),
        (Target(3.0, of="ours"), True),
        (None, None),
    ],
)
def test_target(target: Target | None, reached: bool | None) -> None:
    assert Line("x", Figure(3.0), Figure(2.0), 1.5, target).reached is reached


def test_corpus_is_the_same_everywhere() -> None:
    first, second = texts(2)
    assert (len(first), len(second)) == (500, 500)
    assert first.isascii()
    assert first.startswith("Looxriemer chutfourdme we ")
    assert texts(1, seed=2) != [first]


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert "commit" in capsys.readouterr().out
    assert main(["nonsense"]) == 2
    assert "no such row: nonsense" in capsys.readouterr().err


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="older revisions are in git's history")
def test_this_perdure_beside_another_revision(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["HEAD", "edit", "gather", "--times", "3", "--rounds", "1"]
    assert beside_itself([*asked, "--scratch", str(tmp_path), "--json", str(tmp_path / "j")]) == 0
    assert "gather, cpu" in capsys.readouterr().out
    assert beside_itself(["HEAD", "nonsense"]) == 2


HOPS_MAX = {"edit": (124, 104, 35, 50), "tool": (172, 95, 33, 74)}
"""Calls, functions, files, and returns to a file; see "How many files" in docs/architecture.md."""


def test_what_one_call_goes_through_is_counted() -> None:
    """Two changes made an edit cross two files and six functions more, and nobody saw it."""
    # In a process of its own: what else was declared in this one, tools of one name say, adds some.
    command = [sys.executable, "-m", "bench.hops", "--show"]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    lines = shown.splitlines()
    assert sum("Committer.submit" in line for line in lines) == 3  # an edit's, and a tool's two
    for work in WORKS:
        (row,) = (line for line in lines if line.startswith(f"| {work} "))
        calls, functions, files, returns = map(int, row.strip("| ").split(" | ")[1:])
        assert calls > functions > files > 0 < returns < calls
        most = HOPS_MAX[work]
        assert all(map(le, (calls, functions, files, returns), most)), f"{work}: {most}"
    assert hops(["nonsense"]) == 2
