"""The last items of a list in a branch's state, for a reader that needs no more of it."""

from __future__ import annotations

from typing import Any

from perdure.core.values.plain_values import Plain
from perdure.state.branch_state import BranchState
from perdure.storage.log.list_end import EndReader


def end_of(working: BranchState[Any], key: str, count: int) -> list[Plain] | None:
    """Returns the last `count` items (all if there are fewer) of the list at `key` of the state
    that the log has now. Nothing of it stays in memory.

    Returns None if only the whole state can tell, or say why not; also where the log has a state of
    another version of the schema.
    """
    reader = working.reader_if_created()
    found = EndReader(reader, key, count).end(working.branch) if reader is not None else None
    if found is None:
        return None
    own = (working.schema.id, working.schema.version)
    return found.items if (found.schema_id, found.schema_version) == own else None
