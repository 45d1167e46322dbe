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
    # -- of langgraph-checkpoint-sqlite
    **dict.fromkeys(
        (
            "test_walk_step_looks_up_the_parent_by_primary_key",
            "test_setup_migrates_legacy_writes_table_repeatably",
            "test_put_writes_persists_task_path",
            "test_async_setup_migrates_legacy_writes_table_repeatably",
            "test_setup_does_not_wait_on_another_writer",
            "test_async_setup_does_not_wait_on_another_writer",
            "test_read_only_legacy_database_still_reads_delta_history",
            "test_async_read_only_legacy_database_still_reads_delta_history",
        ),
        "reads and alters the tables of `SqliteSaver` over its connection",
    ),
    "test_nonnull_migrations": "reads `SqliteStore.MIGRATIONS`, the SQL of its tables",
    "test_ttl_override_default": (
        "wants a read not to put an expiry off where `refresh_on_read` is not given; `TTLConfig` "
        "says that it does then, and in `PostgresStore` and ours it does"
    ),
    **dict.fromkeys(
        ("test_sql_injection_vulnerability", "test_checkpoint_search_sql_injection_prevention"),
        "wants names in filters to be refused that could be SQL; ours put no name into SQL",
    ),
    **dict.fromkeys(
        ("test_informative_async_errors", "test_no_running_loop"),
        "wants a saver to be sync or async, and an error from the other half; ours is both",
    ),
}


def reason(nodeid: str) -> str | None:
    """Why a test needs not to pass; None: it has to."""
    name = nodeid.rpartition("::")[2].partition("[")[0]
    return INTERNALS.get(name)
