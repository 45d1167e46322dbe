"""Tests that look at how LangGraph's own savers are made, each with the reason.

Nobody else's saver passes them. A test that is not here has to pass with ours, or to fail with
theirs, too.
"""

from __future__ import annotations

INTERNALS: dict[str, str] = {
    "test_delta_channel_snapshot_version_based": (
        "reads `InMemorySaver.blobs`, the dict in which that saver keeps values by version"
    ),
    "test_checkpoint_errors": (
        "gives a serializer that fails for every value, and wants it to be called for plain text; "
        "ours keeps plain data by itself and asks a serializer about other values only"
    ),
    "test_counter_reset_after_supersteps_snapshot": (
        "wants a snapshot of a channel to show in later checkpoints, too, as it does where values "
        "are kept by version (`InMemorySaver`, `PostgresSaver`); `SqliteSaver` fails it, as we do"
    ),
}


def reason(nodeid: str) -> str | None:
    """Why a test needs not to pass; None: it has to."""
    name = nodeid.rpartition("::")[2].partition("[")[0]
    return INTERNALS.get(name)
