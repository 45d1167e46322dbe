"""The motivating case: twenty hours into a migration the machine loses power. A standby goes on at
that very batch; nothing is moved twice in silence, nothing is forgotten.

It is `make demo` in small: real processes, real SIGKILLs at random moments, all of its checks.
"""

import random
from pathlib import Path

import pytest

from examples.demo import check
from examples.demo.conductor import Conductor, Job
from examples.demo.ledger import Line
from examples.demo.show import check_all

FILES = 120
BATCH_FILES = 2
KILLS = 8
KILLS_MIN = 2  # a busy machine may let the conductor sleep through most of the job


def make_tree(root: Path) -> None:
    """Files of many sizes under awkward names; and what is not to be moved."""
    content = random.Random(1)
    for number in range(FILES - 2):
        path = root / f"folder {number % 7}" / f"ünï-{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.randbytes(content.choice([0, 1, 1000, 300_000])))
    (root / "'quoted' [brackets]\n").write_text("x")
    (root / b"not utf-8 \xff".decode("utf-8", "surrogateescape")).write_text("y")
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "skipped.pyc").write_text("z")
    (root / "link").symlink_to(root / "folder 0")


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_again_and_again(tmp_path: Path, seed: int) -> None:
    source = tmp_path / "source"
    make_tree(source)
    batches = FILES // BATCH_FILES
    job = Job(source, tmp_path / "dest", tmp_path, ["__pycache__"], BATCH_FILES, batches)
    events: list[str] = []
    conductor = Conductor(job, KILLS, seed, events.append)
    story = conductor.play()

    checks, log = check_all(job, story, conductor.ledger.lines, KILLS_MIN)
    told = "\n".join(events)
    assert {one.claim: one.found for one in checks if not one.holds} == {}, told
    assert log is not None
    assert len(check.tree_hashes(job.dest, [])) == FILES
    assert len(story.recoveries) == len(story.outages)
    assert log.attempts > batches or not any(kill.moment == "in a batch" for kill in story.kills)


def test_the_checks_find_what_is_wrong() -> None:
    """A check that cannot fail proves nothing."""
    source = {"a": "1", "b": "2"}
    assert check.check_trees(source, dict(source)).holds
    assert check.check_trees(source, {"a": "1"}).found == ["b is missing"]
    assert check.check_trees(source, {"a": "1", "b": "3"}).found == ["b has another hash"]
    assert check.check_trees(source, {**source, "c": "4"}).found == ["c should not be there"]


def test_a_silent_repetition_is_found() -> None:
    """The tool was called once in epoch 1, killed, and called again in epoch 2."""
    again = [Line("k", 1, 10, returned=False), Line("k", 2, 11, returned=False)]
    told = {"k": check.Call([(1, 1), (2, 2)], [(2, None)])}
    assert check.check_calls(told, again).holds
    assert not check.check_calls({"k": check.Call([(1, 1)], [(1, None)])}, again).holds
    assert not check.check_calls({"k": check.Call([(1, 1), (1, 2)], [(2, None)])}, again).holds
    assert not check.check_calls({"k": check.Call([(1, 1), (2, 2)], [(1, None)])}, again).holds
    assert not check.check_calls(told, [*again, again[1]]).holds
