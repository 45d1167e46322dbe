"""Perdure makes AI agents outlive their processes.

    store = perdure.open("agents.db")
    agent = store.agent("ticket-42", Ticket, initial=Ticket(customer="c-7"))
    with agent.edit("user message added") as draft:
        draft.messages.append(Message(role="user", content="Refund me"))

Start with README.md; the architecture is in the folder tree.
"""

from typing import TYPE_CHECKING, Any

from perdure.errors import (
    Alias,
    CallFailed,
    Conflict,
    Corrupt,
    Drifted,
    Fenced,
    GuardMismatch,
    InDoubt,
    NeedsAttention,
    NotAStore,
    NotFound,
    OutsideRun,
    PerdureError,
    RunFailed,
    RunInterrupted,
    SchemaError,
    StoreUnavailable,
    TimedOut,
    UnknownZone,
    Unstorable,
    UnsupportedFormat,
)

if TYPE_CHECKING:
    from perdure.agents import Agent, Past
    from perdure.aio import AsyncAgent, AsyncRunHandle, AsyncStore, open_async
    from perdure.core.draft.draft import increment, move
    from perdure.core.live.drift import Drift
    from perdure.core.schema.schema import Ephemeral, Schema, invariant, transitions
    from perdure.engine.control.run_handle import RunHandle
    from perdure.engine.control.run_report import RunReport
    from perdure.engine.control.ways_out import Way
    from perdure.engine.control.why import Explanation
    from perdure.engine.dispatch.worker import Worker, WorkerEvent
    from perdure.engine.execution.inside_calls import (
        fencing_token,
        heartbeat,
        idempotency_key,
        saved,
    )
    from perdure.engine.functions.agent_functions import agent
    from perdure.engine.functions.async_run import AsyncRun
    from perdure.engine.functions.decorators import step, tool, unrecorded
    from perdure.engine.functions.run import Run
    from perdure.engine.journal.ledger import EffectInfo
    from perdure.engine.journal.replay import NOT_DONE
    from perdure.engine.journal.retries import Retry
    from perdure.engine.journal.waits import Ask, Selected, Signal, Timer
    from perdure.model import (
        MISSING,
        AgentInfo,
        Branch,
        Cause,
        Change,
        Checkpoint,
        Commit,
        Message,
        RunInfo,
    )
    from perdure.repairing import repair
    from perdure.retention.trimming import Trimmed
    from perdure.state.snapshot_policy import SnapshotPolicy
    from perdure.state.time_travel import Moved
    from perdure.store import Store, open

__version__ = "0.1.0"

__all__ = [
    "MISSING",
    "NOT_DONE",
    "Agent",
    "AgentInfo",
    "Alias",
    "Ask",
    "AsyncAgent",
    "AsyncRun",
    "AsyncRunHandle",
    "AsyncStore",
    "Branch",
    "CallFailed",
    "Cause",
    "Change",
    "Checkpoint",
    "Commit",
    "Conflict",
    "Corrupt",
    "Drift",
    "Drifted",
    "EffectInfo",
    "Ephemeral",
    "Explanation",
    "Fenced",
    "GuardMismatch",
    "InDoubt",
    "Message",
    "Moved",
    "NeedsAttention",
    "NotAStore",
    "NotFound",
    "OutsideRun",
    "Past",
    "PerdureError",
    "Question",
    "Retry",
    "Run",
    "RunFailed",
    "RunHandle",
    "RunInfo",
    "RunInterrupted",
    "RunReport",
    "Schema",
    "SchemaError",
    "Selected",
    "Signal",
    "SnapshotPolicy",
    "Store",
    "StoreUnavailable",
    "TimedOut",
    "Timer",
    "Trimmed",
    "UnknownZone",
    "Unstorable",
    "UnsupportedFormat",
    "Way",
    "Worker",
    "WorkerEvent",
    "agent",
    "fencing_token",
    "heartbeat",
    "idempotency_key",
    "increment",
    "invariant",
    "move",
    "open",
    "open_async",
    "repair",
    "saved",
    "step",
    "tool",
    "transitions",
    "unrecorded",
]

# Where each name lives. A program loads what it uses: one that looks at a state needs no engine,
# one without coroutines no asyncio.
_ROOMS = {
    "perdure.agents": "Agent Past",
    "perdure.aio": "AsyncAgent AsyncRunHandle AsyncStore open_async",
    "perdure.core.draft.draft": "increment move",
    "perdure.core.live.drift": "Drift",
    "perdure.core.schema.schema": "Ephemeral Schema invariant transitions",
    "perdure.engine.functions.async_run": "AsyncRun",
    "perdure.engine.functions.agent_functions": "agent",
    "perdure.engine.functions.decorators": "step tool unrecorded",
    "perdure.engine.control.run_handle": "RunHandle",
    "perdure.engine.journal.questions": "Question",
    "perdure.engine.execution.inside_calls": "fencing_token heartbeat idempotency_key saved",
    "perdure.engine.journal.ledger": "EffectInfo",
    "perdure.engine.journal.replay": "NOT_DONE",
    "perdure.engine.control.run_report": "RunReport",
    "perdure.engine.journal.retries": "Retry",
    "perdure.engine.functions.run": "Run",
    "perdure.engine.journal.waits": "Ask Selected Signal Timer",
    "perdure.engine.control.why": "Explanation",
    "perdure.engine.control.ways_out": "Way",
    "perdure.engine.dispatch.worker": "Worker WorkerEvent",
    "perdure.model": "AgentInfo Branch Cause Change Checkpoint Commit MISSING Message RunInfo",
    "perdure.state.time_travel": "Moved",
    "perdure.retention.trimming": "Trimmed",
    "perdure.state.snapshot_policy": "SnapshotPolicy",
    "perdure.store": "Store open",
    "perdure.repairing": "repair",
}

_HOME = {name: room for room, names in _ROOMS.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """A public name, from the room that it lives in, once it is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
