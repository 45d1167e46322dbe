"""Checkpoints: named recovery points with integrity guards, and the guards that fail at
rehydration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from perdure.core.format import records
from perdure.core.schema.schema import Schema
from perdure.core.values.plain_values import Plain
from perdure.core.values.state_hash import state_hash
from perdure.errors import Corrupt
from perdure.model import Checkpoint, Commit
from perdure.public_data import PublicData
from perdure.state.branch_state import BranchState
from perdure.state.installed_versions import config_hash as config_hash
from perdure.state.installed_versions import installed as installed
from perdure.state.installed_versions import versions as versions
from perdure.storage.log.proposals import HERE


class Mismatch(PublicData, Struct, frozen=True):
    """One guard of a checkpoint that does not hold now."""

    what: str
    recorded: str | None
    found: str | None

    def __str__(self) -> str:
        return f"{self.what}: recorded {self.recorded}, found {self.found}"


def recorded(record: records.CheckpointRecord, commit: Commit) -> Checkpoint:
    """Returns the checkpoint that a commit's record ``checkpoint`` describes."""
    return Checkpoint(
        record.name,
        record.seq or commit.seq,
        record.state,
        commit.schema_id,
        commit.schema_version,
        record.config,
        dict(record.dependencies or {}),
        record.run,
        record.position,
    )


def current_point(
    working: BranchState[Any],
    name: str,
    config: str | None,
    dependencies: Iterable[str],
    run: str | None,
    position: str | None,
) -> Checkpoint:
    """Returns a checkpoint of the state in memory, as which the next commit is to be named; the
    whole state is validated.

    Raises:
        SchemaError: it does not fit its schema. NotFound: a distribution is not installed.
    """
    _, version = working.schema_to_write
    working.schema.build_stored(working.plain, working.name, working.seq, version)
    return Checkpoint(
        name,
        HERE,
        state_hash(working.stored_form()),
        *working.schema_to_write,
        config,
        versions(dependencies),
        run,
        position,
    )


def record_of(point: Checkpoint) -> records.CheckpointRecord:
    """Returns the record of a checkpoint that names the commit which has that record."""
    return records.CheckpointRecord(
        name=point.name,
        state=point.state_hash,
        config=point.config_hash,
        dependencies=dict(point.dependencies),
        run=point.run,
        position=point.position,
    )


def check_state(checkpoint: Checkpoint, state: Plain, target: str) -> None:
    """Raises Corrupt if a checkpoint's state is not the one that was recorded (I11)."""
    found = state_hash(state)
    if found != checkpoint.state_hash:
        raise Corrupt(
            f"its state hashes to {found}, but the checkpoint recorded {checkpoint.state_hash}",
            target=target,
            hint="run `perdure verify`; go back to another checkpoint or to a copy",
        )


def compare(
    checkpoint: Checkpoint, schema: Schema[Any], *, config: Mapping[str, Any] | None
) -> list[Mismatch]:
    """Returns the differences between a checkpoint's surroundings and the current ones."""
    own, writes = schema.version, schema.writes
    if writes is not None and checkpoint.schema_version[0] == writes[0]:
        own = checkpoint.schema_version  # which the program writes, too
    pairs: list[tuple[str, str | None, str | None]] = [
        ("schema", checkpoint.schema_id, schema.id),
        ("schema version", _dotted(checkpoint.schema_version), _dotted(own)),
    ]
    if config is not None or checkpoint.config_hash is not None:
        pairs.append(("configuration", checkpoint.config_hash, config_hash(config)))
    for name, version in checkpoint.dependencies.items():
        pairs.append((f"version of {name}", version, installed(name)))
    return [Mismatch(*pair) for pair in pairs if pair[1] != pair[2]]


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
