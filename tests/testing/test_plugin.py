"""The fixtures that pytest has wherever Perdure is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.source_tree import ROOT, SOURCE

TEST = """
from datetime import timedelta
import perdure
from perdure.testing import run_until_waiting

@perdure.agent(dict)
def remind(run):
    run.sleep(timedelta(days=3))
    return "reminded"

def test_on_files(perdure_store, perdure_clock, tmp_path):
    assert perdure_store.url.endswith(f"{tmp_path.name}/perdure.db")
    assert run_until_waiting(perdure_store, remind, "a").status == "waiting"
    perdure_clock.advance(timedelta(days=3))
    assert perdure_store.run(remind, "a") == "reminded"

def test_in_memory(perdure_memory, perdure_clock):
    run_until_waiting(perdure_memory, remind, "a")
    perdure_clock.advance(timedelta(days=3))
    assert perdure_memory.run(remind, "a") == "reminded"

def test_each_has_its_own(perdure_store, perdure_memory):
    assert perdure_store.agents() == perdure_memory.agents() == []
"""

UNUSED = """
import sys

def test_nothing():
    assert "perdure_pytest" in sys.modules
    assert not {"perdure", "apsw", "msgspec"} & set(sys.modules)
"""


def run_pytest(folder: Path, text: str) -> str:
    (folder / "test_it.py").write_text(text)
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    # The entry point is left out, as this checkout may be installed without it still.
    options = ["-q", "-W", "error", "-p", "no:perdure", "-p", "perdure_pytest"]
    options += ["-p", "no:anyio", "-p", "no:langsmith_plugin", "-p", "no:hypothesispytest"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_it.py"],
        cwd=folder,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_stores_and_their_clock(tmp_path: Path) -> None:
    assert "3 passed" in run_pytest(tmp_path, TEST)


def test_who_does_not_use_it_pays_nothing_for_it(tmp_path: Path) -> None:
    """pytest imports a plugin at every start. Perdure takes some tenths of a second to import."""
    assert "1 passed" in run_pytest(tmp_path, UNUSED)


def test_it_is_installed_along() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {"perdure": "perdure_pytest"}
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert "src/perdure_pytest" in packages
