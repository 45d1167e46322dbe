"""The motivating case: twenty hours into a migration the machine loses power. A standby goes on at
that very batch; nothing is copied twice in silence, nothing is forgotten.

It is `make demo` in small: real processes, real SIGKILLs at random moments, all of its checks.
"""

import random
from pathlib import Path

import pytest

from examples.demo import check
from examples.demo.conductor import Conductor, Job, Kill, Outage, Story
from examples.demo.ledger import Line
from examples.demo.show import Options, check_all, left_out, prepare

FILES = 120
BATCH_FILES = 2
KILLS = 8
PAUSE_S = 0.05  # so that the job is not done before a busy conductor looks for the first time
KILLS_MIN = 2  # a busy machine may let the conductor sleep through most of the job


def make_tree(root: Path) -> None:
    """Files of many sizes under awkward names; and what is not to be copied."""
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
    job = Job(source, tmp_path / "dest", tmp_path, ["__pycache__"], BATCH_FILES, batches, PAUSE_S)
    events: list[str] = []
    conductor = Conductor(job, KILLS, seed, events.append)
    story = conductor.play()

    checks, log = check_all(job, story, conductor.ledger.lines, KILLS_MIN)
    told = "\n".join(events)
    assert {one.claim: one.found for one in checks if not one.holds} == {}, told
    assert log is not None
    assert len(check.tree_hashes(job.dest, [])) == FILES
    assert not [log for log in tmp_path.glob("worker-*.log") if not log.stat().st_size]
    assert log.attempts > batches or not any(kill.moment == "in a batch" for kill in story.kills)


def test_the_checks_find_what_is_wrong() -> None:
    """A check that cannot fail proves nothing."""
    source = {"a": "1", "b": "2"}
    assert check.check_trees(source, dict(source)).holds
    assert check.check_trees(source, {"a": "1"}).found == ["b is missing"]
    assert check.check_trees(source, {"a": "1", "b": "3"}).found == ["b has another hash"]
    assert check.check_trees(source, {**source, "c": "4"}).found == ["c should not be there"]


def test_an_outage_without_recovery_is_found() -> None:
    kills = [Kill(number, 9, 1, "in a batch", False) for number in (1, 2, 3)]
    story = Story(kills, [Outage(0.0, 2, ended=1.0), Outage(2.0, 1, ended=3.0)])
    claimed = check.check_outages(story, 3)
    assert (claimed.claim, claimed.found) == ("3 kills in 2 outages, each recovered", [])
    assert check.check_outages(story, 4).found == ["only 3 kills, 4 were wanted"]
    story.outages[1].ended = None
    assert check.check_outages(story, 3).found == ["outage 2 was not recovered from"]
    story.outages.pop()
    assert check.check_outages(story, 3).found == ["there are kills without an outage"]


def test_a_silent_repetition_is_found() -> None:
    """The tool was called once in epoch 1, killed, and called again in epoch 2."""
    again = [Line("k", 1, 10, returned=False), Line("k", 2, 11, returned=False)]
    told = {"k": check.Call([(1, 1), (2, 2)], [(2, None)])}
    assert check.check_calls(told, again).holds
    assert not check.check_calls({"k": check.Call([(1, 1)], [(1, None)])}, again).holds
    assert not check.check_calls({"k": check.Call([(1, 1), (1, 2)], [(2, None)])}, again).holds
    assert not check.check_calls({"k": check.Call([(1, 1), (2, 2)], [(1, None)])}, again).holds
    assert not check.check_calls(told, [*again, again[1]]).holds


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"SOURCE": "nope"}, "nope: it does not exist"),
        ({"SOURCE": "file"}, "file: it is not a folder"),
        ({"SOURCE": "empty"}, "empty: there are no files in it"),
        ({"SOURCE": "full", "DEST": "full"}, "lies inside SOURCE"),
        ({"SOURCE": "full", "DEST": "file"}, "is not an empty folder"),
        ({"SOURCE": "full", "DEST": "other"}, "leave DEST out for a temporary one"),
        ({"KILLS": "abc"}, "KILLS=abc: must be a whole number"),
        ({"KILLS": "-1"}, "KILLS=-1: must be a whole number, 0 or more"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "full", "other"):
        (tmp_path / folder).mkdir()
    for file in ("file", "full/a", "other/b"):
        (tmp_path / file).write_text("x")
    for name in ("SOURCE", "DEST", "KILLS", "SEED"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as refused:
        prepare(Options.read())
    assert said in str(refused.value)


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    make_tree(tmp_path)
    assert left_out(tmp_path, ["__pycache__"]) == "1 symbolic link and folders named __pycache__"
    assert left_out(tmp_path / "folder 0", ["__pycache__"]) == ""
