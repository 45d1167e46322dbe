"""What an example says of itself does not start it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_demonstration_says_what_it_is(tmp_path: Path) -> None:
    """Asked for help it copied a whole library under kill -9, for a minute."""
    for word, code in (("--help", 0), ("--nonsense", 2)):
        found = subprocess.run(
            [sys.executable, EXAMPLES / "migration_demo.py", word],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
            timeout=60,
        )
        assert found.returncode == code
        assert "usage: migration_demo.py" in found.stdout + found.stderr
        assert "Copying" not in found.stdout
    assert not list(tmp_path.iterdir())
