"""All kinds of agents on a server, while their processes and the server itself are killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.source_tree import ROOT


def test_nothing_is_repeated_or_stranded_though_the_server_is_killed_too() -> None:
    """In a process of its own: it forks, and may have neither threads nor an open store.
    `make chaos ARGS="--store postgres"` is the long one."""
    with tempfile.TemporaryDirectory(prefix="perdure-chaos-") as folder:
        Path(folder).chmod(0o755)  # the server of root runs as another user
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.chaos",
                "--store",
                "postgres",
                "--kills",
                "20",
                "--seed",
                "one",
                "--rounds",
                "2",
                "--copies",
                "1",
                "--folder",
                folder,
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 killed" in done.stdout
    assert "and the server 0 times" not in done.stdout
