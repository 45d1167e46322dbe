"""A share of what `make crash` does whole: the power is cut at moments of every workload, and what
was acknowledged is there."""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.powerloss.checking import lay_out
from tests.powerloss.images import Disk
from tests.powerloss.sweep import Sweep
from tests.powerloss.workloads import NAME, WORKLOADS, record
from tests.source_tree import ROOT

SEED = 7
SHARE = 0.04


@pytest.mark.parametrize("workload", WORKLOADS)
def test_i1_i2_what_was_acknowledged_survives_a_power_loss(workload: str, tmp_path: Path) -> None:
    swept = Sweep(tmp_path, subsets=2, share=SHARE).run(workload, SEED)
    assert swept.violations == [], "\n".join(map(str, swept.violations[:3]))
    assert len(swept.images) > 15


@pytest.mark.parametrize(
    ("synchronous", "seen"), [("NORMAL", {"lost"}), ("OFF", {"lost", "corrupt"})]
)
def test_a_store_that_syncs_too_little_is_found_out(
    synchronous: str, seen: set[str], tmp_path: Path
) -> None:
    """A harness that finds nothing may be blind. With NORMAL, SQLite acknowledges before it syncs;
    with OFF, it does not even keep the order of what it writes."""
    swept = Sweep(tmp_path, subsets=2, share=0.1).run("moving-the-wal", SEED, synchronous)
    assert seen <= set(swept.verdicts), swept.verdicts
    assert swept.verdicts["lost"] > 10


LOOK = """
import sys, perdure
for path in sys.argv[1:]:
    with perdure.open(path) as store:
        store.check_pages()
        for info in store.agents():
            store.agent_of(info).verify()
        with store.agent("after the power loss").edit("it goes on") as draft:
            draft["on"] = True
    print("whole", flush=True)
"""


def test_a_real_process_finds_what_the_harness_finds(tmp_path: Path) -> None:
    """The harness opens its images within one process, for speed: here a new one opens some."""
    (tmp_path / "recorded").mkdir()
    recording = record("branches", SEED, tmp_path / "recorded")
    rng = random.Random(SEED)
    disk = Disk(recording.before, rng)
    chosen = set(rng.sample(range(len(recording.operations) // 2, len(recording.operations)), 8))
    paths: list[str] = []
    for place, operation in enumerate(recording.operations):
        disk.play(operation)
        if place in chosen:
            image = rng.choice(list(disk.crashes(rng, 4)))
            lay_out(image, tmp_path / str(place))
            paths.append(str(tmp_path / str(place) / NAME))
    looked = subprocess.run(
        [sys.executable, "-c", LOOK, *paths], capture_output=True, text=True, timeout=120
    )
    assert looked.stdout.split() == ["whole"] * 8, looked.stderr


# -- is the tape right? --------------------------------------------------------------------------

RECORD = """
import json, sys
from pathlib import Path
from tests.powerloss.workloads import record
recording = record(sys.argv[1], 1, Path(sys.argv[2]))
names = dict(enumerate(recording.before))
told = []
for operation in recording.operations:
    if operation.kind == "create":
        names[operation.file] = operation.name
    if operation.kind in ("sync", "sync-folder"):
        told.append(names[operation.file] if operation.kind == "sync" else ".")
    if operation.kind == "delete":
        told.append("delete " + operation.name)
print(json.dumps(told))
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("workload", ["edits", "moving-the-wal"])
def test_the_tape_has_every_sync_that_the_system_sees(workload: str, tmp_path: Path) -> None:
    """SQLite syncs folders, and our own code syncs files, past the layer that the tape is."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-e", "trace=fsync,fdatasync,unlink", "-o", str(trace)]
    done = subprocess.run(
        [*command, sys.executable, "-c", RECORD, workload, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if "ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    seen = [told for line in trace.read_text().splitlines() if (told := _told(line, folder))]
    assert json.loads(done.stdout) == seen
    assert "." in seen and f"{NAME}-wal" in seen


def _told(line: str, folder: Path) -> str:
    """What a line of strace says, in the tape's words; empty: nothing of interest."""
    where = str(folder)
    if where not in line or f"{NAME}-shm" in line:
        return ""
    if "unlink(" in line:
        return "delete " + line.split('"')[1].removeprefix(where + "/")
    file = line.split("<")[1].split(">")[0]
    return file.removeprefix(where).lstrip("/") or "."
