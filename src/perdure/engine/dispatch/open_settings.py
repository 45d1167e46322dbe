"""The settings with which a store is opened, checked before anything is."""

from __future__ import annotations

from datetime import timedelta

from perdure.core.arguments import exact_types
from perdure.core.arguments.checks import seconds
from perdure.core.arguments.exact_types import is_a
from perdure.core.arguments.names import shown
from perdure.state.checkpoint_policy import CheckpointPolicy
from perdure.state.guards import check_guards
from perdure.state.snapshot_policy import SnapshotPolicy
from perdure.storage.group_policy import GroupPolicy


def check_settings(
    snapshots: object,
    checkpoints: object,
    lease_ttl: object,
    group: object = None,
    guards: object = None,
) -> timedelta:
    """Refuses settings that would only fail later, at some commit. Returns `lease_ttl`."""
    check_guards(guards)
    if snapshots is not None and not is_a(snapshots, SnapshotPolicy):
        raise TypeError(f"snapshots= must be a perdure.SnapshotPolicy, not {shown(snapshots)}")
    if checkpoints is not None and not is_a(checkpoints, CheckpointPolicy):
        named = shown(checkpoints)
        raise TypeError(f"checkpoints= must be a perdure.CheckpointPolicy, not {named}")
    if group is not None and not is_a(group, GroupPolicy):
        raise TypeError(f"group= must be a perdure.GroupPolicy, not {shown(group)}")
    if not is_a(lease_ttl, timedelta):
        raise TypeError(f"lease_ttl= must be a timedelta, not {shown(lease_ttl)}")
    if seconds(lease_ttl, "lease_ttl=") <= 0:
        raise ValueError(f"lease_ttl= must be longer than zero, not {shown(lease_ttl)}")
    return exact_types.span(lease_ttl)
