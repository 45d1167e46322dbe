"""Command lines: every command, with garbage for names, values, times and numbers."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

from typer.testing import CliRunner

from perdure.cli.app import app
from perdure.cli.failures import INTERRUPTED, PIPE_CLOSED
from tests.cli.operator import fill
from tests.fuzz.mutating import Parts
from tests.fuzz.target import Looks, Target
from tests.fuzz.targets.tokens import as_text

NEVER = ("worker", "--follow", "--interval", "replicate", "--watch")
"""They go on until they are ended, or load a module that the line names."""

OUTSIDE = re.compile(r"(^|[^\w.])/|\.\.|^~|postgres|^[^-]*:")
"""Lines that would reach out of the folder, or to a server."""

FINE = {*range(10), INTERRUPTED, PIPE_CLOSED} - {1}


@cache
def _folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="perdure-fuzz-"))
    os.environ["PERDURE_DEBUG"] = "1"  # what was not expected comes as it is
    return made


@cache
def _whole() -> bytes:
    path = _folder() / "made.db"
    fill(path)
    return path.read_bytes()


def _commands(parts: Parts, looks: Looks) -> None:
    line = [as_text(part).replace("\0", "") for part in parts]
    if any(word in NEVER or OUTSIDE.search(word) for word in line):
        return
    folder = _folder()
    os.chdir(folder)
    for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    Path("agents.db").write_bytes(_whole())
    result = CliRunner().invoke(app, line, env={"PERDURE_STORE": "agents.db"}, input="")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in FINE, result.output
    assert "Traceback" not in result.output
    assert result.exit_code == 0 or result.output, "it failed without a word"
    looks.note(f"{line[:1]} {result.exit_code}")


commands = Target("commands", _commands, prepare=_whole)
