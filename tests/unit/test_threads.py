"""Threads that die before their first word."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from perdure.errors import StoreUnavailable
from perdure.system import threads


def no_memory(*_: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("dies", ["the one that starts it", "the thread itself"])
@pytest.mark.parametrize("begun_by", ["the main thread", "another one"])
def test_a_thread_that_dies_without_a_word_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, dies: str, begun_by: str
) -> None:
    """Without memory a thread was made, and died in its first instruction. Whoever had begun it
    waited for its word for ever: `store.run` never returned. Then only the main thread was heeded:
    the heartbeat began the housekeeper, under the store's lock, and no commit was made any more."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    monkeypatch.setattr(threads, "BIRTH_MAX_S", 0.5)
    thread = threading.Thread(target=lambda: None)
    if dies == "the thread itself":
        monkeypatch.setattr(thread, "_bootstrap", no_memory)
    else:
        monkeypatch.setattr(threads._Start, "_make_there", no_memory)
    with pytest.raises(StoreUnavailable, match="no sign of life"):
        if begun_by == "the main thread":
            threads.begin(thread)
        else:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(threads.begin, thread).result()


def test_a_thread_that_comes_to_life_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LOOK_S", 0.001)
    for _ in range(100):
        done = threading.Event()
        threads.begin(threading.Thread(target=done.set)).join()
        assert done.is_set()
