"""Many agents on several executors, all of which are killed and paused at random moments: no effect
is silently repeated, and no run is stranded. `make chaos` is the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT


@pytest.mark.parametrize("seed", ["one", "two", "three"])
def test_nothing_is_repeated_or_stranded_though_every_process_is_killed(
    tmp_path: Path, seed: str
) -> None:
    """In a process of its own: it forks, and may have neither threads nor an open store."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.chaos",
            "--kills",
            "20",
            "--seed",
            seed,
            "--rounds",
            "2",
            "--copies",
            "1",
            "--folder",
            str(tmp_path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 killed" in done.stdout


@pytest.mark.parametrize("seed", ["four", "five", "nine", "ten"])
def test_stores_agree_though_who_moves_their_agents_is_killed(tmp_path: Path, seed: str) -> None:
    """One life of a store: `make chaos ARGS="--moves 30"` plays many."""
    words = ["--moves", "0", "--seed", seed, "--folder", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lives" in done.stdout
