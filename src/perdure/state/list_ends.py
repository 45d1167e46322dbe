"""The last items of a list in a branch's state, for who needs no more of it."""

from __future__ import annotations

from typing import Any

from perdure.core.values.plain_values import Plain
from perdure.state.working_copy import WorkingCopy
from perdure.storage.log.list_end import EndReader


def end_of(working: WorkingCopy[Any], key: str, count: int) -> list[Plain] | None:
    """The last `count` items, or all where there are fewer, of the list at `key` of the state as
    the log has it now. Nothing of it stays in memory.

    None: only the whole state can tell, or says why not; also where the log has a state of another
    version of the schema.
    """
    reader = working.reader_if_created()
    found = EndReader(reader, key, count).end(working.branch) if reader is not None else None
    if found is None:
        return None
    own = (working.schema.id, working.schema.version)
    return found.items if (found.schema_id, found.schema_version) == own else None
