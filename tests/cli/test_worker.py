"""`perdure worker` as a process: what it prints, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import ANY

import pytest
import typer
from typer.testing import CliRunner

import perdure
from perdure.cli.app import app
from perdure.cli.awaited_store import Stop, opened_in_time
from perdure.cli.command_options import Settings
from perdure.system.flag import Flag
from perdure.types import WorkerEvent
from tests.cli.test_process import COMMAND
from tests.postgres.server import shared

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

    def worker(self, *words: str, store: str = "a.db") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, "worker", *words],
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PERDURE_STORE": store},
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


def start(folder: Path, name: str, agent: str, *args: object, store: str = "a.db") -> str:
    """As a program of its own would, which has the function."""
    program = (
        "import sys, json, perdure, jobs\n"
        f"with perdure.open({store!r}) as store:\n"
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
        (["jobs", "--limit", "0"], 2, "'--limit'"),
    ],
)
def test_what_it_cannot_run_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, problem: str
) -> None:
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


# -- before there is a store -----------------------------------------------------------------


def events(worker: subprocess.Popen[str]) -> Iterator[dict[str, str]]:
    assert worker.stdout is not None
    for line in worker.stdout:
        yield json.loads(line)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_worker_that_is_there_before_its_store_waits_for_it(
    terminal: Terminal, kind: str
) -> None:
    """A deployment brought the workers up first, then the program that makes the store, as a page
    said. The workers had ended by then, with "there is no such file", and nobody ran anything."""
    url = "a.db" if kind == "sqlite" else shared().new_url()
    worker = terminal.worker("jobs", "--json", store=url)
    said = events(worker)
    first = next(said)
    assert first["event"] == "unavailable"
    assert "waiting until a program makes it; with --create this command does" in first["words"]
    assert not (terminal.folder / "a.db").exists()
    run = start(terminal.folder, "adding", "a", 1, 2, store=url)
    kinds = []
    for event in said:
        kinds.append((event["event"], event.get("run")))
        if event["event"] == "done":
            worker.send_signal(signal.SIGTERM)
    assert kinds == [
        ("available", None),
        ("ready", None),
        ("started", run),
        ("done", run),
        ("stopped", None),
    ]
    assert worker.wait(BOUND_S) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_waits_for_its_store_ends_when_told_to(
    terminal: Terminal, number: signal.Signals
) -> None:
    worker = terminal.worker("jobs", "--json")
    said = events(worker)
    assert next(said)["event"] == "unavailable"
    worker.send_signal(number)
    assert [event["event"] for event in said] == ["stopped"]
    assert worker.wait(BOUND_S) == 0
    assert not (terminal.folder / "a.db").exists()


def test_a_worker_makes_its_store_where_it_is_asked_to(terminal: Terminal) -> None:
    worker = terminal.worker("jobs", "--json", "--create")
    said = events(worker)
    assert next(said)["event"] == "ready"
    run = start(terminal.folder, "adding", "a", 1, 2)
    assert next(said) == {"at": ANY, "event": "started", "run": run}
    worker.send_signal(signal.SIGTERM)
    assert [*said][-1]["event"] == "stopped"
    assert worker.wait(BOUND_S) == 0


def test_a_file_that_its_maker_is_not_done_with_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch()  # as a program does just before it writes the tables

    class Done(Flag):
        def wait(self, seconds: float | None = None) -> bool:
            perdure.open(path).close()  # in the worker's first pause
            return self.is_set()

    stop, said = Stop(), list[WorkerEvent]()
    stop.flag = Done()
    command = typer.Context(typer.main.get_command(app))
    command.obj = Settings(store=str(path))
    with opened_in_time(command, said.append, stop, create=False) as session:
        assert session is not None and session.store.agents() == []
    assert said == []


def test_a_server_that_is_down_is_waited_for_and_said_once() -> None:
    class Twice(Flag):
        pauses = 0

        def wait(self, seconds: float | None = None) -> bool:
            self.pauses += 1
            if self.pauses == 2:
                self.set()
            return self.is_set()

    stop, said = Stop(), list[WorkerEvent]()
    stop.flag = Twice()
    command = typer.Context(typer.main.get_command(app))
    command.obj = Settings(store="postgresql://127.0.0.1:1/agents?connect_timeout=2")
    with opened_in_time(command, said.append, stop, create=False) as session:
        assert session is None
    (event,) = said
    assert event.kind == "unavailable" and "the server cannot be reached" in event.words


def test_a_file_that_is_no_store_is_refused(terminal: Terminal) -> None:
    path = terminal.folder / "a.db"
    path.write_text("a letter to somebody, which is longer than a line" * 20)
    worker = terminal.worker("jobs")
    out, err = worker.communicate(timeout=BOUND_S)
    assert worker.returncode == 9 and out == ""
    assert "is not a Perdure store" in err
