"""File systems whose blocks are smaller than SQLite's pages of shared memory, and full."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

import perdure
from perdure.errors import StoreUnavailable
from perdure.storage.sqlite import shm
from tests.crash.mounts import run_with_own_mounts

FILL = """
import os, sys
import perdure
folder = sys.argv[1]
store = perdure.open(folder + "/a.db")
agent = store.agent("a")
agent.save({"n": -1})
with open(folder + "/ball", "wb") as ball:
    room = os.statvfs(folder)
    ball.write(bytes(room.f_bavail * room.f_frsize - 300_000))
acknowledged = -1
try:
    for n in range(3000):
        agent.save({"n": n, "text": os.urandom(1000).hex()})
        acknowledged = n
except perdure.StoreUnavailable as error:
    print(acknowledged, "full" in str(error), flush=True)
os._exit(0)
"""

LOOK = """
import os, sys
import perdure
folder, acknowledged = sys.argv[1], int(sys.argv[2])
def look():
    with perdure.open(folder + "/a.db") as store:
        assert store.agent("a").state["n"] >= acknowledged
        store.check_pages()
try:
    look()
except perdure.StoreUnavailable as error:
    assert "full" in str(error), error
os.unlink(folder + "/ball")
look()
"""

SCRIPT = """
dd if=/dev/zero of="$1/image" bs=1M count=6 2>/dev/null || exit 77
mkfs.ext4 -q -F -b 1024 "$1/image" && mount -o loop "$1/image" "$1/inside" || exit 77
found=$("$0" -c "$2" "$1/inside") || exit 1
set -- "$1" "$2" "$3" $found
test "$5" = True || exit 2
"$0" -c "$3" "$1/inside" "$4" || exit 3
umount "$1/inside"
"""


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("mkfs.ext4") is None,
    reason="only root mounts",
)
def test_a_full_disk_with_small_blocks_is_an_error_and_no_signal(tmp_path: Path) -> None:
    """`mkfs.ext4` makes blocks of 1 KiB of any volume below 512 MB. An edit ended its process by
    SIGBUS there, and so did every command, for as long as the disk was full."""
    (tmp_path / "inside").mkdir()
    run_with_own_mounts(SCRIPT, tmp_path, FILL, LOOK)


class SmallBlocks:
    f_frsize = 1024


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is done elsewhere")
def test_where_there_is_no_room_for_a_part_of_it_opening_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SmallBlocks)
    parts: list[int] = []
    has_room = shm._has_room

    def counted(path: str, at: int, size: int) -> bool:
        parts.append(at)
        return has_room(path, at, size)

    path = tmp_path / "a.db"
    monkeypatch.setattr(shm, "_has_room", counted)
    with perdure.open(path) as store:
        store.agent("a").save({"n": 1})
    assert parts and set(parts) == {0}
    monkeypatch.setattr(shm, "_has_room", lambda *_: False)
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        perdure.open(path)
    monkeypatch.setattr(shm, "_has_room", counted)
    with perdure.open(path) as store:
        assert store.agent("a").state == {"n": 1}
