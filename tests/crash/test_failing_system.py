"""System calls of a real process fail, from outside (`strace -e inject`): what it acknowledged is
there all the same, and nothing is half there."""

import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

import perdure
from perdure.errors import Corrupt, StoreUnavailable
from tests.errnos.injecting import Injector
from tests.errnos.workloads import WORKLOADS

BEFORE = 2
"""Commits that are there already: the agent's first, and an edit."""

COMMITS = 4

PROGRAM = """
import os, sys, perdure
from perdure.errors import PerdureError
try:
    with perdure.open(sys.argv[1]) as store:
        for number in range(1, 5):
            with store.agent("a").edit("count") as draft:
                draft["n"] = number
                draft["text"] = "x" * 20_000
            os.write(1, b"done %d\\n" % number)
except PerdureError as error:
    outcome = getattr(error, "outcome", "")
    said = " ".join(str(error).split())
    os.write(1, f"{type(error).__name__} {said} {outcome}\\n".encode())
"""

traced = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store whose process ended well."""
    with perdure.open(tmp_path / "store.db") as store, store.agent("a").edit("begin") as draft:
        draft["n"] = 0
    return tmp_path / "store.db"


def run(path: Path, *faults: str) -> list[str]:
    """What the program says while these system calls on the store's files fail."""
    only = [part for end in ("", "-wal") for part in ("-P", f"{path}{end}")]
    inject = [part for fault in faults for part in ("-e", f"inject={fault}")]
    trace = path.parent / "trace"
    program = [sys.executable, "-c", PROGRAM, str(path)]
    done = subprocess.run(
        ["strace", "-f", "-o", str(trace), *only, *inject, *program],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if "ptrace" in done.stderr or "invalid" in done.stderr:
        pytest.skip(f"strace may not trace or inject here: {done.stderr:.200}")
    assert done.returncode == 0, done.stderr
    assert "INJECTED" in trace.read_text(), "the fault never came"
    return done.stdout.splitlines()


def holds(path: Path, said: list[str]) -> None:
    """What it said is so: to a fresh process, whose system calls work."""
    acknowledged = sum(line.startswith("done") for line in said)
    unknown = any(line.endswith("unknown") for line in said)
    with perdure.open(path) as store:
        store.check_pages()
        agent = store.agent("a")
        agent.verify()
        there = agent.state["n"]
        assert len(list(agent.log())) == BEFORE + there
        assert there == acknowledged or (unknown and there == acknowledged + 1)
        with agent.edit("it goes on") as draft:
            draft["n"] = -1


@traced
@pytest.mark.parametrize(
    "fault",
    [
        "fdatasync:error=EIO:when=1",
        "fdatasync:error=EIO:when=2",
        "fdatasync:error=EIO:when=3",
        "pwrite64:error=EIO:when=7",
        "pwrite64:error=ENOSPC:when=9",
        "pwrite64:error=EINTR:when=3+2",
        "pread64:error=EINTR:when=3+2",
    ],
)
def test_i1_a_call_that_fails_for_once_costs_nothing(path: Path, fault: str) -> None:
    said = run(path, fault)
    holds(path, said)
    if "ENOSPC" not in fault:
        assert said == [f"done {number}" for number in range(1, COMMITS + 1)]


@traced
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_i1_a_disk_that_fails_for_good_is_reported_and_nothing_is_lost(
    path: Path, call: str, error: str
) -> None:
    said = run(path, f"{call}:error={error}:when=5+")
    assert said[-1].startswith(StoreUnavailable.__name__), said
    holds(path, said)


@traced
@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("EDQUOT", "quota is used up"),
        ("EFBIG", "may not become larger"),
        ("ENOSPC", "disk is full"),
    ],
)
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
def test_i1_what_may_not_grow_is_no_disk_that_fails(
    path: Path, call: str, error: str, words: str
) -> None:
    """ "See the system's log; the disk may be failing", it was, to who has used up a quota."""
    said = run(path, f"{call}:error={error}:when=5+")
    assert said[-1].startswith(StoreUnavailable.__name__), said
    assert words in said[-1] and "failing" not in said[-1]
    holds(path, said)


@traced
def test_a_store_that_a_full_disk_keeps_from_being_opened_says_so(path: Path) -> None:
    """ "An input/output error … the disk may be failing", it was, which sends people to buy one."""
    words = [sys.executable, "-m", "perdure", "--store", str(path), "ls"]
    done = subprocess.run(
        [
            "strace",
            "-f",
            "-o",
            str(path.parent / "trace"),
            "-P",
            f"{path}-shm",
            "-e",
            "inject=pwrite64:error=ENOSPC",
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if "ptrace" in done.stderr or "invalid" in done.stderr:
        pytest.skip(f"strace may not trace or inject here: {done.stderr:.200}")
    assert done.returncode != 0 and "the disk is full" in done.stderr, done
    assert "free some space" in done.stderr and "failing" not in done.stderr


@traced
@pytest.mark.parametrize("size", [0, 100])
def test_i11_a_short_read_is_no_other_answer(path: Path, size: int) -> None:
    """A read gives fewer bytes than it was asked for, or none, again and again."""
    said = run(path, f"pread64:retval={size}:when=9+3")
    if not said[-1].startswith("done"):
        assert said[-1].split()[0] in (Corrupt.__name__, StoreUnavailable.__name__, "NotAStore")
    holds(path, said)


LIMITED = """
import os, resource, sys, perdure
from perdure.errors import StoreUnavailable

@perdure.step
def think(n):
    return "x" * 2000 + str(n)

@perdure.agent(dict)
def act(run):
    for n in range(60):
        think(n)

for size in range(0, 300_000, 30_000):
    with perdure.open(f"{sys.argv[1]}/{size}.db") as store:
        store.agent("a").save({"n": 1}, "begin")
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        for _ in range(3):
            try:
                store.run(act, "limited")
            except StoreUnavailable as error:
                print(error.outcome)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        store.run(act, "limited")
        store.agent("limited").verify()
"""


def test_i8_a_limit_for_files_is_no_bare_error_of_the_system(tmp_path: Path) -> None:
    """`ulimit -f` gave an `OSError: [Errno 27] File too large` from `store.run`, of which no caller
    knew whether the step was recorded. Once there is room, the run goes on."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) >= 15 and set(said) <= {"not_done", "unknown"}, said


ERRNOS = 10
"""Faults of each workload here; `make errnos` tries all."""


@traced
@pytest.mark.parametrize("name", ["new", "edits", "reading", "running", "copying"])
def test_each_error_of_the_system_becomes_one_of_ours(name: str, tmp_path: Path) -> None:
    """A share of `make errnos`: any call of a workload fails, with any error; see tests/errnos."""
    try:
        injector = Injector(WORKLOADS[name], tmp_path)
        faults = sorted(injector.faults(injector.calls()), key=str)
    except PermissionError as refused:
        pytest.skip(f"strace may not trace here: {refused}")
    # Where a lock cannot be had, or not be given back, SQLite waits for it, and waits again:
    # minutes for one fault, which `make errnos` takes.
    quick = [fault for fault in faults if fault.call != "fcntl"]
    wrong = {str(fault): injector.violation(fault) for fault in Random(7).sample(quick, ERRNOS)}
    assert not any(wrong.values()), "\n".join(f"{f}: {why}" for f, why in wrong.items() if why)
