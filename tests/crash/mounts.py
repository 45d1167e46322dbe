"""Scripts of the shell that mount file systems where nobody else sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run_with_own_mounts(script: str, folder: Path, *programs: str) -> None:
    """Runs a script with Python as $0, the folder as $1, and programs behind it. Skips the test
    where it ends with 77: nothing can be mounted here.

    Raises:
        AssertionError: it failed.
    """
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, sys.executable, str(folder), *programs],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("no mounts here")
    assert done.returncode == 0, done
