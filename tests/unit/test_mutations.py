"""The table of mutations says what to change in the code as it is: five of its entries matched
nothing any more, and nobody had heard of it."""

from __future__ import annotations

import pytest

from tests.mutations.table import MUTATIONS, Mutation
from tests.source_tree import ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_a_mutation_changes_is_there_once(mutation: Mutation) -> None:
    assert (ROOT / mutation.path).read_text("utf-8").count(mutation.before) == 1
    assert (ROOT / mutation.tests[0]).exists()
