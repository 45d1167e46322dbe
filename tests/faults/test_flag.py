"""The mark that one thread sets and others wait for, and what comes in between."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from perdure.system import flag as flags
from perdure.system.flag import Flag
from tests.faults.injecting import KINDS, Helper, count, inject


def _used(flag: Flag) -> Callable[[], None]:
    def use() -> None:
        flag.wait(0.0)
        flag.set()
        flag.wait()
        flag.clear()
        flag.wait(0.0)

    return use


def test_a_flag_is_set_and_waited_for_whatever_came_in_between() -> None:
    """Of `threading.Event`, a lock was left taken. Whoever set it, or waited for it, did so for
    ever."""
    helper = Helper()
    for at in range(1, count(_used(Flag())) + 1):
        flag = Flag()
        inject(_used(flag), at, KINDS[at % len(KINDS)])
        helper.call(flag.set, 20.0)
        assert flag.is_set() and flag.wait()
        flag.clear()
        assert not flag.wait(0.0)
        waiting = [threading.Thread(target=flag.wait, daemon=True) for _ in range(3)]
        for thread in waiting:
            thread.start()
        flag.set()
        for thread in waiting:
            thread.join(20)
            assert not thread.is_alive(), at


def test_a_signals_handler_may_set_what_its_own_thread_waits_for() -> None:
    """`perdure replicate --follow` was told to end while it began to wait: the handler waited for
    the lock that its own thread had, and the command had to be killed."""

    def interrupted(flag: Flag, at: int) -> int:
        """Look at a flag that is set before the `at`-th instruction of that; how many came."""
        number = 0

        def step(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal number
            if event == "opcode":
                number += 1
                if number == at:
                    flag.set()
            return step

        def call(frame: FrameType, event: str, argument: object) -> Any:
            if frame.f_code.co_filename != flags.__file__:
                return None
            frame.f_trace_opcodes = True
            return step

        sys.settrace(call)
        try:
            flag.wait(0.0)
        finally:
            sys.settrace(None)
        return number

    helper = Helper()
    for at in range(1, interrupted(Flag(), 0) + 1):
        flag = Flag()
        helper.call(partial(interrupted, flag, at), 20.0)
        assert flag.is_set()
        helper.call(flag.wait, 20.0)
