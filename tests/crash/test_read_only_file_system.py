"""A file system that the kernel makes read-only while a store lies on it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.crash.mounts import run_with_own_mounts

FILL = """
import os, sys
import perdure
store = perdure.open(sys.argv[1] + "/a.db")
for n in range(5):
    store.agent("a").save({"n": n})
os._exit(0)
"""

# `access` says that one may write, as on ext4 after an error (errors=remount-ro).
LOOK = """
import sys
import perdure
from perdure.storage.sqlite import connection
connection.writable = lambda path: True
with perdure.open(sys.argv[1] + "/a.db") as store:
    assert store.agent("a").state == {"n": 4}
    try:
        store.check_pages()
    except perdure.StoreUnavailable as error:
        assert "part of it is in its -wal" in str(error), error
    else:
        raise AssertionError("pages that nobody could see were checked")
"""

SCRIPT = """
"$0" -c "$2" "$1" || exit 1
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 77
"$0" -c "$3" "$1" || exit 2
umount "$1"
"""


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root mounts")
def test_a_store_on_it_is_not_called_cut_short(tmp_path: Path) -> None:
    """After a disk's error `verify` said that the file ends before its second page and is to be
    restored from a copy: all but its first page was in the -wal, and healthy."""
    run_with_own_mounts(SCRIPT, tmp_path, FILL, LOOK)
