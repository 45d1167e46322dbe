"""A process that has no free descriptor left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STORY = """
import os, resource, sys
import perdure

with perdure.open(sys.argv[1]) as store:
    agent = store.agent("a")
    with agent.edit("small") as draft:
        draft["n"] = 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for _ in range(2):
        try:
            with agent.edit("large") as draft:
                draft["text"] = "word " * 1000
        except perdure.StoreUnavailable as error:
            assert error.outcome == "not_done"
            print("refused")
    for one in taken:
        os.close(one)
    with agent.edit("large") as draft:
        draft["text"] = "word " * 1000
    print(agent.seq)
"""


def test_i1_what_is_first_needed_without_descriptors_is_refused_in_our_words(
    tmp_path: Path,
) -> None:
    """Small commits need no descriptor. The first one that is packed loaded the packer, which needs
    one: a bare OSError with the path of a library, at each edit, as long as all were taken."""
    done = subprocess.run(
        [sys.executable, "-c", STORY, str(tmp_path / "a.db")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["refused", "refused", "3"], "")
