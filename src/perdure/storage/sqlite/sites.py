"""Where a store's file may lie: on a local disk.

What of a store is not in its file yet is in the WAL beside it, and those who have it open find each
other by what lies there. So whoever comes to it must come the same way
(https://sqlite.org/howtocorrupt.html).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from perdure.errors import StoreUnavailable

LOCAL_MAX = 1000
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "afs"}
)


def check_site(path: str) -> None:
    """Refuse a store where it cannot be kept.

    Raises:
        StoreUnavailable: it is such a place.
        OSError: nobody can tell.
    """
    _refuse_network_file_system(path)


def _refuse_network_file_system(path: str) -> None:
    """SQLite's locks and shared memory do not work across machines."""
    if sys.platform != "linux":
        return
    kind = _file_system(os.path.dirname(path) or ".")
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreUnavailable(
            f"is on a network file system ({kind}), where SQLite's locks are not safe",
            target=f"store {path}",
            hint="put the store on a local disk",
        )


_local: dict[str, int] = {}
"""Folders that were found on a local disk, and their devices: each connection asks, and to read all
mounts takes as long as half of the rest."""


def _file_system(folder: str) -> str:
    """What is mounted there; "" where it was local when we last looked, or nobody says."""
    kind, best = "", ""
    try:
        device = os.stat(folder).st_dev
    except OSError:
        device = -1
    if device >= 0 and _local.get(folder) == device:
        return ""  # also of a link that leads elsewhere now: what is there is on that device
    real = os.path.realpath(folder)
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except (OSError, TypeError):  # TypeError: Python's, where reading would block
        return ""
    for line in mounts:
        before, _, after = line.partition(" - ")
        point = before.split()[4]
        if "\\" in point:  # rare, and Python has to load what undoes it
            point = point.encode().decode("unicode_escape")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            kind, best = after.split()[0], point
    if kind not in NETWORK_FILE_SYSTEMS and device >= 0:
        if len(_local) >= LOCAL_MAX:
            _local.clear()
        _local[folder] = device
    return kind
