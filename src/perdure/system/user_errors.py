"""The exceptions of a caller's code that is called synchronously."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from perdure.errors import PerdureError
from perdure.system.late_imports import is_short


def of_code() -> tuple[type[Exception], ...]:
    """Returns the classes for ``except of_code()``: `Exception`, and asyncio's `CancelledError`,
    which is not one. Nobody can send a cancellation into a call that awaits nothing: the called
    code raised it."""
    # asyncio is not imported here: code that raises its error has loaded it.
    asyncio: Any = sys.modules.get("asyncio.exceptions")
    return (Exception,) if asyncio is None else (Exception, asyncio.CancelledError)


def check_own(error: BaseException, call: Callable[[], object]) -> None:
    """Checks that an error, which will be taken for an answer (it cannot be read, compared,
    rebuilt), is the call's own and did not come in between two instructions. The call is repeated
    to show that.

    Raises:
        Exception: the given error if it is not the call's; or that memory or descriptors are
            missing, whose origin is unknown. The answer is unknown then.
    """
    if isinstance(error, PerdureError):
        return  # our own word
    try:
        if is_short(error):
            raise error
        try:
            call()
        except Exception as again:
            if is_short(again):
                raise
            return
        except BaseException as again:
            if type(again) is type(error):
                return
            raise
        raise error
    finally:
        del error  # or it would hold itself
