"""A share of what `make crash` does whole: the power of a PostgreSQL server's machine goes, and
what was acknowledged is there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.powerloss.lossy.folder import obstacle
from tests.powerloss.postgres.cuts import CONTROLS, SPARED, cut

SEED = "7"
CONTROL_CUTS = 12
"""In which a control has to be found out."""


@pytest.fixture
def base() -> Iterator[Path]:
    """Whoever runs the server may come in, other than into a test's usual folder."""
    if why := obstacle():
        pytest.skip(why)
    made = Path(tempfile.mkdtemp(prefix="perdure-powerloss-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_i1_i2_what_was_acknowledged_survives_a_power_loss_of_the_server(base: Path) -> None:
    """One whose other users may lose their last commits: each of ours asks for more by itself."""
    outcome = cut(base, SEED, 3, SPARED["synchronous_commit=off"])
    assert outcome.violations == []
    assert outcome.cuts >= 3
    assert min(outcome.edits, outcome.signals, outcome.runs, outcome.lost_pages) > 0, str(outcome)


@pytest.mark.parametrize("control", ["fsync=off", "durability=os"])
def test_a_server_that_syncs_too_little_is_found_out(base: Path, control: str) -> None:
    """A harness that finds nothing may be blind."""
    outcome = cut(base, SEED, CONTROL_CUTS, CONTROLS[control])
    assert outcome.violations, str(outcome)
    assert "clients ended" not in outcome.violations[0]  # that would be another thing
