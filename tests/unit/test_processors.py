"""How many processors a process may use, by the files that say it."""

from math import inf
from pathlib import Path

import pytest

from perdure.system.processors import allowed


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, inf),
        ({"proc/self/cgroup": "0::/\n"}, inf),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, inf),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5),
        (
            {
                "proc/self/cgroup": "0::/apps/agent.service\n",
                "sys/fs/cgroup/apps/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/apps/agent.service/cpu.max": "max 100000\n",
            },
            1.5,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/docker/0a1b\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "25000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            0.25,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            inf,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "rubbish"}, inf),
        ({"proc/self/cgroup": "rubbish\n"}, inf),
    ],
    ids=[
        "no-linux",
        "no-limit-file",
        "max",
        "half",
        "of-the-parent",
        "first-version",
        "none-there",
        "rubbish",
        "rubbish-of-groups",
    ],
)
def test_what_the_limits_leave(tmp_path: Path, files: dict[str, str], expected: float) -> None:
    _write(tmp_path, files)
    assert allowed(tmp_path) == expected


def test_this_machine_has_an_answer() -> None:
    assert allowed() > 0
