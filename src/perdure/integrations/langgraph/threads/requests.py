"""The requests to a thread, and the place and form in which they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from perdure.adapters import Held
from perdure.core.values.plain_values import Plain
from perdure.integrations.langgraph.threads.log_view import Tip, View
from perdure.integrations.langgraph.threads.state_changes import Sources
from perdure.integrations.langgraph.values import thread_names


class Extra(Struct):
    """The data of a checkpoint beside its state; see `record`. `parent`: the id of its parent."""

    rest: Plain
    metadata: Plain
    parent: str | None


class ThreadLine(Struct):
    """The state at the end of one branch, and the objects that it came from or was given out as."""

    held: Held
    sources: Sources
    put: Extra | None = None
    """The content of its checkpoint, if this process put it."""


class Put(Struct):
    """A checkpoint that wants in. `parent`: the id of the checkpoint that it follows."""

    namespace: str
    id: str
    parent: str | None
    checkpoint: Mapping[str, Any]
    metadata: Plain
    rest: Plain


class Found(Struct):
    """The place where a checkpoint was found."""

    view: View
    seq: int
    id: str
    tip: Tip | None = None


class Slot(Struct):
    """The place where a checkpoint is put. `base` None: behind nothing, in place of the content at
    `after`."""

    branch: str
    new: bool
    base: ThreadLine | None
    after: int = 0
    late: int = 0
    parent: int = 0
    """Seq of the parent checkpoint, where it is in this log."""


def made_after(checkpoint_id: str, moment: float) -> bool:
    """Returns True if an id, in LangGraph's form, was made after a moment."""
    made = thread_names.made_at(checkpoint_id)
    return made is not None and made > moment
