"""Perdure makes AI agents outlive their processes.

    store = perdure.open("agents.db")
    agent = store.agent("ticket-42", Ticket, initial=Ticket(customer="c-7"))
    with agent.edit("user message added") as draft:
        draft.messages.append(Message(role="user", content="Refund me"))

Start with README.md; the architecture is in the folder tree.
"""

from typing import TYPE_CHECKING, Any

from perdure import types as types
from perdure.errors import (
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
    SharedValue,
    StoreUnavailable,
    TimedOut,
    UnknownZone,
    Unstorable,
    UnsupportedFormat,
)
from perdure.system.lazy_names import LazyNames

if TYPE_CHECKING:
    from perdure.agents import Agent
    from perdure.aio import AsyncAgent, AsyncRunHandle, AsyncStore, open_async
    from perdure.backing_up import backup
    from perdure.core.draft.draft import increment, move
    from perdure.core.schema.schema import Ephemeral, Schema, invariant, transitions
    from perdure.engine.control.run_handle import RunHandle
    from perdure.engine.dispatch.worker import Worker
    from perdure.engine.execution.inside_calls import (
        fencing_token,
        heartbeat,
        idempotency_key,
        lifespan,
        save_progress,
        save_progress_async,
        saved_progress,
    )
    from perdure.engine.execution.openings import Ticket
    from perdure.engine.functions.agent_decorator import agent
    from perdure.engine.functions.async_run import AsyncRun
    from perdure.engine.functions.decorators import step, tool
    from perdure.engine.functions.resources import resource
    from perdure.engine.functions.run import Run
    from perdure.engine.functions.sql_transactions import sql_transaction
    from perdure.engine.functions.transactions import transaction
    from perdure.engine.functions.unrecorded import unrecorded
    from perdure.engine.journal.replay import NOT_DONE
    from perdure.engine.journal.retries import Retry
    from perdure.engine.journal.waits import Ask, Signal, Timer
    from perdure.missing import MISSING
    from perdure.model import Cause
    from perdure.repairing import repair
    from perdure.state.checkpoint_policy import CheckpointPolicy
    from perdure.state.guards import Guards
    from perdure.state.snapshot_policy import SnapshotPolicy
    from perdure.storage.group_policy import GroupPolicy
    from perdure.store import Store, open

__version__ = "0.1.0"

__all__ = [
    "MISSING",
    "NOT_DONE",
    "Agent",
    "Ask",
    "AsyncAgent",
    "AsyncRun",
    "AsyncRunHandle",
    "AsyncStore",
    "CallFailed",
    "Cause",
    "CheckpointPolicy",
    "Conflict",
    "Corrupt",
    "Drifted",
    "Ephemeral",
    "Fenced",
    "GroupPolicy",
    "GuardMismatch",
    "Guards",
    "InDoubt",
    "NeedsAttention",
    "NotAStore",
    "NotFound",
    "OutsideRun",
    "PerdureError",
    "Retry",
    "Run",
    "RunFailed",
    "RunHandle",
    "RunInterrupted",
    "Schema",
    "SchemaError",
    "SharedValue",
    "Signal",
    "SnapshotPolicy",
    "Store",
    "StoreUnavailable",
    "Ticket",
    "TimedOut",
    "Timer",
    "UnknownZone",
    "Unstorable",
    "UnsupportedFormat",
    "Worker",
    "agent",
    "backup",
    "fencing_token",
    "heartbeat",
    "idempotency_key",
    "increment",
    "invariant",
    "lifespan",
    "move",
    "open",
    "open_async",
    "repair",
    "resource",
    "save_progress",
    "save_progress_async",
    "saved_progress",
    "sql_transaction",
    "step",
    "tool",
    "transaction",
    "transitions",
    "unrecorded",
]

_NAMES = LazyNames(
    {
        "perdure.agents": "Agent",
        "perdure.aio": "AsyncAgent AsyncRunHandle AsyncStore open_async",
        "perdure.core.draft.draft": "increment move",
        "perdure.core.schema.schema": "Ephemeral Schema invariant transitions",
        "perdure.engine.functions.async_run": "AsyncRun",
        "perdure.engine.functions.agent_decorator": "agent",
        "perdure.engine.functions.decorators": "step tool",
        "perdure.engine.functions.unrecorded": "unrecorded",
        "perdure.engine.control.run_handle": "RunHandle",
        "perdure.engine.execution.inside_calls": (
            "fencing_token heartbeat idempotency_key lifespan save_progress save_progress_async "
            "saved_progress"
        ),
        "perdure.engine.journal.replay": "NOT_DONE",
        "perdure.engine.journal.retries": "Retry",
        "perdure.engine.execution.openings": "Ticket",
        "perdure.engine.functions.resources": "resource",
        "perdure.engine.functions.run": "Run",
        "perdure.engine.functions.sql_transactions": "sql_transaction",
        "perdure.engine.functions.transactions": "transaction",
        "perdure.engine.journal.waits": "Ask Signal Timer",
        "perdure.engine.dispatch.worker": "Worker",
        "perdure.missing": "MISSING",
        "perdure.model": "Cause",
        "perdure.state.checkpoint_policy": "CheckpointPolicy",
        "perdure.state.guards": "Guards",
        "perdure.state.snapshot_policy": "SnapshotPolicy",
        "perdure.storage.group_policy": "GroupPolicy",
        "perdure.store": "Store open",
        "perdure.repairing": "repair",
        "perdure.backing_up": "backup",
    }
)


def __getattr__(name: str) -> Any:
    """Loads a public name from its module, at its first use."""
    return _NAMES.find(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
