"""What code of the caller's may raise, where it is called synchronously."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from perdure.errors import PerdureError


def of_code() -> tuple[type[Exception], ...]:
    """For ``except of_code()``: `Exception`, and asyncio's `CancelledError`, which is none. Nobody
    can send one into a call that awaits nothing: the code that was called raised it."""
    # Not imported for those who do without: who raises one has loaded it.
    asyncio: Any = sys.modules.get("asyncio.exceptions")
    return (Exception,) if asyncio is None else (Exception, asyncio.CancelledError)


def check_own(error: BaseException, call: Callable[[], object]) -> None:
    """Where what a call raised is an answer (it cannot be read, compared, rebuilt): see that it is
    the call's own, and came from nowhere else, between two instructions. It is made once more,
    which shows that.

    Raises:
        Exception: that error, where it is none of the call's; or a MemoryError, of which nobody
            knows. What was to be answered is not known.
    """
    if isinstance(error, PerdureError):
        return  # our own word
    try:
        if isinstance(error, MemoryError):
            raise error
        try:
            call()
        except MemoryError:
            raise
        except Exception:
            return
        except BaseException as again:
            if type(again) is type(error):
                return
            raise
        raise error
    finally:
        del error  # or it would hold itself
