"""What an exception left behind in what is kept for a framework."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

import perdure
from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.threads.recent_commits import Window
from tests.faults.framework_scenes import VERSIONS, checkpoint, config


def test_a_saver_whose_read_was_interrupted_leaves_out_no_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C came while a saver read a thread's log, between taking a commit and noting it. From
    then on that commit was not there for it: a KeyError at the next look, or writes that were
    missing."""
    with perdure.open("memory://") as store:
        saver = PerdureSaver(store)
        at: Any = config("a")
        for number in range(1, 5):
            at = saver.put(at, checkpoint(number), {"step": number}, VERSIONS)
            saver.put_writes(at, [("messages", f"write {number}")], "task")

        def look(one: PerdureSaver) -> list[Any]:
            assert one.get_tuple(config("a")) is not None
            return [(each.checkpoint["id"], each.pending_writes) for each in one.list(config("a"))]

        note = Window._note
        for number in range(1, 9):
            for behind in (False, True):
                calls = count(1)

                def interrupted(window: Window, commit: Any) -> bool:
                    last = next(calls) == number  # noqa: B023
                    if last and not behind:  # noqa: B023
                        raise KeyboardInterrupt
                    found = note(window, commit)
                    if last:
                        raise KeyboardInterrupt
                    return found

                fresh = PerdureSaver(store)
                with monkeypatch.context() as patch:
                    patch.setattr(Window, "_note", interrupted)
                    with pytest.raises(KeyboardInterrupt):
                        look(fresh)
                assert look(fresh) == look(PerdureSaver(store)), (number, behind)
                at = saver.put(at, checkpoint(10 * number + behind), {"step": 9}, VERSIONS)
                saver.put_writes(at, [("messages", "another write")], "task")
                assert look(fresh) == look(PerdureSaver(store)), (number, behind)
