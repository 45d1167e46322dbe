"""Ctrl-C where a thread of the library's own is being started: it runs, and is not forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure


@pytest.fixture
def interrupt_start(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has the next start of a thread of that name be interrupted where the thread runs already."""
    start, names = threading.Thread.start, set[str]()

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name in names:
            names.discard(thread.name)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    return names.add


@perdure.agent(dict)
def act(run: perdure.Run[dict]) -> str:
    run.progress("begun")
    return "done"


def alive(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


@pytest.mark.parametrize("name", ["perdure-committer", "perdure-heartbeat", "perdure-listener"])
def test_a_store_is_closed_behind_an_interrupted_start(
    tmp_path: Path, interrupt_start: Callable[[str], None], name: str
) -> None:
    """The committer's thread ran, and was not known. A second one was made, and the word to end was
    taken by the first: closing waited for the second for ever. A heartbeat that nobody knew of
    warned every three seconds that its store was closed, until the process ended."""
    before = {*alive(name)}
    store = perdure.open(tmp_path / "a.db")
    interrupt_start(name)
    for key in ("a", "b"):
        with suppress(KeyboardInterrupt, perdure.PerdureError):
            store.options(key=key).run(act, "a")
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()
    for thread in {*alive(name)} - before:
        thread.join(30)
        assert not thread.is_alive()


def test_a_committer_whose_thread_was_forgotten_ends_with_both(
    tmp_path: Path, interrupt_start: Callable[[str], None]
) -> None:
    """As it is where the interrupt comes before the thread itself says that it runs."""
    before = {*alive("perdure-committer")}
    store = perdure.open(tmp_path / "a.db")
    committer: Any = store.runner.context.committer
    committer._summon()
    committer._thread = None
    committer._summon()
    both = {*alive("perdure-committer")} - before
    assert len(both) == 2
    store.close()
    for thread in both:
        thread.join(30)
        assert not thread.is_alive()
