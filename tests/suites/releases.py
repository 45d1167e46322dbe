"""The suites: source distributions that carry their tests, downloaded and unpacked.

Nothing of them is in this repository: they lie under the environment that runs them.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[2]
PINS = ROOT / "requirements" / "peers-suites.txt"


@dataclass(frozen=True)
class Suite:
    """One released suite.

    Attributes:
        paths: which of its tests.
        whole: all of them are about savers and stores; else those that use one are taken.
        slow: which of them wait for a clock, and are left to `make compat`.
    """

    package: str
    paths: tuple[str, ...] = ("tests",)
    whole: bool = False
    slow: tuple[str, ...] = ()


SUITES = (
    Suite("langgraph"),
    Suite("langgraph-prebuilt"),
    Suite("langgraph-checkpoint-sqlite", whole=True, slow=("tests/test_ttl.py",)),
    Suite("langchain", ("tests/unit_tests/agents",)),
)


class Environment:
    """Where a suite runs: ``.venv-peers-suites`` with pinned releases, ``.venv-compat`` with the
    newest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"

    def version(self, package: str) -> str:
        code = f"import importlib.metadata as m; print(m.version({package!r}))"
        return self._run("-c", code).strip()

    def unpacked(self, suite: Suite, *, pinned: bool) -> Path:
        """The folder of a suite's release, as it was released; downloaded once."""
        version = self.version(suite.package)
        folder = self.folder / "sdists" / f"{suite.package}-{version}"
        if (folder / "done").exists():
            return folder / "source"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        wanted = folder / "wanted.txt"
        wanted.write_text(_pin(suite.package) if pinned else f"{suite.package}=={version}\n")
        self._run(
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            ":all:",
            "--no-build-isolation",
            "--dest",
            str(folder),
            "--requirement",
            str(wanted),
            *(["--require-hashes"] if pinned else []),
        )
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(folder / "whole", filter="data")
        (whole,) = (folder / "whole").iterdir()
        # Not the package beside its tests: what is installed is what is tested.
        (folder / "source").mkdir()
        shutil.move(whole / "tests", folder / "source" / "tests")
        shutil.move(whole / "pyproject.toml", folder / "source" / "pyproject.toml")
        shutil.rmtree(folder / "whole")
        (folder / "done").touch()
        return folder / "source"

    def _run(self, *words: str) -> str:
        done = subprocess.run([self.python, *words], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words[:4])} …: {done.stderr[-2000:]}")
        return done.stdout


def _pin(package: str) -> str:
    """The lines that pin a package, with its hashes."""
    found = re.search(rf"^{re.escape(package)}==.*(?:\n    .*)*", PINS.read_text(), re.MULTILINE)
    assert found is not None, f"{PINS.name} has no {package}"
    return "\n".join(line for line in found[0].splitlines() if "#" not in line).rstrip(" \\") + "\n"


def pinned() -> Environment:
    """The environment of the pinned releases, made if it is not there; by one process alone."""
    name = f"perdure-suites-{sha256(str(ROOT).encode()).hexdigest()[:16]}.lock"
    with open(Path(tempfile.gettempdir()) / name, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["sh", "tools/venv", "--peer", "suites"], cwd=ROOT, check=True)
    return Environment(ROOT / ".venv-peers-suites")


def newest() -> Environment:
    """An environment of the newest releases of today, made anew."""
    folder = ROOT / ".venv-compat"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    wanted = [
        line
        for line in PINS.with_suffix(".in").read_text().splitlines()
        if line and not line.startswith(("#", "-"))
    ]
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", *wanted], check=True)
    return Environment(folder)
