"""The `src` of an older revision, laid out beside this one."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from bench.peers.process import ROOT


def source_of(revision: str, folder: Path) -> Path:
    """Lays out the `src` of a revision in a folder, and returns where it is."""
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", revision, "src"], check=True, stdout=subprocess.PIPE
    ).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"
