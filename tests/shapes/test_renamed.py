"""A field of a class within a shape has another name in the log: it is found wherever it stands."""

from __future__ import annotations

from collections import Counter

import pytest

import perdure
from tests.shapes.renamed import run_seed


@pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning")  # pydantic's
def test_renamed_fields_are_found_in_each_shape() -> None:
    """A renamed field was read as its default, and the next write stored that."""
    with perdure.open("memory://") as store:
        counts = Counter(run_seed(store, seed) for seed in range(300))
    assert counts["found"] > 60, counts
    assert counts["kept"] > 20, counts
