"""A store's file under a second name: with another WAL beside it, nobody hears of anybody."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.errors import StoreUnavailable
from perdure.private import PART


def write(path: Path, number: int) -> None:
    with perdure.open(path) as store, store.agent("a").edit() as draft:
        draft["number"] = number


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "kept").mkdir()
    write(tmp_path / "kept" / "a store.db", 1)
    return tmp_path / "kept" / "a store.db"


def test_a_file_with_two_names_is_refused_under_each(path: Path) -> None:
    """A copy by hard links was opened while the store was in use: each saw an agent of its own, 202
    acknowledged commits of one were written over by the other, and both were damaged in the end."""
    other = path.parent / "b.db"
    os.link(path, other)
    for one, two in [(path, other), (other, path)]:
        with pytest.raises(StoreUnavailable, match="2 names") as caught:
            perdure.open(one)
        assert repr(two.name) in caught.value.hint
    other.rename(path.parent.parent / "elsewhere.db")
    with pytest.raises(StoreUnavailable, match="2 names") as caught:
        perdure.open(path)
    assert f"-samefile '{path}'" in caught.value.hint
    (path.parent.parent / "elsewhere.db").unlink()
    write(path, 2)


def test_who_has_it_open_goes_on_when_it_gets_another_name(path: Path) -> None:
    with perdure.open(path) as store:
        agent = store.agent("a")
        os.link(path, path.parent / "b.db")
        with agent.edit() as draft:
            draft["number"] = 2
        with pytest.raises(StoreUnavailable, match="2 names"):
            perdure.open(path.parent / "b.db")
        assert agent.verify().commits == 3
    (path.parent / "b.db").unlink()
    with perdure.open(path) as store:
        assert store.agent("a").state == {"number": 2}


def test_what_was_left_by_who_made_it_is_no_second_name(path: Path) -> None:
    """A file gets its name by a link, where the system makes none in one go; killed behind that, it
    has two."""
    part = Path(f"{path}.0123{PART}")
    os.link(path, part)
    write(path, 2)
    assert not part.exists()


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="only root mounts",
)
def test_a_file_that_is_mounted_alone_is_refused(path: Path, tmp_path: Path) -> None:
    """As `docker run -v $PWD/a.db:/app/a.db` does: its WAL lay in the container. After a kill the
    others went on without what was in there, and the store was malformed for good."""
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a.db").touch()
    script = """
mount --bind "$1" "$2/a.db" || exit 77
"$0" -m perdure --store "$2/a.db" ls && exit 1
umount "$2/a.db"
mount --bind "$(dirname "$1")" "$2"
"$0" -m perdure --store "$2/a store.db" ls
"""
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, sys.executable, str(path), str(inside)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("no mounts here")
    assert "mount the folder" in done.stderr and done.returncode == 0, done.stderr
