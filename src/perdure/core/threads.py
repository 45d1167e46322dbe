"""Threads that the library makes for itself, and what it says where the system gives it none."""

from __future__ import annotations

import threading

from perdure.errors import StoreUnavailable


def begin(thread: threading.Thread) -> threading.Thread:
    """Start a thread.

    Raises:
        StoreUnavailable: the system gives this process no more of them.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise no_thread(error) from error
    except KeyError as error:
        # Of Python's own books, where what came in between is seen to, and the thread is there.
        if error.__context__ is None:
            raise
        raise error.__context__ from None
    return thread


def no_thread(error: RuntimeError) -> Exception:
    """What to raise for a thread that did not start."""
    if type(error) is not RuntimeError:
        return error  # e.g. no stack is left
    return StoreUnavailable(
        f"no thread could be started ({error})",
        hint="this process, or this user, has too many: end some, or raise the limit (`ulimit -u`)",
    )
