"""Perdure makes AI agents outlive their processes.

    store = perdure.open("agents.db")
    agent = store.agent("ticket-42", Ticket, initial=Ticket(customer="c-7"))
    with agent.edit("user message added") as draft:
        draft.messages.append(Message(role="user", content="Refund me"))

Start with README.md; the architecture is in the folder tree.
"""

from perdure.agent import Agent, Past
from perdure.core.draft import increment, move
from perdure.core.drift import Drift
from perdure.core.schema import Ephemeral, Schema, invariant, transitions
from perdure.engine.functions import (
    agent,
    fencing_token,
    idempotency_key,
    step,
    tool,
    unrecorded,
)
from perdure.engine.handle import EffectInfo, RunHandle
from perdure.engine.replay import NOT_DONE
from perdure.engine.run import Run
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
from perdure.model import MISSING, AgentInfo, Branch, Cause, Change, Checkpoint, Commit, RunInfo
from perdure.state.moves import Moved
from perdure.state.policy import SnapshotPolicy
from perdure.store import Store, open, repair

__version__ = "0.1.0"

__all__ = [
    "MISSING",
    "NOT_DONE",
    "Agent",
    "AgentInfo",
    "Alias",
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
    "Fenced",
    "GuardMismatch",
    "InDoubt",
    "Moved",
    "NeedsAttention",
    "NotAStore",
    "NotFound",
    "OutsideRun",
    "Past",
    "PerdureError",
    "Run",
    "RunFailed",
    "RunHandle",
    "RunInfo",
    "RunInterrupted",
    "Schema",
    "SchemaError",
    "SnapshotPolicy",
    "Store",
    "StoreUnavailable",
    "TimedOut",
    "Unstorable",
    "UnsupportedFormat",
    "agent",
    "fencing_token",
    "idempotency_key",
    "increment",
    "invariant",
    "move",
    "open",
    "repair",
    "step",
    "tool",
    "transitions",
    "unrecorded",
]
