"""Exceptions that end a block of `edit` before its end is heard of, in a function that goes on.

A function that is left shows by that that its blocks are over. A loop that catches Ctrl-C, or a
cell of a notebook, does not: its frame goes on, and one block looks like another.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Any

import pytest

import perdure
from perdure.errors import Conflict
from perdure.system.locks import End, Span, ends_block, is_over, span_of
from tests.faults.checking import State
from tests.faults.injecting import KINDS, Helper, Injector, is_from


class AtBegin(Injector):
    """Raises where the n-th function of ours begins: before its first line."""

    def __init__(self, number: int, kinds: Sequence[Callable[[], BaseException]]) -> None:
        self.kind = kinds[number % len(kinds)]
        super().__init__(number, self.kind)

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        if self._ours(frame.f_code):
            self._before(frame)
        return None


@contextmanager
def beginnings(
    kinds: Sequence[Callable[[], BaseException]] = KINDS,
) -> Iterator[Iterator[AtBegin]]:
    """One after the other, while the one before has raised."""
    shows = sys.unraisablehook
    sys.unraisablehook = lambda _: None  # where a weak reference ends an exception goes nowhere
    try:
        yield _until_past_the_end(kinds)
    finally:
        sys.unraisablehook = shows


def _until_past_the_end(kinds: Sequence[Callable[[], BaseException]]) -> Iterator[AtBegin]:
    for number in itertools.count(1):
        injector = AtBegin(number, kinds)
        yield injector
        if injector.raised is None:
            return


def test_i8_a_loop_that_catches_ctrl_c_keeps_its_handle() -> None:
    """Ctrl-C came where `with agent.edit()` ended, before the first line of `__exit__`, in a loop
    that caught it. From then on the handle was "inside an open edit" for as long as the loop's
    function went on, though no block was open; other threads could not edit with it either."""
    store, helper, met = perdure.open("memory://"), Helper(), set()
    with beginnings() as injectors:
        for number, injector in enumerate(injectors):
            agent = store.agent(f"a-{number}", State, initial=State())
            agent.update(grow)
            try:
                with injector, agent.edit("more") as draft:
                    grow(draft)
            except BaseException as error:
                if not is_from(error, injector.raised):
                    raise
            met.add(injector.where.split(" ")[-1])
            # The function goes on, with the same handle, and so does another thread.
            agent.refresh()
            with agent.edit("behind it") as draft:
                grow(draft)
            before = agent.state.n
            helper.call(partial(agent.update, grow))
            agent.refresh()
            assert agent.state.n == before + 1
            assert agent.state.items == [f"item {n}" for n in range(1, agent.state.n + 1)]
            agent.verify()
    assert {"Edit.__enter__", "Edit.__exit__", "Block.ending", "drive"} <= met


def test_i8_a_coroutine_that_goes_on_keeps_its_handle() -> None:
    """The same where an `async with` block ended: its task was inside an open edit for good, and
    other tasks waited for their turn in vain."""

    async def go_through(injectors: Iterator[AtBegin]) -> set[str]:
        met = set()
        async with perdure.open_async("memory://") as store:
            for number, injector in enumerate(injectors):
                agent = await store.agent(f"a-{number}", State, initial=State())
                await once(agent, injector)
                met.add(injector.where.split(" ")[-1])
        return met

    async def once(agent: perdure.AsyncAgent[State], injector: AtBegin) -> None:
        await agent.update(grow)
        try:
            async with agent.edit("more") as draft:
                grow(draft)
                injector.__enter__()  # where it begins, other callbacks of the loop are met
        except Exception as error:
            if not is_from(error, injector.raised):
                raise
        finally:
            injector.__exit__()
        async with asyncio.timeout(20):
            await agent.refresh()
            async with agent.edit("behind it") as draft:
                grow(draft)
            await asyncio.create_task(agent.update(grow))
        assert agent.state.items == [f"item {n}" for n in range(1, agent.state.n + 1)]
        await agent.verify()

    inside = [kind for kind in KINDS if isinstance(kind(), Exception)]  # all else ends the loop
    with beginnings(inside) as injectors:
        assert {"AsyncEdit.__aexit__", "Block.ending"} <= asyncio.run(go_through(injectors))


def grow(draft: State) -> None:
    draft.n += 1
    draft.items.append(f"item {draft.n}")


@perdure.step
def look() -> int:
    return 1


around: list[Injector] = []
through: set[str] = set()


@perdure.agent(dict)
def catching(run: perdure.Run[dict[str, Any]], then: str) -> str:
    try:
        with around[-1], run.edit("one") as draft:
            draft["n"] = 1
            through.add(run.agent)
    except BaseException as error:
        if not is_from(error, around[-1].raised):
            raise
    if then == "step":
        look()
    if then == "edit":
        with run.edit("two") as draft:
            draft["m"] = 1
    return "done"


@pytest.mark.parametrize("then", ["step", "edit", "return"])
def test_i5_a_run_whose_edit_ended_unheard_does_not_go_on(then: str) -> None:
    """Ctrl-C came where the block of `run.edit` ended, and the run's function caught it. It went on
    inside an edit that was no more: its next call was refused, and the run ended as failed; or it
    ended as done, without what the edit had changed."""
    store, met = perdure.open("memory://"), set()
    with beginnings() as injectors:
        for number, injector in enumerate(injectors):
            around.append(injector)
            agent, ended = f"r-{number}", True
            try:
                assert store.run(catching, agent, then) == "done"
            except BaseException as error:
                if not is_from(error, injector.raised) and "was interrupted" not in str(error):
                    raise
                ended = False
            met.add(injector.where.split(" ")[-1])
            around.append(Injector())
            assert store.run(catching, agent, then) == "done"
            state = store.agent(agent, dict).state
            # Where it came before the block's end, the function was free to do without an edit.
            assert state.get("n") == 1 or (ended and agent not in through), injector.where
            store.agent(agent, dict).verify()
    assert {"RunEdit.__enter__", "RunEdit.__exit__", "Edits.close"} <= met


# -- spans ---------------------------------------------------------------------------------------


class Block:
    _end: End | None = None

    def __enter__(self) -> Span | None:
        return span_of(self, sys._getframe(1))

    @ends_block
    def __exit__(self, *error: object) -> None:
        pass


def test_a_span_lasts_as_long_as_its_block() -> None:
    block = Block()
    with block as outer:
        assert outer is not None
        assert not is_over(outer)
        with block as inner:
            assert inner is not None
            assert not is_over(inner)
            assert not is_over(outer)
        assert is_over(inner)
        assert not is_over(outer)
    assert is_over(outer)


def test_a_span_ends_where_its_block_is_left_by_an_exception() -> None:
    def leave() -> Generator[Span | None, None, None]:
        with Block() as span:
            yield span

    generator = leave()
    span = next(generator)
    assert span is not None
    assert not is_over(span)
    with pytest.raises(LookupError):
        generator.throw(LookupError)
    assert is_over(span)


def test_who_enters_by_hand_has_no_span() -> None:
    block = Block()
    assert hasattr(block, "__exit__")  # as some look before they enter: that ended at once
    assert block.__enter__() is None
    with ExitStack() as stack:
        assert stack.enter_context(block) is None


def test_an_edit_inside_of_an_open_one_is_refused() -> None:
    agent = perdure.open("memory://").agent("a", State, initial=State())
    with agent.edit("one") as draft:
        grow(draft)
        with pytest.raises(Conflict, match="not inside an open edit"), agent.edit("two"):
            pass
        with pytest.raises(Conflict, match="not inside an open edit"):
            agent.refresh()
    assert agent.state.n == 1
