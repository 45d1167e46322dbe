"""The toolkit of examples/toolkit.py does what its page says."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from examples import toolkit


class KilledError(BaseException):
    """kill -9"""


def test_a_refund_in_doubt_is_looked_for_and_nothing_is_asked_twice(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def die(seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        if threading.current_thread().name == "watchdog":  # of a library, left by another test
            return sleep(seconds)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(time, "sleep", die)
        with pytest.raises(KilledError):
            asyncio.run(toolkit.main())
    for _ in range(2):
        asyncio.run(toolkit.main())
    assert capsys.readouterr().out.splitlines() == [
        "the model is asked, after 0 calls",
        "looking up 7",
        "the model is asked, after 1 calls",
        "refunding 7",
        "the model is asked, after 2 calls",
        "Your money is back.",
        "Your money is back.",
    ]
    assert [path.read_text() for path in (tmp_path / "bank").iterdir()] == ["4200"]
