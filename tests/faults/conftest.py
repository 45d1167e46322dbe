"""What injected exceptions leave to be told is told here, and not in the middle of another test."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_is_left_to_tell() -> Iterator[None]:
    """Tasks that an exception ended are told of when they are freed, with a traceback, for which
    Python 3.11 takes source apart. In the middle of a test that was doing so, too, CPython met
    itself: "AST constructor recursion depth mismatch"."""
    yield
    logger, shows = logging.getLogger("asyncio"), sys.unraisablehook
    disabled, logger.disabled = logger.disabled, True
    sys.unraisablehook = lambda _: None
    try:
        gc.collect()
    finally:
        logger.disabled, sys.unraisablehook = disabled, shows
