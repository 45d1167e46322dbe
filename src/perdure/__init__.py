"""Perdure makes AI agents outlive their processes.

    store = perdure.open("agents.db")
    agent = store.agent("ticket-42", Ticket, initial=Ticket(customer="c-7"))
    with agent.edit("user message added") as draft:
        draft.messages.append(Message(role="user", content="Refund me"))

Start with README.md; the architecture is in the folder tree.
"""

from typing import TYPE_CHECKING, Any

from perdure.agent import Agent, Past
from perdure.core.draft import increment, move
from perdure.core.drift import Drift
from perdure.core.schema import Ephemeral, Schema, invariant, transitions
from perdure.engine.functions import (
    agent,
    fencing_token,
    heartbeat,
    idempotency_key,
    saved,
    step,
    tool,
    unrecorded,
)
from perdure.engine.handle import EffectInfo, Question, RunHandle
from perdure.engine.replay import NOT_DONE
from perdure.engine.retrying import Retry
from perdure.engine.run import Run
from perdure.engine.waiting import Ask, Selected, Signal, Timer
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
    Unstorable,
    UnsupportedFormat,
)
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
from perdure.state.moves import Moved
from perdure.state.policy import SnapshotPolicy
from perdure.store import Store, open, repair

if TYPE_CHECKING:
    from perdure.aio import AsyncAgent, AsyncRunHandle, AsyncStore, open_async
    from perdure.engine.async_run import AsyncRun
    from perdure.engine.report import RunReport
    from perdure.engine.why import Explanation, Way
    from perdure.engine.worker import Worker, WorkerEvent

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


_LATER = {
    "AsyncAgent": "perdure.aio", "AsyncRun": "perdure.engine.async_run",
    "AsyncRunHandle": "perdure.aio", "AsyncStore": "perdure.aio", "open_async": "perdure.aio",
    "Explanation": "perdure.engine.why", "RunReport": "perdure.engine.report",
    "Way": "perdure.engine.why",
    "Worker": "perdure.engine.worker", "WorkerEvent": "perdure.engine.worker",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """What not everybody uses. The async face imports asyncio, which costs as much as all the
    rest."""
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(module), name)
