"""The data of a checkpoint beside its state: one record of its commit, small, as each step has one.

Under ``"t": "lg"``; usual values are left out:

- ``p``: the seq of its parent; its id, if that is not in this log; absent: it has none;
- ``a``: its time, in microseconds since 1970 if these restore it; else as given;
- ``v``: LangGraph's version of the format; absent: 4;
- ``u``: the updated channels; True: those whose versions the delta sets, and whose values it does
  not delete, by name;
- ``m``: the metadata; a list: source, step, and a map of others, where ``parents`` is empty;
- ``l``: the number of checkpoints of the namespace that came after one with a greater id; absent:
0;
- ``r``: a map of everything else that the checkpoint has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.core.values.ops import Delete, Op, Set
from perdure.core.values.plain_values import Plain
from perdure.errors import Corrupt
from perdure.integrations.langgraph.threads.state_changes import VALUES, VERSIONS
from perdure.model import Commit

CHECKPOINT = "lg"
USUAL_V = 4
_PARENTS = (int, str, type(None))


def pack(
    rest: dict[str, Plain],
    metadata: Plain,
    parent: int | str | None,
    late: int,
    delta: Sequence[Op],
) -> dict[str, Plain]:
    """Returns the record.

    Args:
        rest: the parts of the checkpoint that are not in its state.
        delta: the delta of its commit.
    """
    left = dict(rest)
    record: dict[str, Plain] = {"t": CHECKPOINT}
    if parent is not None:
        record["p"] = parent
    record["a"] = left.pop("ts", None)
    v = left.pop("v", USUAL_V)
    if type(v) is not int or v != USUAL_V:
        record["v"] = v
    if type(left.get("updated_channels", 0)) in (list, type(None)):
        updated = left.pop("updated_channels")
        record["u"] = True if updated == _updated(delta) else updated
    record["m"] = _pack_metadata(metadata)
    if late:
        record["l"] = late
    if left:
        record["r"] = left
    return record


def record_of(commit: Commit) -> dict[str, Any]:
    """The record in the commit that put a checkpoint, unpacked: ``parent``, ``rest``, ``metadata``,
    ``late``. Empty, if it put none."""
    for record in commit.records:
        if record.get("t") == CHECKPOINT:
            try:
                return _unpack(record, commit.delta)
            except (LookupError, TypeError, ValueError) as error:
                raise malformed(commit) from error
    return {}


def parent_in(commit: Commit) -> int | str | None:
    """The parent of the checkpoint that a commit put, as its record has it."""
    for record in commit.records:
        if record.get("t") == CHECKPOINT:
            parent = record.get("p")
            if type(parent) in _PARENTS:
                return parent
    raise malformed(commit)


def malformed(commit: Commit) -> Corrupt:
    """Returns the error for records that this saver did not write, though their commit verifies:
    they were forged."""
    return Corrupt(
        "its record of a thread is malformed",
        target=f"agent {commit.agent!r}, commit {commit.seq}",
        hint="it was not written by PerdureSaver; delete the thread, or take it from its source",
    )


def _unpack(record: Mapping[str, Plain], delta: Sequence[Op]) -> dict[str, Any]:
    rest = {"v": record.get("v", USUAL_V), "ts": record["a"], **record.get("r", {})}
    if "u" in record:
        rest["updated_channels"] = _updated(delta) if record["u"] is True else record["u"]
    parent, late = record.get("p"), record.get("l", 0)
    metadata = _unpack_metadata(record["m"])
    if type(late) is not int or type(parent) not in _PARENTS or type(metadata) is not dict:
        raise TypeError("a field is of another type")
    return {"parent": parent, "late": late, "rest": rest, "metadata": metadata}


def _updated(delta: Sequence[Op]) -> list[Plain]:
    """The channels that a step wrote to, as far as its delta tells."""
    bumped: list[Any] = []
    gone: set[Any] = set()
    for op in delta:
        path = op.path
        if len(path) == 2:
            if path[0] == VERSIONS and type(op) is Set:
                bumped.append(path[1])
            elif path[0] == VALUES and type(op) is Delete:
                gone.add(path[1])
    return sorted([name for name in bumped if type(name) is str and name not in gone])


def _pack_metadata(metadata: Plain) -> Plain:
    if "source" in metadata and "step" in metadata and metadata.get("parents") == {}:
        others = dict(metadata)
        del others["parents"]
        packed = [others.pop("source"), others.pop("step")]
        return [*packed, others] if others else packed
    return metadata


def _unpack_metadata(packed: Plain) -> Plain:
    if type(packed) is not list:
        return packed
    source, step, *more = packed
    return {"source": source, "step": step, "parents": {}, **(more[0] if more else {})}
