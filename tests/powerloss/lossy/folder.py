"""A folder that forgets what was not synced, from outside: the process behind it, and its power."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.powerloss.lossy.disk import Names
from tests.source_tree import ROOT

ANSWER_S = 60.0


class CannotMountError(Exception):
    """This machine, or user, may not mount file systems."""


class LossyFolder:
    """Mounted over a folder, for whoever stands behind `entrance`; from outside, the folder has
    what was synced. One power loss ends it.

    Args:
        folder: that it lies over, with what it has at first.
        shelf: an empty folder in the same file system, for itself.
        names: what makes names lasting; see `Names`.

    Raises:
        CannotMountError: as it says.
    """

    def __init__(self, folder: Path, shelf: Path, names: Names, seed: str) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.powerloss.lossy",
            str(folder),
            str(shelf),
            names,
            seed,
        ]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.frozen_ns = 0
        said = self._hear(ANSWER_S)
        if "mounted" not in said:
            self.end()
            raise CannotMountError(said.get("refused", "the process ended"))

    @property
    def entrance(self) -> list[str]:
        """What a command stands behind that is to see the folder."""
        spaces = f"/proc/{self._process.pid}/ns"
        users = [] if os.geteuid() == 0 else [f"--user={spaces}/user", "--preserve-credentials"]
        return ["nsenter", *users, f"--mount={spaces}/mnt"]

    def cut_after(self, changes: int) -> None:
        """The power goes after so many more changes: nothing more comes to the disk then. Said
        again, the last word counts, unless it is frozen already."""
        self._command(f"cut {changes}")
        self._await("left")

    def is_frozen(self, timeout_s: float = 0.0) -> bool:
        """Whether that has happened; `frozen_ns` says when, by the monotonic clock."""
        if not self.frozen_ns:
            self._hear(timeout_s)
        return bool(self.frozen_ns)

    def lose_power(self, kept: float) -> Mapping[str, int]:
        """What was not synced is lost, but for a share of it, drawn by chance. What was lost."""
        self._command(f"lose {kept}")
        lost = self._await("pages")
        self.end()
        return lost

    def end(self) -> None:
        """Whoever uses it gets errors, and what was not synced is gone."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()

    def _command(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def _await(self, word: str) -> Mapping[str, Any]:
        """The line that has this."""
        while word not in (said := self._hear(ANSWER_S)):
            if not said:
                raise RuntimeError("the process behind the folder does not answer")
        return said

    def _hear(self, timeout_s: float) -> Mapping[str, Any]:
        """Its next line; nothing: there is none in time."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            return {}
        line = self._process.stdout.readline()
        found: Mapping[str, Any] = json.loads(line) if line else {}
        self.frozen_ns = found.get("frozen_ns", self.frozen_ns)
        return found


@cache
def obstacle() -> str:
    """Why such a folder cannot be mounted here; "": it can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse that this user may open"
    if lacking := [name for name in ("nsenter", "setpriv") if shutil.which(name) is None]:
        return f"not installed: {', '.join(lacking)}"
    with tempfile.TemporaryDirectory(prefix="perdure-lossy-") as base:
        folder, shelf = Path(base) / "folder", Path(base) / "shelf"
        folder.mkdir()
        shelf.mkdir()
        try:
            LossyFolder(folder, shelf, "kept", "").end()
        except CannotMountError as error:
            return f"this user may not mount a file system here: {error}"
    return ""
