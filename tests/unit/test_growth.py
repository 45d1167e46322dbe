"""Each public call takes the same however long the history behind it is, or grows in proportion.

Nobody had looked: a crash after `asyncio.gather` of 3,000 recorded steps left a run that did not
come back within two minutes, and a page of the runs of a store read all that was asked for of it.
Counted by lines and by SQLite's steps, never by time.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import bench.growth.command_line_calls
import bench.growth.framework_calls  # noqa: F401 - both register calls of their own
from bench.growth.calls import CALLS
from bench.growth.places import HISTORIES, Places
from bench.growth.table import grown
from tests.rubbish.subjects import CLASSES, found

LENGTHS = (30, 120)
FEWER = (15, 60)
"""Of what takes long to build."""

MORE = (60, 240)
"""Where what is read ahead at a time is no small part of a shorter one."""

EXCUSED = {
    "Worker.__init__": "what it does are looks that `scale` measures, and runs",
    "Worker.run": "as above", "Worker.stop": "sets a flag", "Worker.can_run": "looks at an object",
    "Worker.functions": "its own list", "Worker.running": "its own list",
    "Store.runner": "of the library's own faces",
    "Store.close": "what it flushes is no history", "Store.url": "a text",
    "Options.order": "of the library's own faces", "Options.runner": "of the library's own faces",
    "Child.waiting": "of the library's own faces", "Child.ended": "of the library's own faces",
    "Child.end": "what `Child.result` waits for",
    "RunHandle.settle": "reads the journal as `effects` does, and commits as `cancel` does",
    "RunHandle.resume": "commits as `cancel` does, and reads less",
}  # fmt: skip
"""Without a line in the table, and why."""

_DECLARED = ("Schema", "SnapshotPolicy", "Retry", "Signal", "Ask", "Timer")
"""Made by callers, with no log behind them."""


def test_each_public_call_has_a_line_or_a_reason() -> None:
    """A new one must be measured. The async faces delegate to these, each under the same name."""
    measured = {name for one in CALLS for name in one.names}
    measured -= {name for name in measured if name.startswith(("Perdure", "perdure "))}
    public = {name for name in found() if "." in name} | _properties()
    missing = {
        name for name in public
        if not name.endswith(".__init__") and name.split(".")[0] not in _DECLARED
        and not name.startswith(("replication.", "Async"))
        and name not in measured and name not in EXCUSED
    }  # fmt: skip
    assert not missing, "measure it in bench/growth, or say here why not"
    assert measured <= public, "there is no such call"
    assert public >= EXCUSED.keys(), "there is no such call to excuse"
    assert not measured & EXCUSED.keys()


def _properties() -> set[str]:
    return {
        f"{cls.__name__}.{name}" for cls in CLASSES for name in dir(cls)
        if not name.startswith("_") and isinstance(inspect.getattr_static(cls, name), property)
    }  # fmt: skip


@pytest.mark.parametrize("history", HISTORIES)
def test_i8_no_call_grows_above_what_it_may(history: str, tmp_path: Path) -> None:
    places = Places(tmp_path)
    lengths = MORE if history == "thread" else LENGTHS
    lengths = FEWER if history in ("agents", "runs", "inbox") else lengths
    too_much = [
        f"{one.what}: {line.factor:.2f} times for {line.longer:g} times the history: {line.works}"
        for one in CALLS
        if one.history == history
        for line in [grown(one, lengths, places, timed=False)]
        if line.factor > line.factor_max
    ]
    assert not too_much, "\n".join(too_much)
