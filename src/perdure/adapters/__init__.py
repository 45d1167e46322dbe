"""The base of framework adapters: logs whose states the adapters compute themselves."""

from __future__ import annotations

from perdure.adapters.foreign_logs import ForeignLog as ForeignLog
from perdure.adapters.foreign_logs import ForeignLogs as ForeignLogs
from perdure.adapters.foreign_logs import Held as Held
from perdure.adapters.foreign_logs import KeyUsedError as KeyUsedError
from perdure.adapters.foreign_logs import Retained as Retained
from perdure.adapters.foreign_logs import moved as moved
from perdure.agents import Where as Where
from perdure.retention.purging import COPIED as COPIED
from perdure.retention.trimming import Stays as Stays
from perdure.retention.trimming import Trimmed as Trimmed
from perdure.state.event_loop.loop_waits import LoopWait as LoopWait
from perdure.state.event_loop.loop_waits import bell as bell
from perdure.state.threads import is_line as is_line
from perdure.state.threads import is_thread as is_thread
from perdure.storage.retention import COPIES as COPIES
from perdure.storage.retention import MOVES as MOVES
from perdure.storage.retention import POINTS as POINTS
from perdure.storage.retention import is_moment as is_moment
from perdure.store import Store
from perdure.system.locks import Lock as Lock


def foreign_logs(store: Store, schema_id: str, version: tuple[int, int]) -> ForeignLogs:
    """Returns the agents of a framework's schema, for an adapter that computes states by itself."""
    return ForeignLogs(store._context, schema_id, version)
