"""The number of processors that this process may use, where something limits it: a container, a
service.

Linux's control groups set it, in both versions: in the first, `cpu.cfs_quota_us` of each
`cpu.cfs_period_us`; in the second, both in `cpu.max`. A limit holds for all below it. Sources: the
kernel's Documentation/scheduler/sched-bwc.rst and Documentation/admin-guide/cgroup-v2.rst, "CPU".
"""

from __future__ import annotations

from math import inf
from pathlib import Path


def allowed(root: Path = Path("/")) -> float:
    """Returns the number of processors that all limits allow; infinite if there is none, or none
    that can be read.

    Args:
        root: where ``proc`` and ``sys`` are; for tests.
    """
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return inf
    least = inf
    for group in groups:
        _, _, rest = group.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        folder = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        for name in ("", *path.strip("/").split("/")):  # in a container, its own is at the top
            folder /= name
            least = min(least, _limit(folder, first=bool(controllers)))
    return least


def _limit(folder: Path, *, first: bool) -> float:
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if first else ("cpu.max",)
    try:
        quota, period = " ".join((folder / name).read_text() for name in names).split()
        return int(quota) / int(period) if int(quota) > 0 else inf
    except (OSError, ValueError, ZeroDivisionError):  # "max": there is none
        return inf
