"""What code of the caller's may raise, where it is called synchronously."""

from __future__ import annotations

import sys
from typing import Any


def of_code() -> tuple[type[Exception], ...]:
    """For ``except of_code()``: `Exception`, and asyncio's `CancelledError`, which is none. Nobody
    can send one into a call that awaits nothing: the code that was called raised it."""
    # Not imported for those who do without: who raises one has loaded it.
    asyncio: Any = sys.modules.get("asyncio.exceptions")
    return (Exception,) if asyncio is None else (Exception, asyncio.CancelledError)
