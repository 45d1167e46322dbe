"""The garbage collector rests while a large value is built, and never longer."""

from __future__ import annotations

import gc

import pytest

from perdure.integrations.langgraph import PerdureSaver
from perdure.integrations.langgraph.gc_pause import Calm, _go_on_in_child
from tests.integrations.langgraph.checkpoints import get, put


def test_it_goes_on_after_a_read_and_after_an_error(saver: PerdureSaver) -> None:
    put(saver, {"n": 1})
    get(saver)
    assert gc.isenabled()
    with pytest.raises(ValueError, match="no"), Calm():
        assert not gc.isenabled()
        raise ValueError("no")
    assert gc.isenabled()


def test_reads_that_overlap_do_not_prolong_each_other() -> None:
    first, second = Calm(), Calm()
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert gc.isenabled()
    second.__exit__()
    assert gc.isenabled()


def test_one_that_the_program_switched_off_stays_off() -> None:
    gc.disable()
    try:
        with Calm():
            pass
        assert not gc.isenabled()
        _go_on_in_child()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_child_forked_meanwhile_by_another_thread_has_it_on() -> None:
    with Calm():
        _go_on_in_child()
        assert gc.isenabled()
