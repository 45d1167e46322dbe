"""What the adapters of frameworks stand on: logs whose states they work out by themselves."""

from __future__ import annotations

from perdure.agents import Where as Where
from perdure.core.locks import Lock as Lock
from perdure.core.locks import ReentrantLock as ReentrantLock
from perdure.state.foreign import ForeignLog as ForeignLog
from perdure.state.foreign import ForeignLogs as ForeignLogs
from perdure.state.foreign import Held as Held
from perdure.state.foreign import KeyUsedError as KeyUsedError
from perdure.state.foreign import Retained as Retained
from perdure.state.foreign import moved as moved
from perdure.state.purging import COPIED as COPIED
from perdure.state.threads import THREAD as THREAD
from perdure.state.threads import is_line as is_line
from perdure.state.trimming import Stays as Stays
from perdure.state.trimming import Trimmed as Trimmed
from perdure.state.waiting import Wait as Wait
from perdure.state.waiting import bell as bell
from perdure.storage.retention import COPIES as COPIES
from perdure.storage.retention import MOVES as MOVES
from perdure.storage.retention import OURS as OURS
from perdure.store import Store


def foreign_logs(store: Store, schema_id: str, version: tuple[int, int]) -> ForeignLogs:
    """The agents of a framework's schema, for an adapter that works out states by itself."""
    return ForeignLogs(store._context, schema_id, version)
