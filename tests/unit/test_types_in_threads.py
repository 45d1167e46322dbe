"""What msgspec knows of a type is prepared before threads come."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import msgspec
from perdure import model
from perdure.core.format import records
from perdure.storage import standing
from perdure.storage.sqlite import feed, rows

types = {*records.SHAPES.values(), records.Other, *records._PARTS, model.Checkpoint, standing.Why,
         feed._Cursor}
for one in types:  # who takes it apart from now on fails
    one.__annotations__ = dict.fromkeys(one.__annotations__, "Unknown")
for one in types:
    msgspec.msgpack.Decoder(one)
print(len(types))
"""


def test_types_are_taken_apart_before_threads_come() -> None:
    """A worker died of a segmentation fault now and then, in its first second: several of its runs
    were read at once, and msgspec took the types of their records apart in several threads at once,
    which it cannot. They are taken apart while their modules are imported."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 10
