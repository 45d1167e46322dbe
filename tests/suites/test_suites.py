"""The pinned suites of LangGraph and LangChain, as released, on SQLite; `make compat` runs more."""

import pytest

from tests.suites.releases import SUITES, pinned
from tests.suites.running import Runner


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.package)
def test_what_passes_with_their_savers_passes_with_ours(suite):
    """Of LangGraph's own tests 84 of 1,982 failed: texts and classes were refused that its savers
    keep."""
    found = Runner(pinned(), pinned=True, workers=0).judge(suite, "sqlite", slow=False)
    assert not found.ours, found.line() + "\n" + "\n".join(map(": ".join, found.ours.items()))
