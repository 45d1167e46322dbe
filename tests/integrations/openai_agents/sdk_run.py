"""Runs the SDK's released tests of sessions, with its own session first and then with ours.

``make compat-agents`` takes the newest release; ``ARGS="--version 0.24.0"`` another one. Nothing of
it is in this repository: it is downloaded into ``.venv-compat-agents``, an environment of its own.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / ".venv-compat-agents"
PYTHON = FOLDER / "bin" / "python"
NEEDS = (
    "pytest",
    "pytest-asyncio",
    "pytest-mock",
    "pytest-timeout",
    "pytest-xdist",
    "inline-snapshot",
    "aiosqlite",
    "greenlet",
    "sqlalchemy",
    "cryptography",
    "httpx",
)
NAMED = re.compile(r"\bSQLiteSession\b")
OTHERS = ("test_advanced_sqlite_session.py", "test_async_sqlite_session.py", "test_import_")
"""Tests of other classes, and of when modules are imported."""


def prepare(version: str) -> Path:
    """The folder of the release's tests, beside an environment that has it installed."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    wanted = "openai-agents" + (f"=={version}" if version else "")
    pip = [str(PYTHON), "-m", "pip", "--quiet"]
    subprocess.run([*pip, "install", wanted, *NEEDS, f"perdure @ file://{ROOT}"], check=True)
    code = "import importlib.metadata as m; print(m.version('openai-agents'))"
    found = subprocess.run([PYTHON, "-c", code], check=True, capture_output=True, text=True)
    exactly = f"openai-agents=={found.stdout.strip()}"
    only = ["--no-deps", "--no-binary", ":all:", "--dest", str(FOLDER)]
    subprocess.run([*pip, "download", *only, exactly], check=True)
    (archive,) = FOLDER.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(FOLDER / "whole", filter="data")
    (whole,) = (FOLDER / "whole").iterdir()
    shutil.rmtree(whole / "src")  # what is installed is what is tested
    print(exactly, flush=True)
    return whole


def run(folder: Path, *, ours: bool, workers: str) -> int:
    """Run the tests that name the SDK's session; the exit status."""
    files = sorted(
        str(file.relative_to(folder))
        for file in (folder / "tests").rglob("test_*.py")
        if NAMED.search(file.read_text()) and not file.name.startswith(OTHERS)
    )
    with tempfile.TemporaryDirectory() as beside:
        shutil.copy(Path(__file__).with_name("sdk_suite.py"), Path(beside) / "perdure_sdk_suite.py")
        plugin = ["-p", "perdure_sdk_suite"] if ours else []
        return subprocess.run(
            [
                PYTHON,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-n",
                workers,
                "-rs",
                "--timeout=120",
                "--tb=short",
                *plugin,
                *files,
            ],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": beside},
        ).returncode


def main() -> int:
    asked = argparse.ArgumentParser(prog="make compat-agents", description=__doc__)
    asked.add_argument("--version", default="", help="of the SDK; default: the newest")
    asked.add_argument("--workers", default="2")
    given = asked.parse_args()
    folder = prepare(given.version)
    print("with the SDK's own session", flush=True)
    control = run(folder, ours=False, workers=given.workers)
    print("with ours in its place", flush=True)
    return run(folder, ours=True, workers=given.workers) or control


if __name__ == "__main__":
    sys.exit(main())
