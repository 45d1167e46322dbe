"""Families of runs as chance makes them; see `families`."""

from __future__ import annotations

import logging

import pytest

import perdure
from tests.engine.families import Family


@pytest.mark.parametrize("seed", range(16))
def test_i8_all_of_a_family_come_to_their_end(seed: int) -> None:
    """A retried parent waited for ever for its retried child: the second end of a child was told
    to nobody. No test had ever set back both."""
    logging.getLogger("perdure").setLevel(logging.CRITICAL)  # of the bugs that there are in there
    try:
        with perdure.open("memory://") as store:
            Family(store, seed).live()
    finally:
        logging.getLogger("perdure").setLevel(logging.NOTSET)
