"""The types of what `perdure` returns: for annotations, and for people who read them.

`perdure` itself has what programs call, make, raise and catch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.system.lazy_names import LazyNames

if TYPE_CHECKING:
    from perdure.agents import AgentAt
    from perdure.aio.agent import AsyncEdit
    from perdure.aio.runs import AsyncOptions
    from perdure.aio.store import Opening
    from perdure.backing_up import BackedUp
    from perdure.core.live.drift import Drift
    from perdure.delta import (
        Append,
        Delete,
        Increment,
        Move,
        Op,
        Plain,
        Set,
        SetAdd,
        SetRemove,
        Splice,
        TextSplice,
    )
    from perdure.engine.control.explanation import Explanation
    from perdure.engine.control.going_back import HasRunId
    from perdure.engine.control.naming_all import CheckpointedAll
    from perdure.engine.control.run_report import GuardReport, RunReport
    from perdure.engine.control.ways_out import WayOut
    from perdure.engine.dispatch.run_options import Options
    from perdure.engine.dispatch.worker import OpenStore
    from perdure.engine.dispatch.worker_events import WorkerEvent
    from perdure.engine.functions.async_run import AsyncChild, AsyncChildStarter, Pending
    from perdure.engine.functions.async_run_edit import AsyncRunEdit
    from perdure.engine.functions.child_handle import Child
    from perdure.engine.functions.child_starter import ChildStarter
    from perdure.engine.functions.resources import AsyncResource, Resource, ResourceDecorator
    from perdure.engine.functions.run import RunThreads
    from perdure.engine.functions.run_edit import RunEdit
    from perdure.engine.functions.sql_transactions import SqlTransaction
    from perdure.engine.functions.transactions import Transaction
    from perdure.engine.journal.ledger import EffectInfo
    from perdure.engine.journal.questions import Question
    from perdure.engine.journal.run_events import Event, Note
    from perdure.engine.journal.waits import ChildEnd, Expiry, Selected
    from perdure.model import (
        AgentInfo,
        Branch,
        Change,
        Checkpoint,
        Commit,
        Message,
        MessageKind,
        RunInfo,
        Verified,
    )
    from perdure.retention.purging import Purged
    from perdure.retention.trimming import Trimmed
    from perdure.state.edit_block import Edit
    from perdure.state.surroundings import SurroundingsChange
    from perdure.state.time_travel import BranchMove
    from perdure.storage.answers import Sizes
    from perdure.transfer.whole_log import LogEntry

__all__ = [
    "AgentAt",
    "AgentInfo",
    "Append",
    "AsyncChild",
    "AsyncChildStarter",
    "AsyncEdit",
    "AsyncOptions",
    "AsyncResource",
    "AsyncRunEdit",
    "BackedUp",
    "Branch",
    "BranchMove",
    "Change",
    "Checkpoint",
    "CheckpointedAll",
    "Child",
    "ChildEnd",
    "ChildStarter",
    "Commit",
    "Delete",
    "Drift",
    "Edit",
    "EffectInfo",
    "Event",
    "Expiry",
    "Explanation",
    "GuardReport",
    "HasRunId",
    "Increment",
    "LogEntry",
    "Message",
    "MessageKind",
    "Move",
    "Note",
    "Op",
    "OpenStore",
    "Opening",
    "Options",
    "Pending",
    "Plain",
    "Purged",
    "Question",
    "Resource",
    "ResourceDecorator",
    "RunEdit",
    "RunInfo",
    "RunReport",
    "RunThreads",
    "Selected",
    "Set",
    "SetAdd",
    "SetRemove",
    "Sizes",
    "Splice",
    "SqlTransaction",
    "SurroundingsChange",
    "TextSplice",
    "Transaction",
    "Trimmed",
    "Verified",
    "WayOut",
    "WorkerEvent",
]

_NAMES = LazyNames(
    {
        "perdure.agents": "AgentAt",
        "perdure.aio.agent": "AsyncEdit",
        "perdure.aio.runs": "AsyncOptions",
        "perdure.aio.store": "Opening",
        "perdure.backing_up": "BackedUp",
        "perdure.core.live.drift": "Drift",
        "perdure.delta": (
            "Append Delete Increment Move Op Plain Set SetAdd SetRemove Splice TextSplice"
        ),
        "perdure.engine.control.run_report": "GuardReport RunReport",
        "perdure.engine.control.going_back": "HasRunId",
        "perdure.engine.control.naming_all": "CheckpointedAll",
        "perdure.engine.control.ways_out": "WayOut",
        "perdure.engine.control.explanation": "Explanation",
        "perdure.engine.dispatch.run_options": "Options",
        "perdure.engine.dispatch.worker": "OpenStore",
        "perdure.engine.dispatch.worker_events": "WorkerEvent",
        "perdure.engine.functions.async_run": "AsyncChild AsyncChildStarter Pending",
        "perdure.engine.functions.async_run_edit": "AsyncRunEdit",
        "perdure.engine.functions.child_handle": "Child",
        "perdure.engine.functions.child_starter": "ChildStarter",
        "perdure.engine.functions.resources": "AsyncResource Resource ResourceDecorator",
        "perdure.engine.functions.run": "RunThreads",
        "perdure.engine.functions.run_edit": "RunEdit",
        "perdure.engine.functions.sql_transactions": "SqlTransaction",
        "perdure.engine.functions.transactions": "Transaction",
        "perdure.engine.journal.ledger": "EffectInfo",
        "perdure.engine.journal.questions": "Question",
        "perdure.engine.journal.run_events": "Event Note",
        "perdure.engine.journal.waits": "ChildEnd Expiry Selected",
        "perdure.model": (
            "AgentInfo Branch Change Checkpoint Commit Message MessageKind RunInfo Verified"
        ),
        "perdure.retention.purging": "Purged",
        "perdure.retention.trimming": "Trimmed",
        "perdure.state.edit_block": "Edit",
        "perdure.state.surroundings": "SurroundingsChange",
        "perdure.state.time_travel": "BranchMove",
        "perdure.storage.answers": "Sizes",
        "perdure.transfer.whole_log": "LogEntry",
    }
)


def __getattr__(name: str) -> Any:
    return _NAMES.find(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
