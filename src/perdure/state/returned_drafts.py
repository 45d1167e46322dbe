"""Checks of what a function that changes a draft returns: an edit whose function returns a new
state would be lost silently."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from perdure.core.arguments.unrun_code import has_not_run
from perdure.state.edit_block import Block


def refuse_awaitable(result: object, fn: Callable[..., object], agent: str) -> None:
    """Raises TypeError for a coroutine that nobody awaits: it does nothing."""
    if not inspect.isawaitable(result):
        refuse_generator(result, fn, agent)
        return
    has_not_run(result)
    raise TypeError(
        f"agent {agent!r}: {_name_of(fn)} is async, but update calls plain functions; make it one, "
        "or open the store by perdure.open_async, whose agents take both"
    )


def refuse_generator(result: object, fn: Callable[..., object], agent: str) -> None:
    """Raises TypeError for a generator: its code has not run."""
    if has_not_run(result):
        raise TypeError(
            f"agent {agent!r}: {_name_of(fn)} is a generator, and none of its code runs: update "
            "calls a function once; leave the `yield` out"
        )


def refuse_new_state(
    result: object, fn: Callable[..., object], block: Block[Any], agent: str
) -> None:
    """Raises TypeError for a returned state other than the draft, if the draft was not changed:
    reducers of other libraries return the next state."""
    if not block.untouched or not _is_next(result, block.state):
        return
    raise TypeError(
        f"agent {agent!r}: {_name_of(fn)} returned a {type(result).__name__}, and left the draft, "
        "which is what update commits, as it is; change that in place, as by `draft['x'] = 1` or "
        "`draft.x = 1`, or hand a whole state to agent.save(…)"
    )


def _is_next(result: Any, state: Any) -> bool:
    """True if it looks like the next state. A dict counts only if it has all of the state's keys
    and differs from it: functions return other dicts, as `draft.pop("cart", {})` does."""
    if type(result) is not type(state):
        return False
    if type(state) is not dict:
        return True
    return bool(state) and state.keys() <= result.keys() and result != state


def _name_of(fn: Callable[..., object]) -> str:
    return str(getattr(fn, "__qualname__", repr(fn)))
