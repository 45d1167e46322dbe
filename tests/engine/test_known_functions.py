"""What is known of a function is worked out once, and is its own."""

from __future__ import annotations

import functools
import gc
import weakref

from perdure.engine.functions.decorators import recorded_as
from perdure.engine.journal.values import is_async


def test_a_wrapper_is_not_taken_for_what_it_wraps():
    """`functools.wraps` copies the attributes of the wrapped function, among them what was known
    of it: the wrapper would have been left out of the call."""

    def inner() -> int:
        return 1

    assert recorded_as(inner).function is inner

    @functools.wraps(inner)
    def outer() -> int:
        return inner() + 1

    assert recorded_as(outer).function is outer
    assert recorded_as(outer) is recorded_as(outer)


def test_a_coroutine_function_in_the_clothes_of_another_is_async():
    def plain() -> None: ...

    assert not is_async(plain)

    @functools.wraps(plain)
    async def soon() -> None: ...

    assert is_async(soon)


def test_what_is_known_of_a_function_does_not_keep_it():
    """A table of functions kept what their closures hold: stores that were never closed, with
    their threads."""

    class Held: ...

    def look() -> weakref.ref[Held]:
        held = Held()

        def closure() -> object:
            return held

        recorded_as(closure)
        is_async(closure)
        return weakref.ref(held)

    gone = look()
    gc.collect()
    assert gone() is None
