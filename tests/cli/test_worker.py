"""`perdure worker` as a process: what it prints, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from tests.cli.test_process import COMMAND

JOBS = """
import perdure

@perdure.step
def add(a: int, b: int) -> int:
    return a + b

@perdure.agent(dict)
def adding(run, a: int, b: int) -> int:
    print(f"adding {a} {b}\\n", end="", flush=True)
    return add(a, b)

@perdure.agent(dict)
async def asking(run) -> str:
    return "yes, " + await run.wait_for("name")

def plain() -> None: ...
"""
BOUND_S = 60


class Terminal:
    """A folder with a program in it, and workers that were started there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []

    def worker(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, "worker", *words],
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PERDURE_STORE": "a.db"},
        )
        self.processes.append(process)
        return process


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "jobs.py").write_text(JOBS)
    terminal = Terminal(tmp_path)
    yield terminal
    for process in terminal.processes:
        process.kill()
        process.communicate()


def start(folder: Path, name: str, agent: str, *args: object) -> str:
    """As a program of its own would, which has the function."""
    program = (
        "import sys, json, perdure, jobs\n"
        "with perdure.open('a.db') as store:\n"
        f"    print(store.start(jobs.{name}, {agent!r}, *json.loads(sys.argv[1])).id)"
    )
    made = subprocess.run(
        [sys.executable, "-c", program, json.dumps(args)],
        cwd=folder,
        text=True,
        check=True,
        capture_output=True,
        timeout=BOUND_S,
    )
    return made.stdout.strip()


def test_it_runs_what_was_started_and_exits_with_0_when_told_to_end(terminal: Terminal) -> None:
    run = start(terminal.folder, "adding", "a", 1, 2)
    asked = start(terminal.folder, "asking", "b")
    worker = terminal.worker("jobs")
    with perdure.open(terminal.folder / "a.db") as store:
        assert store.handle(run).result(BOUND_S) == 3
        until = time.monotonic() + BOUND_S
        while store.handle(asked).status != "waiting" and time.monotonic() < until:
            time.sleep(0.02)
        store.handle(asked).signal("name", "Ada")
        assert store.handle(asked).result(BOUND_S) == "yes, Ada"
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=BOUND_S)
    assert worker.returncode == 0, err
    kinds = [line.split()[1:3] for line in out.splitlines() if line != "adding 1 2"]
    assert kinds[0][0] == "ready" and kinds[-1] == ["stopped"]
    assert ["started", run] in kinds and ["done", run] in kinds
    assert ["waiting", asked] in kinds and ["done", asked] in kinds
    assert "adding 1 2" in out.splitlines()
    assert "queues default · limit 8" in out


def test_with_json_there_is_nothing_else_on_stdout(terminal: Terminal) -> None:
    run = start(terminal.folder, "adding", "a", 1, 2)
    worker = terminal.worker("jobs:adding", "--json", "--limit", "2")
    with perdure.open(terminal.folder / "a.db") as store:
        assert store.handle(run).result(BOUND_S) == 3
    worker.send_signal(signal.SIGINT)
    out, err = worker.communicate(timeout=BOUND_S)
    assert worker.returncode == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    said = [(event["event"], event.get("run")) for event in events]
    said = [one for one in said if one[0] != "draining"]  # it may be told to end that soon
    assert said == [("ready", None), ("started", run), ("done", run), ("stopped", None)]
    (done,) = (event for event in events if event["event"] == "done")
    assert done["seconds"] > 0
    assert "adding 1 2" in err


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["jobz"], 2, "there is no module 'jobz'"),
        (["jobs.py"], 2, "say the module's name: jobs"),
        (["jobs:addin"], 2, "did you mean adding?"),
        (["jobs:plain"], 2, "jobs:plain is not an agent function"),
        (["json"], 2, "has no agent functions"),
        (["not a module"], 2, "not a module's name"),
        (["broken"], 2, "cannot be imported: ZeroDivisionError"),
        (["script"], 2, "it ended the program (SystemExit: 0)"),  # was taken for a worker's end
        (["needy"], 2, "No module named 'nowhere_to_be_found'"),
        (["jobs"], 3, "there is no such file"),
        (["jobs", "--limit", "0"], 2, "'--limit'"),
    ],
)
def test_what_it_cannot_run_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, problem: str
) -> None:
    from typer.testing import CliRunner

    from perdure.cli.app import app

    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "script.py").write_text("import sys; sys.exit(0)")
    (tmp_path / "needy.py").write_text("import nowhere_to_be_found")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("jobs", "broken", "script", "needy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    result = CliRunner().invoke(app, ["worker", *words, "--store", "none.db"])
    sys.modules.pop("jobs", None)
    assert result.exit_code == code
    assert problem in " ".join(result.stderr.split())
    assert not (tmp_path / "none.db").exists()
